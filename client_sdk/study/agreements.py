"""The agreements of people before a hospital takes part: the site policy, the roster, and the terms of a study."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import ConfigurationError, NotAgreed, WardroundError
from client_sdk.guard.approvals import DecisionReader
from client_sdk.guard.decision import Decision, Subject
from client_sdk.guard.decisions import DecisionLedger
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.standing import SubjectStanding, in_force, rule_in_force, standing_of
from client_sdk.identity import Membership
from client_sdk.study.stay import Stay
from client_sdk.study.waiting import Waiting, Watch
from study_protocol.study.messages import RosterEntry
from study_protocol.wire.signing import canonical_json, decode_public_key, fingerprint, roster_fingerprint

# Between two looks for the decision of another person.
_LOOK_SECONDS = 3.0


def terms_of(membership: Membership, dataset: str, settings_sha256: str) -> Subject:
    """Return what people agree to with a study: its settings, its coordinator's key, and the data set that is used."""
    terms = {
        "study": membership.study,
        "client": membership.client,
        "coordinator_key": membership.coordinator_key,
        "settings_sha256": settings_sha256,
        "dataset": dataset,
    }
    sha256 = hashlib.sha256(canonical_json({"terms": terms})).hexdigest()
    return Subject("terms", membership.study, sha256, f"take part in {membership.study} with data set {dataset}")


def roster_of(study: str, members: tuple[RosterEntry, ...]) -> Subject:
    """Return what people agree to with a roster: the names and keys of its active members."""
    sha256 = roster_fingerprint(study, ((member.client, member.public_key) for member in members))
    return Subject("roster", study, sha256, ", ".join(member.client for member in members))


def coordinator_of(membership: Membership) -> Subject:
    """Return what a person pins with an invitation: the key of the study's coordinator.

    The terms of the study hold the key, too. So no other key takes effect before people have agreed to them.
    """
    sha256 = fingerprint(decode_public_key(membership.coordinator_key))
    return Subject("coordinator", membership.study, sha256, membership.url)


class PeopleMissing(WardroundError):
    """Too few people agreed until this participation had to end."""


