"""Before a study starts: does one round fit, and with how much noise would it?"""

import dataclasses
import math
import re

import pytest

from accounting.budget.accounts.gaussian import GaussianLimit
from accounting.budget.budget import Budget, opened_by
from accounting.budget.enforcement import accounts_of
from accounting.budget.feasibility import require_planned, require_questions
from accounting.budget.ledger import LedgerError
from accounting.budget.solve import least_noise, most_rounds
from accounting.errors import Unreachable
from accounting.plan.limits import FirstRoundOverspends, HistogramRelease, LimitPlan, PlanError, WholePlanOverspends
from accounting.plan.plan import Plan
from accounting.plan.schemes import TRAINING_SCHEMES
from accounting.units import Definition, Level
from tests.accounting.budget.plans import DELTA, FAILURE, client_plan, fixed, full, plan, statistics
from tests.factories.ledgers import opened

CLIENTS_BOUND = LimitPlan(Level.CLIENT, Definition.CLASSICAL, 6.0, DELTA, None)
CLIENTS_AVERAGE = LimitPlan(Level.CLIENT, Definition.BAYESIAN, 4.0, DELTA, FAILURE)


def plan_of(scheme: str) -> Plan:
    """One that no round fits: too little noise."""
    few = {"noise_multiplier": 0.3, "sampling_rate": 0.5, "steps_per_round": 1, "max_steps": 40}
    pooled = {**few, "scheme": scheme, "honest_survivors": 3}
    match scheme:
        case "client":
            return client_plan(**few)
        case "client-distributed":
            return client_plan(**pooled)
        case "parallel":
            return plan(**{**few, "steps_per_round": 2})
        case "sequential":
            return plan(**pooled)
    records = plan(**few).limits
    return plan(**pooled, client_clip_norm=1.0, limits=(*records, CLIENTS_BOUND, CLIENTS_AVERAGE))


@pytest.mark.slow_cases("client", "client-distributed")
@pytest.mark.parametrize("scheme", TRAINING_SCHEMES)
def test_a_study_whose_first_round_would_overspend_says_so_with_the_noise_that_would_fit(scheme):
    tight = plan_of(scheme)
    with pytest.raises(FirstRoundOverspends) as refused:
        Budget.open(tight)
    one, whole = refused.value.noise_one_round, refused.value.noise_max_steps
    assert 0.3 < one < whole
    Budget.open(dataclasses.replace(tight, noise_multiplier=one))
    with pytest.raises(FirstRoundOverspends):
        Budget.open(dataclasses.replace(tight, noise_multiplier=one * 0.98))
    roomy = Budget.open(dataclasses.replace(tight, noise_multiplier=whole))
    while roomy.authorise().is_allowed:
        roomy.reserve(roomy.last_round + 1)
        roomy.settle(roomy.pending, None)
    assert roomy.authorise().reason == "max-steps-reached"
    scant = Budget(dataclasses.replace(tight, noise_multiplier=whole * 0.98))
    while scant.authorise().is_allowed:
        scant.reserve(scant.last_round + 1)
        scant.settle(scant.pending, None)
    assert scant.authorise().reason == "budget-exhausted"


def test_the_noise_for_all_steps_pays_for_the_histograms_too():
    noised = {"disclosure": "noised", "release": HistogramRelease(6.0, 5)}
    silent, told = plan_of("client"), dataclasses.replace(plan_of("client"), **noised)
    needed = []
    for tight in (silent, told):
        with pytest.raises(FirstRoundOverspends) as refused:
            Budget.open(tight)
        needed.append(refused.value.noise_max_steps)
    assert needed[0] < needed[1]
    roomy = Budget.open(dataclasses.replace(told, noise_multiplier=needed[1]))
    while roomy.authorise().is_allowed:
        roomy.reserve(roomy.last_round + 1)
        roomy.settle(roomy.pending, None)
    assert roomy.authorise().reason == "max-steps-reached"


def test_histograms_that_pass_the_limit_by_themselves_leave_the_noise_of_one_round():
    """Their noise is their own: no multiplier pays for 300 of them, and one round still has its answer."""
    told = dataclasses.replace(
        plan_of("client"),
        disclosure="noised",
        release=HistogramRelease(3.0, 1),
        noise_multiplier=0.3,
        sampling_rate=0.5,
        steps_per_round=1,
        max_steps=300,
    )
    with pytest.raises(FirstRoundOverspends, match="publish fewer histograms") as refused:
        Budget.open(told)
    assert refused.value.noise_max_steps is None
    assert Budget.open(dataclasses.replace(told, noise_multiplier=refused.value.noise_one_round)).authorise().is_allowed


