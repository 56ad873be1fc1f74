"""A hospital: enrol once, then join studies.

hospital = Hospital.enrol("https://study.example.org", token, directory="wardround-hospital")
outcome = hospital.join("sepsis", "logistic-regression", data)
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from client_sdk.api.client import Client, ServerClock, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.guard.decision import Decision, Subject, Verdict
from client_sdk.guard.decisions import decide, decisions_in
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.ledger_views import RecordsOrigin
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import ApprovalRule, SitePolicy
from client_sdk.guard.standing import SubjectStanding
from client_sdk.identity import Identity, Membership
from client_sdk.study.agreements import coordinator_of
from client_sdk.study.enrolment import enrol, rotate
from client_sdk.study.events import OnRound
from client_sdk.study.joining import Agree, Computing, Joining, Listeners, LocalTerms, StudyProposal, proposal_of
from client_sdk.study.moving import moved
from client_sdk.study.same_records import OnChangedRecords
from client_sdk.study.waiting import OnWait
from private_learning.records import Records, records_of
from study_protocol.randomness.source import Randomness

if TYPE_CHECKING:
    from client_sdk.study.participation import Outcome
    from private_learning.tasks import Task
    from private_learning.tasks.backbone_file import BackboneFile

_LOG = logging.getLogger(__name__)
# A hospital that takes part never gives up: networks come back.
PATIENCE_SECONDS = math.inf


class Hospital:
    """One identity in one directory: its key, its memberships, its ledgers, its site policy.

    connection  turns an address into the way it is dialled (proxy, private CA). The default asks for https
    transport, clock, sleep   replace network and time (tests)
    """

    def __init__(
        self,
        identity: Identity,
        *,
        connection: Callable[[str], Connection] | None = None,
        transport: Callable[[Connection], Transport] = Transport,
        clock: ServerClock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.identity, self.directory = identity, identity.directory
        self._connection = connection or _patient
        self._transport, self._clock, self._sleep = transport, clock or ServerClock(), sleep

    @classmethod
    def open(
        cls,
        directory: str | Path,
        *,
        connection: Callable[[str], Connection] | None = None,
        transport: Callable[[Connection], Transport] = Transport,
    ) -> Self:
        """The hospital whose identity lies in `directory`.

        Raises:
            KeyFileError: no hospital enrolled here, or the key file is readable by others.
        """
        hospital = cls(Identity.open(Path(directory)), connection=connection, transport=transport)
        hospital.erase_expired()
        return hospital

    @classmethod
    def enrol(
        cls,
        url: str,
        token: str,
        *,
        directory: str | Path,
        connection: Callable[[str], Connection] | None = None,
        transport: Callable[[Connection], Transport] = Transport,
        person: DecidingPerson | None = None,
    ) -> Self:
        """Exchange an invitation token for a membership. It makes the identity key if there is none. Repeatable.

        person  who pins the coordinator's key with it. None: the account of this process

        Raises:
            ConfigurationError: not a token.
            NotTrusted: the coordinator that answered is not the one that made the token.
            ApiError: the invitation is unknown, used or expired.
        """
        hospital = cls(Identity.create(Path(directory)), connection=connection, transport=transport)
        with hospital._client(url) as client:
            membership = enrol(client, hospital.identity, token)
        decide(
            hospital.directory, coordinator_of(membership), "agree", person or DecidingPerson.acting(), ApprovalRule()
        )
        hospital.identity.remember(_with_pin(membership, hospital.identity.memberships()))
        return hospital

    def client(self, study: str) -> Client:
        """Return a client that signs as this hospital in `study`, for any call of the API that a hospital may make."""
        membership = self.identity.membership(study)
        return self._client(membership.url, self._signature(membership), membership.coordinator_key)

    def join(
        self,
        study: str,
        task: str | Task | None,
        data: Records | Any,
        *,
        device: str = "auto",
        bfloat16: bool = False,
        dataset: str = "records",
        data_version: str = "1",
        policy: SitePolicy | None = None,
        accept_lost_ledger: bool = False,
        accepts_records: OnChangedRecords | None = None,
        checkpoint_seconds: float = 60.0,
        on_round: OnRound | None = None,
        on_wait: OnWait | None = None,
        agree: Agree | None = None,
        randomness: Randomness | None = None,
        backbone: BackboneFile | None = None,
        feature_cache: bool = True,
        slot: float | None = None,
        origin: RecordsOrigin | None = None,
        one_round_within: float | None = None,
        person: DecidingPerson | None = None,
    ) -> Outcome:
        """Take part in `study` until it ends, or in at most one round.

        task  the name that the study must use, a Task of this hospital's own, or None: the task that the study names
        data  Table, Examples, or what `records_of` takes, such as a data frame whose rows are patients of their own. Of
              each patient at most as many rows as the study allows. Text tables are read by a declared format

        The other arguments are described at `LocalTerms`, `Computing` and `Listeners` in `client_sdk.study.joining`.

        Raises:
            PolicyRefused, OwnBudgetExceeded: the site policy forbids the study, or leaves no room for a first round.
            ConfigurationError, DataError, TaskError: before anything is sent or computed.
            NotAgreed: a person here declined the study's terms or the site policy.
            RecordsChanged: they are not those that studies on this data set have used, and that is not accepted.
            LedgerInUse: another process works on this data set.
            WardroundError: and as `Participation.run` raises.
        """
        from private_learning.training.devices import devices_of

        membership, rules = self.identity.membership(study), policy or SitePolicy.in_force(self.directory)
        lasting = origin, one_round_within, person
        terms = LocalTerms(rules, dataset, data_version, accept_lost_ledger, slot, accepts_records, *lasting)
        computing = Computing(device, bfloat16, checkpoint_seconds, randomness, backbone, feature_cache)
        devices_of(device)
        self.erase_expired()
        listeners, records = Listeners(agree, on_round, on_wait), records_of(data)
        with HospitalLedger.open(ledger_path(self.directory, dataset)) as ledger, self.client(study) as client:
            return Joining(self.identity, membership, client, ledger, terms, computing, listeners).run(task, records)

    def proposal(self, study: str, dataset: str = "records", policy: SitePolicy | None = None) -> StudyProposal:
        """Return what a study asks for, as `join` shows it to the person who runs it. `terms` is what to agree to.

        Raises:
            PolicyRefused, OwnBudgetExceeded: this hospital's rules say no.
            ConfigurationError: there is no ledger of the data set yet. `join` and `data check --confirm` make it.
        """
        membership, rules = self.identity.membership(study), policy or SitePolicy.in_force(self.directory)
        path = ledger_path(self.directory, dataset)
        with HospitalLedger.open(path, read_only=True) as ledger, self.client(study) as client:
            proposal = proposal_of(client.study(study), membership, ledger, rules, dataset)
            proposal.require_allowed()
            return proposal

    def decisions(self) -> list[Decision]:
        """Return what people here decided, the oldest first. Raises LedgerDamaged: the chain is broken."""
        return decisions_in(self.directory)

    def decide(
        self, subject: Subject, verdict: Verdict, person: DecidingPerson, policy: SitePolicy | None = None
    ) -> SubjectStanding:
        """Write a person's decision into the hospital's ledger, and return how its subject stands now.

        subject  `proposal(…).terms`, `Subject.of_policy(policy)`, or `Subject.of_question(query)`. A roster is pinned
                 with `pin_roster`
        verdict  "agree", "decline", or "withdraw": take an agreement back before enough people have agreed
        policy   the site policy at hand. None: as for `join`

        Raises:
            ConfigurationError: no agreement waits that it declines or withdraws, or the policy asks for a reason.
            LedgerInUse, LedgerDamaged, LedgerNotWritten: no decision is written.
        """
        rules = policy or SitePolicy.in_force(self.directory)
        return decide(self.directory, subject, verdict, person, rules.approval)

    def move(self, study: str, url: str) -> None:
        """Dial another address from now on, where the same coordinator answers. The same address again is no change.

        Raises:
            NotTrusted: another coordinator answers there. The address of before stays.
            ApiError, ConnectionFailed, UnexpectedAnswer: likewise.
        """
        for membership in moved(self.identity, self.identity.membership(study), url, self._client):
            _LOG.info("study %s: the address of its coordinator is now %s", membership.study, membership.url)

    def erase_expired(self) -> None:
        """Erase the secrets of expired masked sessions, of every study. `open` and `join` do so, too."""
        folders = list(self.directory.glob("outbox/*/secure-sum"))
        if folders:
            from client_sdk.secure_sum.store import erase_expired

            for folder in folders:
                erase_expired(folder, int(self._clock.read()))

    def rotate_key(self) -> list[str]:
        """Set a new identity key in every study. The other hospitals that pinned the roster must pin it anew.

        Returns the studies that took it. Raises as `client_sdk.study.enrolment.rotate`. Run again, it finishes.
        """
        studies = rotate(self.identity, self._client)
        self.identity = Identity.open(self.directory)
        return studies

    def _signature(self, membership: Membership) -> Signature:
        return Signature(self.identity.key, membership.client, membership.study, membership.origin)

    def _client(self, url: str, credentials: Signature | None = None, pinned: str | None = None) -> Client:
        connection = self._connection(url)
        return Client(
            connection,
            credentials,
            coordinator_key=pinned,
            transport=self._transport(connection),
            clock=self._clock,
            sleep=self._sleep,
        )

    def __repr__(self) -> str:
        return f"Hospital({self.identity!r})"


def _patient(url: str) -> Connection:
    return Connection(url=url.rstrip("/"), patience_seconds=PATIENCE_SECONDS)


def _with_pin(membership: Membership, earlier: Iterable[Membership]) -> Membership:
    """Return the membership with the roster that was pinned in it before: enrolling may be repeated."""
    same = ("study", "client", "coordinator_key")
    for each in earlier:
        if all(getattr(each, name) == getattr(membership, name) for name in same):
            return membership.model_copy(update={"pinned": each.pinned})
    return membership
