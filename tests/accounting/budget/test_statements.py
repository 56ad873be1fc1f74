"""What a statement names holds whatever makes a study stop: ε of questions alone, and the chance of a right guess."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from accounting.accountants.bayesian_spec import DISTRIBUTION_FREE
from accounting.budget.budget import Budget
from accounting.mechanisms.conversion import attack_success
from accounting.plan.limits import BayesianPlan, HistogramRelease, LimitPlan
from accounting.plan.queries import QueryCost, QueryPlan
from accounting.plan.statistics import StatisticsPlan
from accounting.units import Definition, Level, Observer
from tests.accounting.budget.plans import plan

STEPS = 2.0**20
DELTA = 1e-5
Floats = NDArray[np.float64]


def cost(noise_multiplier: float) -> QueryCost:
    return QueryCost(STEPS, STEPS / noise_multiplier, 1)


def questions(epsilon: float = 4.0) -> Budget:
    limit = LimitPlan(Level.INSTANCE, Definition.CLASSICAL, epsilon, DELTA, None)
    return Budget(StatisticsPlan((limit,), QueryPlan(1000, 1), Observer.COORDINATOR))


def asked(budget: Budget, noise_multiplier: float) -> dict[str, Any]:
    number = budget.last_round + 1
    budget.reserve_query(number, cost(noise_multiplier))
    budget.settle(number, None)
    return budget.statements()[0]


def delta_of_the_best_stop(epsilons: list[float], noise_multiplier: float) -> float:
    """max over stops τ of E[(1 − e^{ε_τ − L_τ})₊] by dynamic programming on a grid of losses; one question a step.

    A chord lies above a convex function: on a grid, and by midpoints below it, the error is of the order of the cell²,
    here under 1 %.
    """
    precision = noise_multiplier**-2
    losses: Floats = np.linspace(-3.0, 12.0, 6001)
    moves = losses[1] - losses[0]
    reach = int(8 * math.sqrt(precision) / moves)
    kernel = stats.norm.pdf(np.arange(-reach, reach + 1) * moves, precision / 2, math.sqrt(precision)) * moves

    def gain(epsilon: float) -> Floats:
        return np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)

    value = gain(epsilons[-1])
    for epsilon in reversed(epsilons[:-1]):
        padded = np.concatenate([np.zeros(reach), value, np.ones(reach)])
        value = np.maximum(gain(epsilon), np.convolve(padded, kernel[::-1], mode="valid"))
    padded = np.concatenate([np.zeros(reach), value, np.ones(reach)])
    before = np.convolve(padded, kernel[::-1], mode="valid")
    return float(np.interp(0.0, losses, before))


def test_a_stop_that_waits_for_a_telling_answer_does_not_pass_what_is_stated() -> None:
    """Sixty questions: after each the attacker may stop, at the ε that is stated then."""
    budget, stated, running = questions(), [], []
    for _ in range(60):
        shown = asked(budget, 12.0)
        stated.append(shown["spent"])
        running.append(shown["reports"][0]["epsilon"])
        assert shown["certificate"]["epsilon"] == shown["spent"]
    assert delta_of_the_best_stop(stated, 12.0) <= DELTA
    # The attack is one: at the ε of the questions so far, as it was stated before, δ is many times larger.
    assert delta_of_the_best_stop(running, 12.0) > 3 * DELTA


def test_the_limit_stands_from_the_first_question_on_with_what_is_used_of_it() -> None:
    budget = questions()
    before = budget.statements()[0]
    assert (before["spent"], before["certificate"]["used"]) == (0, 0)
    shown = asked(budget, 12.0)
    certificate = shown["certificate"]
    assert shown["spent"] == certificate["epsilon"] == 4.0
    assert certificate["used"] == pytest.approx(1 / 144, rel=1e-9)
    assert "limit is stated from the first question on" in certificate["assumption"]
    (running,) = shown["reports"]
    assert running["epsilon"] < 1
    assert (
        "if the study ended here for reasons that do not depend on its answers"
        in (running["certificate"]["assumption"])
    )
    budget.finish("stopped")
    assert budget.statements()[0]["spent"] == 4.0


def test_what_is_allowed_is_the_largest_sum_of_squares_within_the_limit() -> None:
    allowed = questions().statements()[0]["certificate"]["allowed"]
    with mp.workdps(40):
        mu = mp.sqrt(mp.mpf(allowed))

        def delta(of: Any) -> Any:
            return mp.ncdf(of / 2 - 4 / of) - mp.exp(4) * mp.ncdf(-of / 2 - 4 / of)

        assert delta(mu * (1 - mp.mpf("1e-6"))) < DELTA < delta(mu * (1 + mp.mpf("1e-6")))


def test_a_question_that_fits_is_let_in_as_before() -> None:
    budget = questions(1.0)
    assert budget.authorise_query(cost(3.7306 * 1.0005)).is_allowed
    assert not budget.authorise_query(cost(3.7306 * 0.9995)).is_allowed


def test_the_chance_of_questions_alone_is_that_of_the_whole_limit() -> None:
    budget = questions()
    shown = asked(budget, 100.0)
    with mp.workdps(40):
        exact = mp.ncdf(mp.sqrt(mp.mpf(shown["certificate"]["allowed"])) / 2)
    assert 0 <= shown["attack_success"] - exact < 1e-6
    assert shown["certificate"]["guess_from"] == "loss-distribution"
    assert shown["attack_success"] < attack_success(4.0, DELTA)


def classical(**changes: Any) -> Budget:
    return Budget(plan(definitions=("classical",), epsilon={"classical": 6.0}, **changes))


def test_the_chance_is_of_the_whole_plan_and_does_not_move_while_it_is_carried_out() -> None:
    budget = classical(noise_multiplier=20.0, sampling_rate=1.0, max_steps=20)
    first = budget.statements()[0]
    budget.reserve(1)
    budget.settle(1, None)
    later = budget.statements()[0]
    exact = mp.ncdf(mp.sqrt(20) / 20 / 2)
    assert first["attack_success"] == later["attack_success"]
    assert 0 <= later["attack_success"] - exact < 1e-6


def test_rounds_that_the_limit_never_lets_begin_are_not_counted() -> None:
    short, endless = (classical(noise_multiplier=5.0, sampling_rate=1.0, max_steps=steps) for steps in (2000, 20_000))
    # The sampler's and the lattice's errors are those of max_steps.
    assert short.statements()[0]["attack_success"] == pytest.approx(endless.statements()[0]["attack_success"], abs=1e-9)
    assert short.statements()[0]["attack_success"] < attack_success(6.0, DELTA)


def most_squares(order: float, epsilon: float) -> Any:
    """Σ Δ²/s² at which Gaussian releases of all records have this ε at one order, in 40 digits."""
    moment = order * epsilon - order * mp.log(order / (order + 1)) + mp.log(order + 1) + mp.log(mp.mpf(DELTA))
    return 2 * moment / order / (order + 1)


def test_rounds_of_all_records_and_questions_are_one_gaussian_within_the_limit() -> None:
    few = {"noise_multiplier": 20.0, "sampling_rate": 1.0, "steps_per_round": 1, "max_steps": 20}
    alone = classical(**few).statements()[0]["attack_success"]
    asking = classical(**few, queries=QueryPlan(50, 10))
    both = asking.statements()[0]["attack_success"]
    with mp.workdps(40):
        allowed = most_squares(mp.mpf(asking.plan.classical_order), 6)  # type: ignore[union-attr]
        exact = mp.ncdf(mp.sqrt(allowed) / 2)
    assert alone < both
    assert 0 <= both - exact < 1e-6
    # As many questions as the limit lets in after all rounds.
    for number in range(1, 21):
        asking.reserve(number)
        asking.settle(number, None)
    rest = float(allowed) - 20 / 400
    assert asking.authorise_query(cost((rest * (1 - 1e-6)) ** -0.5)).is_allowed
    assert not asking.authorise_query(cost((rest * (1 + 1e-6)) ** -0.5)).is_allowed
    assert asking.statements()[0]["attack_success"] == both


def test_questions_beside_sampled_rounds_add_to_the_chance() -> None:
    few = {"noise_multiplier": 20.0, "sampling_rate": 0.5, "steps_per_round": 1, "max_steps": 20}
    sampled = classical(**few, queries=QueryPlan(50, 10)).statements()[0]["attack_success"]
    whole = classical(**few | {"sampling_rate": 1.0}, queries=QueryPlan(50, 10)).statements()[0]["attack_success"]
    assert whole < sampled <= attack_success(6.0, DELTA) + 1e-9


def test_histograms_of_a_study_that_trains_add_to_the_chance() -> None:
    few = {"noise_multiplier": 20.0, "sampling_rate": 1.0, "steps_per_round": 1, "max_steps": 20}
    released = Budget(plan(**few, disclosure="noised", release=HistogramRelease(20.0, 2)))
    noised = next(one for one in released.statements() if one["definition"] == "classical")
    # Ten histograms, each moved by √2 under noise of 20.
    with_histograms = mp.ncdf(mp.sqrt(20 / mp.mpf(400) + 10 * 2 / mp.mpf(400)) / 2)
    assert 0 <= noised["attack_success"] - with_histograms < 1e-3


def test_questions_may_move_every_round_to_a_number_that_publishes() -> None:
    """Four questions between two rounds: the most histograms are then those of a study that publishes every round."""
    few = {"noise_multiplier": 20.0, "steps_per_round": 1, "max_steps": 5, "queries": QueryPlan(20, 10, 0.1)}
    chances = list[float]()
    for every in (1, 5):
        study = plan(**few, disclosure="noised", release=HistogramRelease(20.0, every))
        (_, classical_limit, *_) = Budget(study).statements()
        chances.append(classical_limit["attack_success"])
    assert chances[0] == chances[1]


def test_histograms_of_cancelled_rounds_leave_what_epsilon_and_delta_allow() -> None:
    few = {"noise_multiplier": 20.0, "sampling_rate": 1.0, "steps_per_round": 1, "max_steps": 4}
    budget = Budget(plan(**few, disclosure="noised", release=HistogramRelease(20.0, 1)))
    (_, before, *_) = budget.statements()
    assert before["certificate"]["guess_from"] == "loss-distribution"
    budget.reserve(1)
    budget.cancel(1, "too-few-clients")
    (_, after, *_) = budget.statements()
    assert after["certificate"]["guess_from"] == "epsilon"
    assert after["attack_success"] == pytest.approx(attack_success(6.0, DELTA))


def test_a_bayesian_number_keeps_what_epsilon_and_delta_allow() -> None:
    budget = Budget(plan())
    budget.reserve(1)
    budget.settle(1, None)
    bayesian = budget.statements()[0]
    assert bayesian["certificate"]["guess_from"] == "epsilon"
    assert bayesian["attack_success"] == pytest.approx(attack_success(bayesian["spent"], DELTA))


@pytest.mark.parametrize("disclosure", ["plain", "noised", "at-end"])
@pytest.mark.parametrize("observer", list(Observer))
def test_certified_is_stated_only_where_nobody_sees_bounds_of_the_sample(disclosure: Any, observer: Observer) -> None:
    assert "betting" in DISTRIBUTION_FREE
    bayesian = BayesianPlan((4.0, 8.0), 8.0, "betting", "running", "adaptive", "improved", "held-out")
    release = HistogramRelease(20.0, 2) if disclosure == "noised" else None
    budget = Budget(plan(bayesian=bayesian, disclosure=disclosure, observer=observer, release=release))
    hidden = disclosure == "at-end" and observer is Observer.RELEASES
    for _ in range(2):
        shown = next(one for one in budget.statements() if one["definition"] == "bayesian")
        found = {shown["certificate"]["definition"], *(one["certificate"]["definition"] for one in shown["reports"])}
        assert found == ({"certified"} if hidden else {"bayesian"})
        assert ("not certified" in shown["certificate"]["assumption"]) == (not hidden)
        budget.finish("stopped") if budget.finished is None else None


def test_statements_stay_json() -> None:
    shown = asked(questions(), 12.0)
    assert dataclasses.is_dataclass(cost(1.0))
    assert all(not isinstance(value, float) or math.isfinite(value) for value in shown["certificate"].values())
