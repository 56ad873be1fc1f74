"""What was charged to a classical limit, and its way through JSON."""

from __future__ import annotations

import json

import pytest

from accounting.budget.accounts import ClassicalLimit, FixedPlanLimit, GaussianRoundsLimit
from accounting.budget.accounts.worst_case import Charged, squares
from accounting.errors import InvalidArgument
from accounting.plan.queries import QueryPlan
from accounting.plan.schedule import NoiseStage
from tests.accounting.budget.plans import cost, fixed, full

QUERIES = QueryPlan(50, 100, None, None, 0.2)
STAGES = (NoiseStage(30, 1.2), NoiseStage(40, 1.0))


@pytest.mark.parametrize(
    ("kind", "study"),
    [
        (ClassicalLimit, fixed(enforcement="renyi-order", queries=QueryPlan(50, 100), noise_schedule=STAGES)),
        (FixedPlanLimit, fixed(share=0.2, noise_schedule=STAGES)),
        (GaussianRoundsLimit, full(70, queries=QueryPlan(50, 100), noise_schedule=STAGES)),
    ],
)
def test_state_comes_back_with_stages_and_questions(kind, study):
    kept = kind(study, study.limits[0])
    kept.charge(None, publishes=False, stage=0)
    kept.charge(None, publishes=False, stage=1)
    kept.charge_query(cost(30.0))
    again = kind(study, study.limits[0])
    again.restore(json.loads(json.dumps(kept.state())))
    assert (again.charged.rounds, again.rounds, len(again.queries)) == ((1, 1), 2, 1)
    assert again.epsilon() == kept.epsilon() > 0


def test_a_state_without_stages_is_of_equal_steps():
    study = fixed(enforcement=None)
    kept = ClassicalLimit(study, study.limits[0])
    kept.restore({"rounds": 3, "published": 0})
    assert kept.charged == Charged((3,), 0, kept.queries)
    assert kept.state() == {"rounds": 3, "published": 0}


@pytest.mark.parametrize("state", [{"rounds": 3}, {"rounds": 3, "stages": [3]}, {"rounds": 2, "stages": [2, 1]}])
def test_a_state_of_another_schedule_is_refused(state):
    study = fixed(noise_schedule=STAGES)
    with pytest.raises(InvalidArgument, match="another noise schedule"):
        FixedPlanLimit(study, study.limits[0]).restore({"published": 0, **state})


def test_nothing_was_charged_yet():
    assert not Charged((0, 0))
    assert Charged((0, 0)).with_round(1, publishes=True).rounds == (0, 1)
    charged = Charged((0,)).with_query(cost(10.0), 4).with_query(cost(10.0, bears="evaluated"))
    # Σ Δ²/s²: the continuous noise is a little smaller than what is drawn.
    assert 0.04 <= squares(charged, "all") <= 0.04 * (1 + 1e-9)
    assert 0.05 <= squares(charged, "all", "evaluated") <= 0.05 * (1 + 1e-9)
