"""How good the last model is on the hospitals' own patients."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.budget.budget import Budget
from study_protocol.queries.answer import Answer, AnswerTable
from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from wardround.demo import scenarios
from wardround.demo.own_patients import MEASURE, SHARE, OwnPatients, answer, with_evaluation
from wardround.demo.settings import settings


def test_the_query_has_the_least_noise_that_the_budget_allows() -> None:
    study = with_evaluation(settings(scenarios.breast_cancer(), "parallel"))
    assert study.evaluation is not None
    assert study.evaluation.share == SHARE
    question = study.evaluation.question
    assert question is not None

    def fits(noise: float) -> bool:
        asked = question.model_copy(update={"noise_multiplier": noise}).of(1)
        budget = Budget(plan_of(study))
        return budget.authorise_query(QueryDocument(question=asked).cost()).is_allowed

    noise = question.noise_multiplier
    assert round(100 * noise) == pytest.approx(100 * noise)
    assert fits(noise)
    # A hundredth is what was rounded up, and a thousandth what the search leaves.
    assert not fits((noise - 0.01) / 1.002)


@pytest.mark.parametrize(
    "study",
    [
        settings(scenarios.breast_cancer(), "parallel", bayesian=True),
        settings(scenarios.breast_cancer(), "sequential"),
    ],
    ids=["Bayesian", "sequential"],
)
def test_other_studies_stay_as_they_are(study: Any) -> None:
    assert with_evaluation(study) is study


def operator(*rows: tuple[str, float | None, float | None, float | None, float | None], asked: int = 1) -> Any:
    """One that shows so many queries, the last of them answered by these rows."""
    columns = ("measure", "estimate", "low", "high", "patients")
    published = SimpleNamespace(
        answer=Answer(tables=(AnswerTable(name="performance", title="t", columns=columns, rows=rows),))
    )
    last = SimpleNamespace(published=published) if rows else None
    return SimpleNamespace(
        queries=lambda study: SimpleNamespace(queries=[SimpleNamespace(number=n + 1) for n in range(asked)]),
        query=lambda study, number: SimpleNamespace(answered=last if number == asked else None),
    )


def test_the_accuracy_is_read_off_the_first_query_that_is_answered() -> None:
    rows = (("sensitivity at 0.5", 0.5, 0.1, 0.9, 90.0), (MEASURE, 0.95, 0.88, 1.0, 91.4))
    found = answer(operator(*rows, asked=3), "demo")
    assert found == OwnPatients(0.95, 0.88, 1.0, 91.4)
    assert found is not None
    assert found.in_words().startswith("95 %: 0.88 to 1.00")
    assert "about 91 set aside" in found.in_words()


def test_without_an_answer_or_a_number_there_is_none() -> None:
    assert answer(operator(asked=0), "demo") is None
    assert answer(operator(), "demo") is None
    assert answer(operator((MEASURE, None, 0.0, 1.0, 3.0)), "demo") is None
    assert math.isfinite(SHARE)
