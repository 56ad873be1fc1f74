"""Lines that a rule asks of a document, each with the function that answers it from a certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from study_protocol.documents.card import Section
from study_protocol.documents.phrases import charged_rounds, exact_delta, named_file, training_rounds
from study_protocol.study.certificate import Certificate, CertifiedLimit
from study_protocol.study.limit_words import limit_in_words
from study_protocol.wire.rounded import exact, number, percent

YOURS = "Yours"
Importance = Literal["mandatory", "recommended", "optional"]


@dataclass(frozen=True)
class LineAnswer:
    """An answer to one line.

    text   what follows from the certificate, and from how every study works. Empty: nothing does
    yours  what the reader's own organisation has to write. Empty: nothing
    """

    text: str = ""
    yours: str = ""

    @property
    def in_words(self) -> str:
        """The answer in one text, with the mark of what is missing."""
        return " ".join(filter(None, (self.text, f"{YOURS}: {self.yours}" if self.yours else "")))


@dataclass(frozen=True)
class AskedLine:
    """One line.

    name        as the rule numbers it, such as "3.3.07"
    asks        what it asks, in our words
    importance  as the rule grades it
    """

    name: str
    asks: str
    importance: Importance
    answer: Callable[[Certificate], LineAnswer]


def section_of(title: str, lines: Sequence[AskedLine], stated: Certificate, remarks: tuple[str, ...] = ()) -> Section:
    """Return a section with every line and its answer."""
    rows = tuple((line.name, line.importance, line.asks, line.answer(stated).in_words) for line in lines)
    return Section(title, remarks, ("Line", "Grade", "Asked, in short", "Answer"), rows)


def yours(text: str) -> Callable[[Certificate], LineAnswer]:
    """Return the answer of a line that the reader's own organisation fills in."""
    return lambda _: LineAnswer(yours=text)


def always(text: str, rest: str = "") -> Callable[[Certificate], LineAnswer]:
    """Return the same answer for every certificate. rest: what the reader's own organisation adds."""
    return lambda _: LineAnswer(text, rest)


def bound(stated: Certificate) -> str:
    """Return what the limits promise, each in a sentence with its label."""
    return " ".join(_limit_sentence(limit) for limit in stated.limits)


def rounds(stated: Certificate) -> str:
    """Return how many rounds are charged, of how many."""
    return charged_rounds(stated.rounds, stated.mechanism.steps_per_round)


def released(stated: Certificate) -> str:
    """Return what left, as numbers: models and answers."""
    trained = training_rounds(stated.rounds, stated.mechanism.steps_per_round)
    # The other charged rounds were of questions, which take no step.
    answered = stated.rounds.charged - trained
    models = "1 round of training" if trained == 1 else f"{trained} rounds of training"
    sums = "1 question" if answered == 1 else f"{answered} questions"
    return f"at most one model from each of {models}, and at most one answer to each of {sums}"


def file(stated: Certificate) -> str:
    """Return the one file that people use."""
    model = named_file(stated)
    return "no model is named" if model is None else f"{model.words}, {model.bytes} bytes, SHA-256 {model.sha256}"


def limit_rows(stated: Certificate) -> tuple[tuple[str, ...], ...]:
    """Return a row for each limit: whom it protects, ε, the limit, δ, and the chance of a right guess."""
    return tuple(
        (
            f"each {'patient' if limit.level == 'instance' else 'hospital'}, {limit.definition}",
            "not protected" if limit.epsilon is None else number(limit.spent),
            "–" if limit.epsilon is None else exact(limit.epsilon),
            exact_delta(limit) or "–",
            "100 %" if limit.attack_success is None else percent(limit.attack_success),
        )
        for limit in stated.limits
    )


def _limit_sentence(limit: CertifiedLimit) -> str:
    unit = f"Each {'patient' if limit.level == 'instance' else 'hospital'}, {limit.definition}:"
    if limit.epsilon is None:
        return f"{unit} not protected by this study's noise."
    chance = "" if limit.attack_success is None else f", a right guess at most {percent(limit.attack_success)}"
    return f"{unit} {limit_in_words(limit)}{chance}."
