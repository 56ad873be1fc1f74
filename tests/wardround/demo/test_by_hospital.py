"""The demonstration's question by hospital: what it may cost, and that training has the rest."""

from __future__ import annotations

import tomllib

import pytest

from accounting.budget.budget import Budget
from study_protocol.documents.by_hospital import fault_of_distances
from study_protocol.queries.kinds.distances import EDGES, Distances
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from wardround.demo import by_hospital, scenarios
from wardround.demo.live import site_policy
from wardround.demo.settings import WITH_BAYESIAN, settings

SCENARIO = scenarios.breast_cancer()
STUDY = settings(SCENARIO, "parallel", bayesian=True)


def test_the_question_has_the_least_noise_that_its_share_pays_for() -> None:
    asked = by_hospital.question(STUDY)
    assert asked is not None
    assert fault_of_distances(STUDY) is None
    budget = Budget(plan_of(STUDY))
    assert budget.authorise_query(asked.cost()).is_allowed
    less = Distances(kind="distances", by="hospital", noise_multiplier=0.99 * asked.question.noise_multiplier)
    assert not budget.authorise_query(QueryDocument(question=less).cost()).is_allowed
    with_blocks = asked.of_hospitals(sorted(SCENARIO.hospitals)).question
    assert with_blocks.cells == len(SCENARIO.hospitals) * len(EDGES)
    assert STUDY.statistics is not None
    assert with_blocks.cells <= STUDY.statistics.max_cells


def test_it_is_asked_after_the_last_round_that_fits_and_ends_the_study() -> None:
    asked, budget = by_hospital.question(STUDY), Budget.open(plan_of(STUDY))
    assert asked is not None
    while budget.authorise().is_allowed:
        budget.reserve(budget.last_round + 1)
        budget.settle(budget.last_round, None)
    assert budget.charged_rounds == WITH_BAYESIAN["breast-cancer"].rounds
    assert budget.may_ask
    budget.reserve_query(budget.last_round + 1, asked.cost())
    budget.settle(budget.last_round, None)
    assert not budget.may_ask
    assert all(account.epsilon() <= account.limit.epsilon for account in budget.accounts)


def test_hospitals_answer_it_by_their_policy_and_no_other_study_asks() -> None:
    written = tomllib.loads(site_policy("demo", STUDY))["statistics"]
    assert written == {"queries": "allow", "by_hospital": "allow"}
    plain = settings(SCENARIO, "parallel")
    assert plain.statistics is None
    assert by_hospital.question(plain) is None
    assert "statistics" not in tomllib.loads(site_policy("demo", plain))


@pytest.mark.parametrize("scheme", ["client", "joint"])
def test_schemes_without_room_for_questions_ask_none(scheme: str) -> None:
    assert by_hospital.question(settings(SCENARIO, scheme)) is None  # pyright: ignore[reportArgumentType]
