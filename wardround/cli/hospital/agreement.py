"""What `wardround join` shows before anything is written or sent, and the one question that it asks at a terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from wardround.cli.shared.shared import table

if TYPE_CHECKING:
    from client_sdk.study.hospital import StudyProposal


@dataclass(frozen=True)
class Question:
    """Called with what a study asks for. yes: nothing is asked; what the site policy forbids stays forbidden."""

    yes: bool

    def __call__(self, proposal: StudyProposal) -> None:
        """Show it, then ask.

        Raises:
            PolicyRefused: the site policy says no, whatever a person would say.
            NotAgreed: the person at the terminal said no.
        """
        from client_sdk.errors import NotAgreed

        table(f"Study {proposal.study}", ["", ""], terms(proposal), to_errors=True)
        proposal.require_allowed()
        if proposal.joined or self.yes or not at_a_terminal():
            return
        if not typer.confirm("Take part under these terms?", default=False, err=True):
            raise NotAgreed("not joined: nothing was sent")


def at_a_terminal() -> bool:
    """Whether there is a person who could answer."""
    return sys.stdin.isatty()


def terms(proposal: StudyProposal) -> list[list[str]]:
    """What a person has to know before agreeing: the settings in words, and whether people compared the roster."""
    from study_protocol.terms import in_words

    roster = "pinned" if proposal.pinned else "not pinned: nobody has compared who the other hospitals are"
    return [*(list(row) for row in in_words(proposal.settings, mine=True)), ["roster", roster]]
