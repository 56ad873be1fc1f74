"""The terms that `wardround join` shows before it writes or sends data, and the question that it asks."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from wardround.cli.shared.shared import table

if TYPE_CHECKING:
    from client_sdk.study.joining import StudyProposal
    from client_sdk.study.snapshot_records import FoundRecords


@dataclass(frozen=True)
class Question:
    """A callback that shows a study's terms and asks for agreement.

    Attributes:
        yes: do not ask. The site policy still applies.
        records: those that take part.
        mapping: digest of the mapping that is applied to them, and what it changed, in words.
    """

    yes: bool
    records: FoundRecords | None = None
    mapping: tuple[str, str] | None = None

    def __call__(self, proposal: StudyProposal) -> None:
        """Show the terms, then ask.

        Raises:
            PolicyRefused: the site policy forbids the study. A person cannot override it.
            NotAgreed: the person at the terminal said no.
        """
        from client_sdk.errors import NotAgreed

        table(f"Study {proposal.study}", ["", ""], terms(proposal) + self._records_in_words(proposal), to_errors=True)
        proposal.require_allowed()
        if proposal.joined or self.yes or not at_a_terminal():
            return
        if not typer.confirm("Take part under these terms?", default=False, err=True):
            raise NotAgreed("not joined: no data was sent")

    def _records_in_words(self, proposal: StudyProposal) -> list[list[str]]:
        """Return rows on the records. None of it is sent."""
        snapshot, rows = None if self.records is None else self.records.snapshot, list[list[str]]()
        if snapshot is not None:
            day, record = snapshot.at[:10], snapshot.record
            rows.append(
                ["records", f"snapshot {snapshot.name} of {day}, by {snapshot.person}, {record.patients} patients"]
            )
            rows.append(["SHA-256 of the records", f"{record.sha256}, which stays here"])
            rows += [["SHA-256 of the query", record.query_sha256]] if record.query_sha256 else []
            if record.cohort_sha256 is not None:
                rows.append(["cohort", _cohort_in_words(proposal, record.cohort_sha256)])
        if self.mapping is not None:
            rows.append(["SHA-256 of the mapping", "\n".join(self.mapping)])
        return rows


def _cohort_in_words(proposal: StudyProposal, of_snapshot: str) -> str:
    from record_sources.snapshot.record import cohort_json

    cohort = proposal.settings.cohort
    if cohort is not None and hashlib.sha256(cohort_json(cohort).encode()).hexdigest() == of_snapshot:
        return "the study's"
    return "NOT the study's: the snapshot was taken for other settings. Take one with --settings of this study"


@dataclass(frozen=True)
class RecordsQuestion:
    """A callback that asks whether other records than yesterday's are accepted.

    yes: they are. unattended: ask no person.
    """

    yes: bool
    unattended: bool

    def __call__(self, difference: str) -> bool:
        """Return whether a person accepts the change."""
        if self.yes or self.unattended or not at_a_terminal():
            return self.yes
        return typer.confirm(f"{difference}. Go on with them?", default=False, err=True)


def at_a_terminal() -> bool:
    """Return whether standard input is a terminal, so that a person can answer."""
    return sys.stdin.isatty()


def terms(proposal: StudyProposal) -> list[list[str]]:
    """Return the rows that a person has to read before agreeing: the settings in words and the roster's state."""
    from study_protocol.documents.kept_windows import kept_in_words
    from study_protocol.terms import in_words

    roster = "pinned" if proposal.pinned else "not pinned: this hospital has not compared who the other hospitals are"
    words = in_words(proposal.settings, mine=True, hospitals=proposal.hospitals)
    return [
        *map(list, words),
        *(["monitoring", line] for line in kept_in_words(proposal.settings)),
        ["own limit", proposal.own_limit],
        ["roster", roster],
        ["digest of these terms", proposal.terms.sha256],
    ]
