"""The decisions of people at this hospital about the questions of one study, as the hospital's ledger holds them."""

from __future__ import annotations

from pathlib import Path

from client_sdk.errors import LedgerDamaged
from client_sdk.guard.decision import Decision, Subject, Verdict
from client_sdk.guard.decisions import DECISIONS_FILE, decide, decisions_in
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import ApprovalRule
from client_sdk.guard.standing import SubjectStanding, rule_in_force, standing_of


class DecisionReader:
    """The decisions of a hospital, read again when the ledger's file has changed. home: the hospital's directory."""

    def __init__(self, home: Path) -> None:
        self._home, self._files = home, ()
        self._decisions: list[Decision] = []

    def read(self) -> list[Decision]:
        """Return all decisions, the oldest first.

        Raises:
            LedgerDamaged: an entry was changed or removed since it was read last, or the chain is broken.
            LedgerNotWritten: the file cannot be read.
        """
        files = tuple(_stamp(self._home / f"{DECISIONS_FILE}{end}") for end in ("", "-wal"))
        if files != self._files or files == (None, None):
            decisions = decisions_in(self._home)
            # Approvals of earlier versions have a number only once a ledger holds them.
            before = [each for each in self._decisions if each.number]
            if decisions[: len(before)] != before:
                raise LedgerDamaged(
                    f"{self._home / DECISIONS_FILE} lacks decisions that were read from it before: restore it from the "
                    "newest backup"
                )
            self._files, self._decisions = files, decisions
        return self._decisions


class Approvals:
    """The decisions of people here about the questions of a study, by the digest of a question.

    home  the hospital's directory
    rule  of the site policy at hand. The stricter of it and of the policy in force counts
    """

    def __init__(self, home: Path, study: str, rule: ApprovalRule | None = None) -> None:
        self._home, self._study, self._rule = home, study, rule or ApprovalRule()
        self.reader = DecisionReader(home)

    def has(self, sha256: str) -> bool:
        """Return whether as many people as are needed approved the question."""
        return self.standing(sha256).effective is not None

    def denied(self, sha256: str) -> bool:
        """Return whether a person declined the question, and none agreed to it after that."""
        return self.standing(sha256).declined is not None

    def standing(self, sha256: str) -> SubjectStanding:
        """Return how the question stands."""
        decisions = self.reader.read()
        return standing_of(decisions, self._subject(sha256), self._rule.stricter(rule_in_force(decisions)))

    def decide(
        self, sha256: str, *, approved: bool, words: str, person: DecidingPerson | None = None
    ) -> SubjectStanding:
        """Write a person's decision down, durably, with the words that it was about.

        person  who decides. None: the account of this process

        Raises:
            ConfigurationError: the site policy asks for a reason, and none is given.
            LedgerInUse, LedgerDamaged, LedgerNotWritten: no decision is written.
        """
        verdict: Verdict = "agree" if approved else "decline"
        return decide(self._home, self._subject(sha256, words), verdict, person or DecidingPerson.acting(), self._rule)

    def identity(self, sha256: str) -> str | None:
        """Return the name of the approval in charges. None: there is none, or a very early version wrote it."""
        effective = self.standing(sha256).effective
        return None if effective is None else effective.identity

    def _subject(self, sha256: str, words: str = "") -> Subject:
        return Subject("question", self._study, sha256, words)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
