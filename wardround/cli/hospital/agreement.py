"""The terms that `wardround join` shows before it writes or sends data, and the question that it asks."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from wardround.cli.shared.shared import table

if TYPE_CHECKING:
    from client_sdk.study.joining import StudyProposal


@dataclass(frozen=True)
class Question:
    """A callback that shows a study's terms and asks for agreement.

    yes: do not ask. The site policy still applies.
    """

    yes: bool

    def __call__(self, proposal: StudyProposal) -> None:
        """Show the terms, then ask.

        Raises:
            PolicyRefused: the site policy forbids the study. A person cannot override it.
            NotAgreed: the person at the terminal said no.
        """
        from client_sdk.errors import NotAgreed

        table(f"Study {proposal.study}", ["", ""], terms(proposal), to_errors=True)
        proposal.require_allowed()
        if proposal.joined or self.yes or not at_a_terminal():
            return
        if not typer.confirm("Take part under these terms?", default=False, err=True):
            raise NotAgreed("not joined: no data was sent")


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
    from study_protocol.terms import in_words

    roster = "pinned" if proposal.pinned else "not pinned: this hospital has not compared who the other hospitals are"
    words = in_words(proposal.settings, mine=True, hospitals=proposal.hospitals)
    return [*map(list, words), ["own limit", proposal.own_limit], ["roster", roster]]