def test_an_order_at_which_no_noise_would_do_is_named():
    with pytest.raises(PlanError, match=r"larger classical_order, at least 1\.\d+ .*--solve noise") as refused:
        Budget.open(plan(classical_order=0.5))
    assert refused.value.field == "classical_order"
    (least,) = re.findall(r"at least ([\d.]+)", str(refused.value))
    # There the first round still needs more noise than any real study has, but some noise is enough.
    Budget.open(plan(classical_order=float(least) * 1.01, noise_multiplier=1e5, definitions=("classical",)))
    with pytest.raises(PlanError, match="larger classical_order"):
        Budget.open(plan(classical_order=float(least) * 0.98, noise_multiplier=1e5, definitions=("classical",)))


def test_histograms_that_pass_the_limit_in_the_first_round_are_named() -> None:
    with pytest.raises(PlanError, match="published histograms alone pass it") as refused:
        Budget.open(client_plan(disclosure="noised", release=HistogramRelease(0.5, 1)))
    assert refused.value.field == "histogram_noise"


def test_an_order_that_is_too_large_for_any_noise_is_named_and_no_histogram() -> None:
    with pytest.raises(PlanError, match=r"at order 1e\+300: choose a smaller classical_order") as refused:
        Budget.open(plan(classical_order=1e300, definitions=("classical",)))
    assert refused.value.field == "classical_order"


def test_questions_alone_need_a_delta_that_their_whole_steps_do_not_use_up() -> None:
    """1 + e^ε times 1e-3/s⁴ for each of 10⁵ numbers, at the least s of 2²⁰ − 1 steps."""

    def lost(epsilon: float) -> float:
        return (1 + math.exp(epsilon)) * 1e5 * 1e-3 / (2.0**20 - 1) ** 4

    for epsilon in (37.0, 38.0, 40.0, 41.0):
        study = statistics(epsilon)
        account = GaussianLimit(study, study.limits[0])
        if lost(epsilon) < 1e-5:
            require_questions([account])
        else:
            with pytest.raises(PlanError, match="Lower epsilon, max_queries or max_cells") as refused:
                require_questions([account])
            assert refused.value.field == "epsilon"


@pytest.mark.parametrize(
    ("study", "change"),
    [
        (fixed(10, epsilon=60.0), "Lower epsilon or max_steps, raise delta"),
        (fixed(10, delta=1e-300, share=0.1), "Lower epsilon or max_steps, max_queries or max_cells, raise delta"),
        (full(10, epsilon=1e4), "Lower epsilon or max_steps, raise delta"),
        (full(10, delta=1e-300), "Lower epsilon or max_steps, raise delta"),
    ],
)
def test_a_delta_that_the_rounding_uses_up_is_named(study: Plan, change: str) -> None:
    """At 1 + e^ε times 1e-21 a step: more noise, fewer steps or a larger ε would not help."""
    with pytest.raises(PlanError, match=change) as refused:
        Budget.open(study)
    assert refused.value.field == "epsilon"
    with pytest.raises(Unreachable, match=change):
        least_noise(study)


def test_questions_that_take_nearly_all_are_named() -> None:
    study = fixed(10, share=1 - 1e-12)
    with pytest.raises(WholePlanOverspends, match=r"smaller share for questions \(statistics\.share\)") as refused:
        Budget.open(study)
    assert refused.value.noise is None
    assert "--solve noise" not in str(refused.value)
    with pytest.raises(Unreachable, match=r"lower the share of questions \(statistics\.share\)"):
        least_noise(study)


def test_a_ledger_that_opens_one_step_too_many_is_refused_at_its_first_entry() -> None:
    steps = most_rounds(fixed()).max_steps
    for planned, fits in ((steps, True), (steps + 1, False)):
        study = fixed(planned)
        if fits:
            require_planned(study, accounts_of(study))
            assert opened_by(opened(study)[0]).plan == study
            continue
        with pytest.raises(WholePlanOverspends, match=f"the whole plan of {planned} steps"):
            require_planned(study, accounts_of(study))
        with pytest.raises(LedgerError, match=f"at most {steps} steps fit"):
            opened_by(opened(study)[0])
