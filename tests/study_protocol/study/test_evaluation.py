"""The section `evaluation` of a study's settings."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from study_protocol.study.plan_of import plan_of
from study_protocol.study.queries import QueryDocument
from study_protocol.study.settings import StudySettings
from study_protocol.terms import in_words
from study_protocol.versions import CENTRED_SQUARES, UNNUMBERED, min_protocol, needed_for
from tests.factories.settings import settings, settings_json

QUESTION = {"prediction": "binary", "noise_multiplier": 6.0}
STATISTICS = {"max_queries": 5, "max_cells": 100}


def evaluating(scheme: str = "parallel", statistics: dict[str, Any] | None = None, **evaluation: Any) -> StudySettings:
    chosen = {"share": 0.2, "every": 2, "question": QUESTION} | evaluation
    return settings(scheme, statistics=STATISTICS | (statistics or {}), evaluation=chosen)


def test_the_schedule_names_each_model_and_its_cost_is_in_the_plan() -> None:
    found = evaluating().evaluation
    assert found is not None
    document = found.document(7)
    wanted = {"kind": "evaluation", "model": 7, **QUESTION}
    assert document == QueryDocument.model_validate({"question": wanted})
    assert document is not None
    assert found.schedules(document)
    plan = plan_of(evaluating()).queries
    assert plan is not None
    assert plan.evaluation is not None
    # Three rounds: after two models, and after the last one.
    assert (plan.evaluation.due_by(3), plan.evaluation.cost) == (2, document.cost())
    assert [released for released in range(7) if found.due(released)] == [2, 4, 6]
    # Written down and read again it is the same study.
    assert StudySettings.model_validate_json(evaluating().model_dump_json()) == evaluating()


@pytest.mark.parametrize("change", [{"noise_multiplier": 5.9}, {"model": 0}, {"bins": 2}, {"title": "other"},
                                    {"where": [{"column": "age", "low": 1.0, "high": 2.0}]}])  # fmt: skip
def test_another_question_is_not_the_scheduled_one(change: dict[str, Any]) -> None:
    found = evaluating().evaluation
    assert found is not None
    question = {"kind": "evaluation", "model": 7, **QUESTION} | change
    assert not found.schedules(QueryDocument.model_validate({"question": question}))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"question": None}, "come together"),
        ({"every": None}, "come together"),
        ({"share": 0.0}, "share"),
        ({"share": 1.0}, "share"),
        ({"every": 0}, "every"),
        ({"question": QUESTION | {"model": 3}}, "model"),
        ({"question": {"prediction": "classes", "noise_multiplier": 6.0}}, "classes"),
        ({"statistics": {"max_queries": 1}}, "max_queries must be at least 2"),
        ({"statistics": {"max_cells": 4}}, "max_cells must be at least 5"),
    ],
)
def test_what_cannot_be_is_refused_when_the_study_is_created(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        evaluating(**changes)


def test_it_needs_queries_and_a_scheme_that_protects_patients_alone() -> None:
    with pytest.raises(ValidationError, match="statistics"):
        settings(evaluation={"share": 0.2})
    for scheme in ("client", "joint"):
        masked = {"masked": True} if scheme == "joint" else {}
        with pytest.raises(ValidationError, match="public set"):
            StudySettings.model_validate(settings_json(scheme, evaluation={"share": 0.2}, **masked))


def test_a_hospital_reads_the_schedule_before_it_joins() -> None:
    told = [text for about, text in in_words(evaluating(), mine=True) if about == "evaluation"]
    assert "about 20 % of the patients" in told[0]
    assert "at most 2 times, without asking a person again" in told[1]
    assert "the newest model" in told[1]
    alone = [
        text for about, text in in_words(evaluating(every=None, question=None), mine=True) if about == "evaluation"
    ]
    assert len(alone) == 1


NUMBER = {"prediction": "number", "low": 0.0, "high": 1.0, "largest_error": 0.5, "noise_multiplier": 6.0}


def test_a_schedule_in_centred_form_needs_programs_that_read_it_and_older_settings_keep_their_digest() -> None:
    plain, left_out = evaluating(question=NUMBER | {"centred": False}), evaluating(question=NUMBER)
    centred = evaluating(question=NUMBER | {"centred": True})
    assert plain.digest() == left_out.digest() != centred.digest()
    assert "centred" not in left_out.as_json()["evaluation"]["question"]
    assert [min_protocol(chosen.as_json()) for chosen in (left_out, centred)] == [UNNUMBERED, CENTRED_SQUARES]
    assert needed_for(centred.as_json(), 2) == ["centred squares in scheduled evaluations"]
    for chosen, sensitivity in ((left_out, 2.0), (centred, 3.25**0.5)):
        schedule = chosen.evaluation
        assert schedule is not None
        document = schedule.document(3)
        assert document is not None
        assert document.question.sensitivity == pytest.approx(sensitivity)
        assert schedule.schedules(document)
