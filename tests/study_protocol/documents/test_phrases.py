"""The meaning of ε in sentences, rounded to the side where it promises less."""

from __future__ import annotations

from typing import Any

import pytest

from accounting.units import Observer
from study_protocol.documents.phrases import (
    budget_line,
    charged_rounds,
    exact,
    exact_delta,
    hospitals,
    meaning,
    observer_phrase,
    on_average,
    questions,
    sees,
    training_rounds,
)
from study_protocol.study.certificate import CertifiedMembers, CertifiedRounds
from study_protocol.study.messages import LimitStatement
from study_protocol.study.plan_of import plan_of
from tests.factories.settings import settings

PLAN = plan_of(settings("parallel"))


def stated(**values: Any) -> LimitStatement:
    """A limit of ε 3 at δ 1e-5, of which 1.2341 is spent."""
    limit: dict[str, Any] = {
        "level": "instance",
        "definition": "classical",
        "state": "within",
        "epsilon": 3.0,
        "delta": 1e-5,
        "enforced_by": "filter",
        "spent": 1.2341,
        "reserved": None,
        "remaining": None,
        "observer": "releases",
        "attack_success": 0.77412,
        "rounds_left_estimate": None,
        "certificate": {"guess_from": "epsilon"},
        "reports": [],
    }
    return LimitStatement.model_validate(limit | values)


def test_a_number_of_the_settings_has_all_its_digits_and_no_more() -> None:
    assert [exact(value) for value in (3.0, 0.1, 1e-05, 2.5e-07, 1e22)] == ["3", "0.1", "1e-5", "2.5e-7", "1e+22"]
    assert exact_delta(stated(delta=None)) == ""


@pytest.mark.parametrize(
    ("round_number", "answered", "words"),
    [
        (0, 0, "sees the initial model, and this certificate"),
        (1, 0, "sees the model that round 1 released, and this certificate"),
        (1, 1, "sees the answer that round 1 released, and this certificate"),
        (7, 0, "sees the models that rounds 1 to 7 released, and this certificate"),
        (7, 2, "sees the models and answers that rounds 1 to 7 released, and this certificate"),
    ],
)
def test_a_reader_of_releases_sees_those_that_are_counted(round_number: int, answered: int, words: str) -> None:
    assert sees("releases", round_number, answered) == words


def test_the_coordinator_sees_more_than_releases() -> None:
    whole = "all that the coordinator saw in rounds 1 to 2"
    assert sees("coordinator", 2, 0).endswith(whole)
    assert observer_phrase(Observer.COORDINATOR, 2, 0).endswith(whole)
    with pytest.raises(KeyError):
        sees("a stranger", 2, 0)


def test_chances_and_losses_are_rounded_up_in_the_sentence_about_an_attacker() -> None:
    """77.412 % is 77.5 %, and ε 1.2341 is 1.235."""
    words = meaning(stated(), PLAN, 2, 0)
    assert "guesses rightly whether one patient took part with a probability of at most 77.5 % instead of 50 %" in words
    assert "(ε = 1.235, δ = 1e-5)" in words
    assert words.endswith("This holds for every patient, whatever else the attacker knows.")


def test_what_is_not_protected_has_no_chance_of_a_guess() -> None:
    nothing = meaning(stated(state="unbounded", level="client"), PLAN, 2, 0)
    assert nothing.startswith("Nothing is promised to a single hospital")
    more = meaning(stated(spent=None), PLAN, 2, 0)
    assert more.startswith("More was spent than any finite ε covers")


def test_a_warning_of_the_assumption_is_repeated_in_the_sentence() -> None:
    void = "does not hold against whoever sees the rounds' log-moments, which this study shows without noise"
    words = meaning(stated(certificate={"assumption": f"all else; {void}"}), PLAN, 2, 0)
    assert words.endswith(f" It {void}.")


def test_an_average_says_where_its_chance_is_from() -> None:
    exactly = on_average(stated(certificate={"guess_from": "loss-distribution"}))
    assert exactly.startswith("That chance is over all that the plan may release")
    assert "has no loss distribution" in on_average(stated(definition="bayesian"))
    bound = on_average(stated(certificate=None))
    assert "are not known more exactly" in bound
    assert all("on a rare output the attacker may be surer" in words for words in (exactly, bound))


def test_a_budget_is_said_with_what_is_spent_of_it() -> None:
    assert budget_line(stated()) == "patient, classical: ε 1.235 of at most 3 at δ = 1e-5"
    assert budget_line(stated(spent=None)) == "patient, classical: more than any finite ε of at most 3 at δ = 1e-5"
    assert budget_line(stated(epsilon=None, level="client")) == "hospital, classical: not protected"


@pytest.mark.parametrize(
    ("active", "smallest", "largest", "words"),
    [
        (3, None, None, "3 hospitals"),
        (1, None, None, "1 hospital"),
        (2, 2, 4, "2 to 4 hospitals"),
        (9, 1, 1, "1 hospital"),
    ],
)
def test_hospitals_are_those_whose_records_were_used(
    active: int, smallest: int | None, largest: int | None, words: str
) -> None:
    members = CertifiedMembers(active=active, least=smallest, most=largest, roster_sha256="a" * 64, roster_number="1")
    assert hospitals(members) == words


def test_rounds_of_questions_take_no_steps() -> None:
    trained = CertifiedRounds(most=6, charged=4, in_full=0, cancelled=0, steps=8)
    assert training_rounds(trained, 2) == 4
    assert charged_rounds(trained, 2) == "4 charged of at most 6"
    asked = trained.model_copy(update={"charged": 5})
    assert charged_rounds(asked, 2) == "4 of training charged of at most 6, and 1 question"
    assert questions(2) == "2 questions"
