"""The letter on an objection: its rounds and numbers, what it never says, and its PDF."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from study_protocol.documents.objection_letter import LetterRound, LetterStudy, ObjectionLetter, spans
from study_protocol.documents.patient_bound import PatientBound
from tests.factories.certificates import text_of

WHEN = datetime(2026, 11, 27, 9, 30, tzinfo=UTC)
BOUND = PatientBound("classical", 1.23401, 1e-6, 0.77421, "It holds for every patient.")
NEVER = re.compile(r"eras|delet|unlearn|forgot", re.IGNORECASE)


def study(**values: Any) -> LetterStudy:
    rounds = tuple(LetterRound(number, "training", f"2026-11-0{number}") for number in (1, 2, 3, 5))
    whole: dict[str, Any] = {
        "study": "sepsis",
        "dataset": "icu",
        "rounds": (*rounds, LetterRound(4, "question", "2026-11-04")),
        "lost": 0,
        "bounds": (BOUND,),
        "source": "the certificate up to round 5",
    }
    return LetterStudy(**(whole | values))


def letter(*studies: LetterStudy, **values: Any) -> ObjectionLetter:
    whole: dict[str, Any] = {
        "number": 3,
        "since": "2026-11-26T08:00:00+00:00",
        "by": "Ada (account ada)",
        "presence": "Not looked up.",
        "studies": studies,
        "local_limits": (),
        "unread": (),
        "issued": WHEN,
    }
    return ObjectionLetter(**(whole | values))


def test_rounds_and_numbers_are_in_it_and_rounded_up() -> None:
    text = letter(study()).document().to_markdown()
    assert "| sepsis | icu | rounds of training | 1 to 3, 5 | 2026-11-01 to 2026-11-05 |" in text
    assert "| sepsis | icu | questions about patients, in rounds | 4 | 2026-11-04 |" in text
    assert "| sepsis | classical | 1.235 | 1e-06 | 77.5 % | It holds for every patient." in text
    assert "recorded on 2026-11-26 08:00 UTC by Ada" in text
    assert "may have been in the rounds below" in text


@pytest.mark.parametrize(
    "content",
    [
        letter(study()),
        letter(study(rounds=(), lost=0)),
        letter(study(rounds=(), lost=7), unread=("icu",)),
        letter(study(bounds=(), source="Write it again."), local_limits=("This hospital's own limit is ε 3.",)),
    ],
    ids=["rounds", "none", "lost", "unknown"],
)
def test_it_never_promises_that_something_released_goes(content: ObjectionLetter) -> None:
    text = content.document().to_markdown()
    assert NEVER.search(text) is None
    if any(one.rounds or one.lost for one in content.studies):
        assert "Models and answers that were released before stay as they are" in text
        assert "The bound above holds for what was released, for any later use of it, and for good" in text
    else:
        assert "In none: no study of this hospital had begun a round by then." in text


def test_losses_of_several_studies_are_added_up() -> None:
    """A patient of two studies has both losses against somebody who sees both."""
    other = study(study="stroke", bounds=(replace(BOUND, epsilon=2.0),))
    text = letter(study(), other).document().to_markdown()
    # attack_success of (3.23401, 2e-6), by hand.
    guess = 100 * (math.exp(3.23401) + 2e-6) / (1 + math.exp(3.23401))
    assert f"| all 2 together | classical, added up | 3.235 | 2.001e-06 | {math.ceil(10 * guess) / 10} % |" in text
    assert "sees all that the study released" in text
    alone = letter(study(), study(study="stroke", rounds=())).document().to_markdown()
    assert "together" not in alone
    unknown = letter(study(), study(study="stroke", bounds=(), source="Write it again.")).document().to_markdown()
    assert "For all of them together no bound is known here" in unknown
    assert "added up |" not in unknown


def test_lost_and_unread_ledgers_are_named() -> None:
    text = letter(study(rounds=(), lost=7), unread=("icu",)).document().to_markdown()
    assert "| sepsis | icu | of a lost ledger, at most | 1 to 7 | not known |" in text
    assert "The ledger of data set icu could not be read" in text


@given(st.sets(st.integers(1, 60), min_size=1))
def test_spans_name_exactly_the_rounds(numbers: set[int]) -> None:
    named: set[int] = set()
    for part in spans(numbers).split(", "):
        first, _, last = part.partition(" to ")
        named |= set(range(int(first), int(last or first) + 1))
    assert named == numbers


def test_the_pdf_has_the_same_words_and_repeats() -> None:
    report = letter(study(study="s" * 60)).document()
    pdf = report.to_pdf()
    assert report.to_pdf() == pdf
    text = " ".join(text_of(pdf).split())
    assert "1.235" in text
    assert "77.5 %" in text
    assert "stay as they are" in text