@dataclass(frozen=True)
class JoinAgreements:
    """The agreements that one joining needs.

    person  who runs it and has seen the terms. None: an unattended program, whose account is kept. It counts only where
            one person decides alone
    sleep   waits so many seconds
    stay    how long to wait for people
    """

    home: Path
    membership: Membership
    dataset: str
    ledger: HospitalLedger
    policy: SitePolicy
    person: DecidingPerson | None
    watch: Watch
    sleep: Callable[[float], None]
    reader: DecisionReader
    stay: Stay

    def require_policy(self, *, accept_loss: bool) -> None:
        """Wait until the site policy is in force, where people decide together. It writes no entry.

        accept_loss  a person says that decisions are lost

        Raises:
            NotAgreed: a person declined it, or another one has taken effect meanwhile.
            PeopleMissing: too few people agreed in the time of this stay.
            ConfigurationError: the pinned roster is not the one that people here agreed to.
            LedgerDamaged: decisions were removed.
        """
        self.ledger.require_decisions(self.reader.read(), accept_loss=accept_loss)
        # Running the program is no look at a changed policy. It may start again by itself after a person edited it.
        if self._standing(self._policy).rule.people > 1:
            self._wait_for(self._policy, "wardround policy agree")
        self._require_pinned()

    def require_terms(self, settings_sha256: str, *, is_joined: bool) -> None:
        """Write down what the person agrees to, and wait until enough people agree to the terms.

        is_joined  the hospital took part before. Then only a changed policy is written

        Raises:
            NotAgreed: a person declined.
            PeopleMissing: too few people agreed in the time of this stay.
        """
        self._agree_to_policy()
        if not is_joined:
            terms = terms_of(self.membership, self.dataset, settings_sha256)
            self._agree(terms)
            options = "" if self.dataset == "records" else f" --dataset {self.dataset}"
            self._wait_for(terms, f"wardround agree {self.membership.study}{options}")
            self._agree_to_policy()
        decisions = self.reader.read()
        self.ledger.mark_decisions(decisions, rule_in_force(decisions))

    @property
    def _policy(self) -> Subject:
        return Subject.of_policy(self.policy)

    def _agree_to_policy(self) -> None:
        standing = self._standing(self._policy)
        # Another one may have taken effect while people read the terms.
        if standing.rule.people > 1 and standing.effective is None:
            raise NotAgreed(_replaced(self._policy))
        self._agree(self._policy)

    def _agree(self, subject: Subject) -> None:
        """Write the person's agreement, unless it is there or others have to look by themselves.

        Raises:
            NotAgreed: a person declined, and no person runs this program.
        """
        standing, person = self._standing(subject), self.person
        if standing.effective is not None or (standing.rule.people > 1 and person is None):
            return
        if standing.declined is not None and person is None:
            raise NotAgreed(f"{subject} is {standing.in_words}. No data was sent")
        if _has_agreed(person, standing):
            return
        with DecisionLedger.open_in(self.home) as ledger:
            ledger.decide(subject, "agree", person or DecidingPerson.acting(), self.policy.approval)

    def _wait_for(self, subject: Subject, command: str) -> None:
        before = self._in_force(subject)
        while (standing := self._standing(subject)).effective is None:
            if standing.declined is not None:
                raise NotAgreed(f"{subject} is {standing.in_words}. No data was sent")
            if self._in_force(subject) != before:
                raise NotAgreed(_replaced(subject))
            self.watch.waits(Waiting(f"waiting for people here: {subject}: {standing.in_words} (`{command}`)"))
            if self.stay.is_over:
                raise PeopleMissing(f"{subject} is {standing.in_words}. No data was sent")
            self.sleep(self.stay.wait_at_most(_LOOK_SECONDS))
        self.watch.goes_on()

    def _standing(self, subject: Subject) -> SubjectStanding:
        decisions = self.reader.read()
        return standing_of(decisions, subject, self.policy.approval.stricter(rule_in_force(decisions)))

    def _in_force(self, subject: Subject) -> str | None:
        if not subject.has_one_in_force:
            return None
        return in_force(self.reader.read(), subject, self.policy.approval)

    def _require_pinned(self) -> None:
        """Require that the pinned roster is the one in the ledger, where it holds one or people decide together."""
        study, pinned, decisions = self.membership.study, self.membership.pinned, self.reader.read()
        rule = self.policy.approval.stricter(rule_in_force(decisions))
        subject = roster_of(study, pinned or ())
        agreed, sha256 = in_force(decisions, subject, rule), None if pinned is None else subject.sha256
        if sha256 != agreed and (agreed is not None or rule.people > 1):
            raise ConfigurationError(
                f"the pinned roster of {study} is not the one that people here agreed to. Compare its number anew "
                f"(wardround roster show {study}). Then {_so_many(rule.people)} it (wardround roster pin {study} …)"
            )


def require_all_seen(home: Path, decisions: Sequence[Decision]) -> None:
    """Require that the decisions hold all that the ledgers of the hospital's data sets have seen.

    Raises:
        LedgerDamaged: decisions were removed, or a ledger is damaged.
        LedgerNotWritten: a ledger cannot be read.
    """
    for path in sorted((home / "ledgers").glob("*.db")):
        with HospitalLedger.open(path, read_only=True) as ledger:
            ledger.require_decisions(decisions)


def _replaced(subject: Subject) -> str:
    return f"another one took the place of {subject} that join began with: start join again"


def _so_many(people: int) -> str:
    return "pin" if people == 1 else f"{people} people pin"


def _has_agreed(person: DecidingPerson | None, standing: SubjectStanding) -> bool:
    people = (decision.person for decision in standing.agreed if decision.person is not None)
    return person is not None and any(each.is_same(person) for each in people)
