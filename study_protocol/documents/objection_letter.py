"""The letter on a patient's objection: what happens now, where the patient may have been, and what that reveals.

It holds no identifier. It says "may", because whom a hospital draws for a step and what a sum holds are secrets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Literal

from study_protocol.documents.card import Section
from study_protocol.documents.patient_bound import PatientBound, total_bound
from study_protocol.documents.sectioned import SectionedDocument
from study_protocol.wire.rounded import number, percent, significant

YOURS = "Yours"
RoundKind = Literal["training", "question", "evaluation"]
_KINDS: tuple[tuple[RoundKind, str], ...] = (
    ("training", "rounds of training"),
    ("question", "questions about patients, in rounds"),
    ("evaluation", "evaluations of a released model, in rounds"),
)


@dataclass(frozen=True)
class LetterRound:
    """A round in which a patient may have been. day: in ISO 8601, empty if no part of it was made ready to leave."""

    number: int
    kind: RoundKind
    day: str


@dataclass(frozen=True)
class LetterStudy:
    """One study on one data set.

    rounds  those in which the patient may have been
    lost    rounds 1 to so many, of which a lost ledger knew more. 0: none
    bounds  what the study reveals of one patient
    source  what the bounds were computed from
    """

    study: str
    dataset: str
    rounds: tuple[LetterRound, ...]
    lost: int
    bounds: tuple[PatientBound, ...]
    source: str


@dataclass(frozen=True)
class ObjectionLetter:
    """The content of one letter.

    number   of the newest entry in the hospital's ledger
    since    when the patient first objected, in ISO 8601
    renewed  when the patient was put back on the list after having left it, in ISO 8601. Empty: never
    by       the person who recorded it
    presence       a sentence on whether the records hold the patient
    local_limits   sentences on the hospital's own limits
    unread         data sets whose ledger could not be read when the patient objected
    issued         when this letter is written
    """

    number: int
    since: str
    by: str
    presence: str
    studies: tuple[LetterStudy, ...]
    local_limits: tuple[str, ...]
    unread: tuple[str, ...]
    issued: datetime
    renewed: str = ""

    def document(self) -> SectionedDocument:
        """Return the letter as a document."""
        # The first table is for people: a program does not know whom the letter is for.
        sections = (
            Section("To", rows=_TO, columns=("What", "To be filled in by the hospital")),
            Section("What happens now", lines=self._now()),
            self._rounds(),
            self._bounds(),
            Section("What is not changed, and why", lines=self._unchanged()),
        )
        running = f"Objection {self.number}, letter of {self.issued:%Y-%m-%d}"
        return SectionedDocument("Letter on an objection", f"objection {self.number}", running, self.issued, sections)

    def _now(self) -> tuple[str, ...]:
        recorded = f"The objection was recorded on {moment(self.since)} by {self.by}, under number {self.number}."
        if self.renewed:
            recorded = (
                f"The objection was recorded on {moment(self.since)}. Later the list did not name the patient any "
                f"more, and rounds may have read the records again. It was renewed on {moment(self.renewed)} by "
                f"{self.by}, under number {self.number}."
            )
        return (
            recorded,
            "From then on no new round and no new question at this hospital reads records of this patient. A round "
            "that had begun by then is finished as it began, and it is in the list below.",
            "The patient is on this hospital's list of patients who are left out. The list holds for all studies of "
            "the hospital that use this site policy, also for later ones.",
            self.presence,
        )

    def _rounds(self) -> Section:
        lines: list[str] = []
        if not any(study.rounds or study.lost for study in self.studies):
            lines.append("In none: no study of this hospital had begun a round by then.")
        else:
            lines.append(
                "The patient may have been in the rounds below, if the records of that data set held the patient. "
                "Whether the patient was is not recorded: a round can draw patients at random, in secret, and only "
                "sums with noise leave the hospital."
            )
        # More rounds than there were is a safe answer, fewer is not.
        lines += [
            f"The ledger of data set {dataset} could not be read when the patient objected: later rounds of it may be "
            "listed, too."
            for dataset in self.unread
        ]
        rows = tuple(row for study in self.studies for row in _rows(study))
        columns = ("Study", "Data set", "What", "Rounds", "When (UTC)")
        return Section("Where the patient may have been", tuple(lines), columns, rows)

    def _bounds(self) -> Section:
        title = "What this reveals of the patient at most"
        studies = [study for study in self.studies if study.rounds or study.lost]
        if not studies:
            return Section(title, ("Nothing: no study had read records here.", *self.local_limits))
        lines = [
            "Every study adds noise, so that its models and answers are nearly as likely with this patient as without. "
            "ε bounds the difference. The probability says what that means: somebody who sees all that the study "
            "released, who knows the records of all other patients, and who holds both for equally likely, guesses "
            "rightly whether this patient took part with at most this probability. Without any release it is 50 %."
        ]
        rows: list[tuple[str, ...]] = []
        for study in studies:
            rows += [_bound_row(study.study, bound, study.source) for bound in study.bounds]
            if not study.bounds:
                lines.append(f"Study {study.study}: no bound is known here. {study.source}")
        if len(studies) > 1:
            remarks, row = _together(studies)
            lines += remarks
            rows += row
        columns = ("Study", "Number", "ε at most", "δ", "Right guess at most", "For whom, and from what")
        return Section(title, (*lines, *self.local_limits), columns, tuple(rows))

    def _unchanged(self) -> tuple[str, ...]:
        if not any(study.rounds or study.lost for study in self.studies):
            return ("Nothing was released from records of this hospital. There is nothing that could stay.",)
        return (
            "Models and answers that were released before stay as they are. The objection does not change them, and "
            "nothing is taken back from people who have them.",
            "No record of the patient is in them as such. They were made from sums over many patients, with noise. The "
            "bound above holds for what was released, for any later use of it, and for good.",
            "The hospital's records of treatment are another matter, which this letter does not touch.",
        )


def _together(studies: Sequence[LetterStudy]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return the sentences about several studies, and the row of their sum if each has a bound."""
    remark = "Several studies together reveal more of a patient than each of them: their losses add up."
    total = total_bound([study.bounds for study in studies])
    if total is None:
        return [remark, "For all of them together no bound is known here, because one of them has none."], []
    return [remark], [_bound_row(f"all {len(studies)} together", total, "the rows above")]


