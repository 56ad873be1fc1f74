"""Values of another class are refused by the name of their argument, by every public function that takes one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from accounting import (
    AveragedAccountant,
    BayesianAccountant,
    ClassicalAccountant,
    ComposedEvent,
    Definition,
    EstimateSpec,
    FinitePair,
    GaussianEvent,
    Guarantee,
    IndividualFilter,
    InvalidArgument,
    Level,
    LimitPlan,
    PairEvent,
    PoissonSampledEvent,
    PrivacyProfile,
    RandomisedResponse,
    SelfComposedEvent,
    best_orders,
    budget_events,
    calibrate_noise,
    delta_from_moments,
    epsilon_from_moments,
    forecast,
    least_epsilon,
    least_noise,
    most_rounds,
    most_steps,
    signal_to_noise,
    subsampled_moment,
    tightest,
    upper_mean,
)
from accounting.plan.queries import EvaluationPlan, QueryPlan
from tests.accounting.budget.plans import fixed

NO_VALUES = ("x", object(), b"x", ["x"], {"x": 1}, math.nan, True)
STUDY = fixed(5)


def certificate(**changes: Any) -> Guarantee:
    return replace(ClassicalAccountant(delta=1e-5).certificate(), **changes)


def limit(**changes: Any) -> LimitPlan:
    return replace(STUDY.limits[0], **changes)


def profile_of(epsilons: Any) -> PrivacyProfile:
    account = ClassicalAccountant(delta=1e-5)
    account.compose(GaussianEvent(2.0))
    return account.profile(epsilons)


CALLS: dict[str, tuple[str, Callable[[Any], object]]] = {
    "averaged": ("spec", lambda value: AveragedAccountant(value, members=5, max_ratio=1.0)),
    "bayesian": ("spec", BayesianAccountant),
    "individual": ("spec", lambda value: IndividualFilter(value, members=2)),
    "profile": ("epsilons", profile_of),
    "curve": ("deltas", lambda value: PrivacyProfile([0.0, 1.0], value)),
    "trade-off": ("false_positive_rates", PrivacyProfile([0.0, 1.0], [0.3, 0.1]).trade_off),
    "guarantee's epsilon": ("epsilon", lambda value: certificate(epsilon=value)),
    "guarantee's level": ("level", lambda value: certificate(level=value)),
    "limit's definition": ("definition", lambda value: limit(definition=value)),
    "limit's level": ("level", lambda value: limit(level=value)),
    "limit's enforcement": ("enforcement", lambda value: limit(enforcement=value)),
    "plan's limits": ("limits", lambda value: replace(STUDY, limits=value)),
    "plan's queries": ("queries", lambda value: replace(STUDY, queries=value)),
    "plan's schedule": ("noise_schedule", lambda value: replace(STUDY, noise_schedule=value)),
    "plan's observer": ("observer", lambda value: replace(STUDY, observer=value)),
    "plan's survivors": ("honest_survivors", lambda value: replace(STUDY, honest_survivors=value)),
    "evaluation": ("evaluation", lambda value: QueryPlan(5, 5, None, value)),
    "evaluation's cost": ("cost", lambda value: EvaluationPlan(1, value)),
    "tightest": ("plan", tightest),
    "tightest's share": ("share", lambda value: tightest(STUDY, value)),
    "forecast": ("plan", forecast),
    "forecast's records": ("records", lambda value: forecast(STUDY, records=value)),
    "best orders": ("plan", best_orders),
    "least noise": ("plan", least_noise),
    "least epsilon": ("plan", least_epsilon),
    "most rounds": ("plan", most_rounds),
    "signal": ("plan", lambda value: signal_to_noise(value, 100, hospitals=3, rounds=5)),
    "budget": ("budget", budget_events),
    "most steps": ("account", lambda value: most_steps(epsilon=1.0, delta=1e-5, account=value)),
    "noise": (
        "account",
        lambda value: calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.1, steps=5, account=value),
    ),
    "sampled": ("event", lambda value: PoissonSampledEvent(0.1, value)),
    "repeated": ("event", lambda value: SelfComposedEvent(value, 2)),
    "composed": ("events", ComposedEvent),
    "pair": ("pair", PairEvent),
    "moment's pair": ("pair", lambda value: subsampled_moment(4, value, sampling_rate=0.1)),
    "moment's order": ("order", lambda value: subsampled_moment(value, RandomisedResponse(0.7), sampling_rate=0.1)),
    "outcomes": ("with_record", lambda value: FinitePair(value, [0.5, 0.5])),
    "epsilon": ("log_moments", lambda value: epsilon_from_moments([2.0, 8.0], value, 1e-5)),
    "delta": ("log_moments", lambda value: delta_from_moments([2.0, 8.0], value, 1.0)),
    "mean's method": ("method", lambda value: upper_mean([0.1, 0.2, 0.3], 0.01, method=value)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", NO_VALUES, ids=lambda value: type(value).__name__)
def test_a_value_of_another_class_is_refused_by_name(name: str, value: Any) -> None:
    argument, call = CALLS[name]
    with pytest.raises(InvalidArgument, match=f"^{argument}: "):
        call(value)


def test_words_are_taken_as_text_and_sequences_as_tuples() -> None:
    text: Any = ("instance", "classical")
    again = LimitPlan(*text, 2.0, 1e-5, None)
    assert (again.level, again.definition) == (Level.INSTANCE, Definition.CLASSICAL)
    assert again.definition is Definition.CLASSICAL
    listed: Any = list(STUDY.limits)
    assert replace(STUDY, limits=listed, observer="coordinator") == STUDY  # pyright: ignore[reportArgumentType]
    assert hash(replace(STUDY, limits=listed)) == hash(STUDY)


def test_counts_stay_below_the_largest_that_a_float_counts() -> None:
    for huge in (2**53 + 1, 10**400):
        with pytest.raises(InvalidArgument, match=r"^max_steps: "):
            replace(STUDY, max_steps=huge)
        with pytest.raises(InvalidArgument, match=r"^count: "):
            SelfComposedEvent(GaussianEvent(1.0), huge)
    with pytest.raises(InvalidArgument, match=r"^honest_survivors: "):
        replace(STUDY, honest_survivors=10**7)


def test_a_spec_of_another_accountant_is_refused() -> None:
    spec: Any = EstimateSpec(delta=1e-3, estimator_failure_probability=1e-4)
    with pytest.raises(InvalidArgument, match=r"^spec: must be of class BayesianSpec, not EstimateSpec"):
        BayesianAccountant(spec)
