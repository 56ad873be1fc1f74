"""What a hospital lets the coordinator ask for agrees with the budget that the coordinator must keep."""

import pytest

from accounting.budget import Budget
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.own_budget import Charge, require_within_study
from server.domain.plan import plan_of
from tests.masked_studies import masked
from tests.studies import settings

CLASSICAL = {"notion": "classical", "delta": 1e-5}
JOINT = [{**CLASSICAL, "level": "instance", "epsilon": 6.0}, {**CLASSICAL, "level": "client", "epsilon": 14.0}]
STUDIES = {
    "parallel": settings(scheme="parallel", horizon=400, limits=[{**CLASSICAL, "level": "instance", "epsilon": 3.0}]),
    "client": settings(scheme="client", horizon=400, limits=[{**CLASSICAL, "level": "client", "epsilon": 9.0}]),
    "sequential": masked("sequential", horizon=4000, limits=[{**CLASSICAL, "level": "instance", "epsilon": 1.25}]),
    "joint": masked("joint", horizon=400, limits=JOINT, client_clip_norm=2.0, classical_order=4.0),
}


def rounds_within_budget(study):
    budget = Budget(plan_of(study))
    while budget.authorise().allowed:
        budget.reserve(budget.last_round + 1)
        budget.settle(budget.last_round, None)
    assert budget.authorise().reason == "budget-exhausted"
    return budget.charged_rounds


@pytest.mark.parametrize("scheme", sorted(STUDIES))
def test_the_hospital_stops_where_the_budget_stops(scheme):
    study = STUDIES[scheme]
    rounds = rounds_within_budget(study)
    assert rounds > 1
    require_within_study(study, rounds - 1)
    with pytest.raises(OwnBudgetExceeded) as refused:
        require_within_study(study, rounds)
    assert refused.value.code == "study-limit-exceeded"


@pytest.mark.parametrize("scheme", ["sequential", "joint"])
def test_its_own_ledger_relies_on_nobody_elses_noise(scheme):
    charge = Charge.of_round(STUDIES[scheme])
    assert (charge.level, charge.noise_multiplier) == ("instance", 4.0)