_TO = (
    ("Name and address of the patient", YOURS),
    ("Contact of the data protection officer", YOURS),
    ("Place, date, signature", YOURS),
)


def moment(at: str) -> str:
    """Return a time in ISO 8601 as people read it."""
    return f"{at[:16].replace('T', ' ')} UTC"


def spans(numbers: Iterable[int]) -> str:
    """Return round numbers with spans joined: "1 to 12, 14"."""
    ordered = sorted(set(numbers))
    runs = (list(run) for _, run in groupby(enumerate(ordered), key=lambda pair: pair[1] - pair[0]))
    ends = ((run[0][1], run[-1][1]) for run in runs)
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ends)


def _rows(study: LetterStudy) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    # Which of these rounds there were, and when, the lost ledger knew.
    if study.lost:
        lost = f"1 to {study.lost}" if study.lost > 1 else "1"
        rows.append((study.study, study.dataset, "of a lost ledger, at most", lost, "not known"))
    for kind, words in _KINDS:
        rounds = [each for each in study.rounds if each.kind == kind]
        if rounds:
            numbers = spans(each.number for each in rounds)
            rows.append((study.study, study.dataset, words, numbers, _days([each.day for each in rounds])))
    return rows


def _days(days: Sequence[str]) -> str:
    dates = sorted(filter(None, days))
    if not dates:
        return "not finished by then"
    return dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"


def _bound_row(subject: str, bound: PatientBound, source: str) -> tuple[str, ...]:
    return (
        subject,
        bound.name,
        number(bound.epsilon),
        significant(bound.delta),
        percent(bound.guess),
        f"{bound.condition} From {source}.",
    )
