"""A hospital: enrol once, then join studies.

hospital = Hospital.enrol("https://study.example.org", token, directory="wardround-hospital")
outcome = hospital.join("sepsis", "logistic-regression", data)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from client_sdk.api.client import Client, ServerClock, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.data import Records, records_of
from client_sdk.errors import BadAssignment, ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import Charge, SitePolicy
from client_sdk.identity import Identity, Membership
from client_sdk.protocol.randomness.source import Randomness, SecureRandomness
from client_sdk.protocol.study.bounds import largest_classical
from client_sdk.protocol.study.messages import Study
from client_sdk.protocol.study.settings import StudySettings
from client_sdk.study.enrolment import enrol, rotate
from client_sdk.study.events import OnRound
from client_sdk.study.evidence import Evidence
from client_sdk.study.verifier import rounds_received

if TYPE_CHECKING:
    from client_sdk.protocol.study.training import Training
    from client_sdk.study.participation import Outcome
    from client_sdk.tasks import Task, TaskDataset
    from client_sdk.training import LocalTraining

_LOG = logging.getLogger(__name__)
PATIENCE_SECONDS = 24 * 3600.0


class Hospital:
    """One identity in one directory: its key, its memberships, its ledgers, its site policy.

    connection  turns an address into the way it is dialled (proxy, private CA); the default asks for https
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
            KeyFileError: nobody enrolled here, or the key file is readable by others.
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
    ) -> Self:
        """Exchange an invitation token for a membership; makes the identity key if there is none. Repeatable.

        Raises:
            ConfigurationError: not a token.
            NotTrusted: the coordinator that answered is not the one that made the token.
            ApiError: the invitation is unknown, used or expired.
        """
        hospital = cls(Identity.create(Path(directory)), connection=connection, transport=transport)
        with hospital._client(url) as client:
            hospital.identity.remember(enrol(client, hospital.identity, token))
        return hospital

    def client(self, study: str) -> Client:
        """A client that signs as this hospital in `study`; any call of the API a hospital may make."""
        membership = self.identity.membership(study)
        return self._client(membership.url, self._signature(membership))

    def join(
        self,
        study: str,
        task: str | Task | None,
        data: Records | Any,
        *,
        device: str = "cpu",
        dataset: str = "records",
        policy: SitePolicy | None = None,
        accept_lost_ledger: bool = False,
        checkpoint_seconds: float = 60.0,
        on_round: OnRound | None = None,
        agree: Agree | None = None,
        randomness: Randomness | None = None,
    ) -> Outcome:
        """Take part in `study` until it ends.

        task     the name that the study must use, a Task of this hospital's own, or None: whatever the study names
        data     Table, Examples, or what `records_of` takes; of each patient at most as many rows as the study allows
        device   of torch
        dataset  names the records: all studies that use the same ones share one ledger
        policy   the site policy; by default `policy.toml` in the hospital's directory, else the strict one
        accept_lost_ledger  a person says that this data set's ledger is lost: earlier rounds are charged at their worst
        checkpoint_seconds  between two checkpoints of a round of several local steps, at least
        agree  called before anything is written or sent, with what the study asks for; what it raises is the answer no
        on_round  called after every round that was answered, with a `RoundEvent`; what it raises ends the participation
        randomness  of batches, noise and accounting sample; None: cryptographic, keyed by the operating system

        Raises:
            ConfigurationError, DataError, TaskError: before anything is asked of the coordinator or computed.
            LedgerInUse: another process works on this data set.
            and as `Participation.run`.
        """
        # Torch, which only training needs: enrolling, rotating and asking start in a third of the time without.
        from client_sdk.study.participation import Participation

        membership, rules = self.identity.membership(study), policy or SitePolicy.in_force(self.directory)
        _require_device(device)
        self.erase_expired()
        with HospitalLedger.open(ledger_path(self.directory, dataset)) as ledger, self.client(study) as client:
            # 1. See what the study asks for.
            settings = _settings_shown(client.study(study), ledger, membership)
            # 2. Make the training, of the patients whom the policy does not leave out.
            training = _training(
                task, data, rules, settings, randomness, device, checkpoint_seconds, party=membership.client
            )
            # 3. Agree to it, and freeze it.
            _warn(rules, settings, records=len(training.dataset), pinned=membership.pinned is not None)
            if agree is not None:
                pinned = membership.pinned is not None
                agree(Proposal(study, dataset, settings, rules, pinned, ledger.opened(study) is not None))
            _freeze(settings, ledger, membership, dataset)
            # 4. Charge what a lost ledger does not know.
            if accept_lost_ledger:
                _accept_loss(client, ledger, membership, settings)
            # 5. Take part.
            outbox, evidence = self.directory / "outbox" / study, Evidence(self.directory / "evidence", study)
            return Participation(client, membership, ledger, rules, training, dataset, outbox, evidence, on_round).run()

    def erase_expired(self) -> None:
        """Erase the secrets of expired masked sessions, of every study. `open` and `join` do so, too."""
        folders = list(self.directory.glob("outbox/*/secure-sum"))
        if folders:
            from client_sdk.secure_sum.store import erase_expired

            for folder in folders:
                erase_expired(folder, int(self._clock.read()))

    def rotate_key(self) -> list[str]:
        """A new identity key in every study; the other hospitals that pinned the roster must pin it anew.

        Returns the studies that took it. Raises as `client_sdk.study.enrolment.rotate`; run again, it finishes.
        """
        taken = rotate(self.identity, self._client)
        self.identity = Identity.open(self.directory)
        return taken

    def _signature(self, membership: Membership) -> Signature:
        return Signature(self.identity.key, membership.client, membership.study, membership.origin)

    def _client(self, url: str, credentials: Signature | None = None) -> Client:
        connection = self._connection(url)
        return Client(
            connection, credentials, transport=self._transport(connection), clock=self._clock, sleep=self._sleep
        )

    def __repr__(self) -> str:
        return f"Hospital({self.identity!r})"


def _patient(url: str) -> Connection:
    return Connection(url=url.rstrip("/"), patience_seconds=PATIENCE_SECONDS)


@dataclass(frozen=True)
class Proposal:
    """What a study asks for, before this hospital takes part.

    pinned  the roster was compared and pinned;  joined  this hospital agreed to these settings before
    """

    study: str
    dataset: str
    settings: StudySettings
    policy: SitePolicy
    pinned: bool
    joined: bool

    def require_allowed(self) -> None:
        """Raises PolicyRefused: the site policy says no."""
        self.policy.check(self.study, self.dataset, self.settings, roster_pinned=self.pinned)


Agree: TypeAlias = Callable[[Proposal], None]


def _warn(rules: SitePolicy, settings: StudySettings, *, records: int, pinned: bool) -> None:
    """What nobody else may see, such as how many records there are, is said here and never sent."""
    _, delta = largest_classical(settings)
    if delta * records > 1:
        _LOG.warning(
            "delta %g is larger than 1 over the number of records here: at this delta a guarantee allows that some "
            "patient's record is given away whole; ask the study for a smaller delta",
            delta,
        )
    if settings.privacy.masking is not None and not pinned and not rules.needs_pin(settings):
        _LOG.warning(
            'THE ROSTER IS NOT PINNED (unpinned_roster = "laboratory"): whoever runs the coordinator can make up the '
            "other hospitals and read this one's values off the sums. For laboratories only"
        )


def _settings_shown(shown: Study, ledger: HospitalLedger, membership: Membership) -> StudySettings:
    """The study's settings: those frozen when the hospital first joined, also if the coordinator forgets."""
    # Computed here: every assignment is held against this digest.
    digest = shown.settings.digest()
    if digest != shown.settings_sha256:
        raise BadAssignment("the study's settings do not have the digest that the coordinator names")
    opened = ledger.opened(membership.study)
    joined = None if opened is None else (opened["settings_sha256"], opened["coordinator_key"])
    if joined not in (None, (digest, membership.coordinator_key)):
        raise BadAssignment("the study's settings or its coordinator are not those that this hospital joined under")
    return shown.settings


def _freeze(settings: StudySettings, ledger: HospitalLedger, membership: Membership, dataset: str) -> None:
    if ledger.opened(membership.study) is None:
        facts = {"client": membership.client, "dataset": dataset, "settings_sha256": settings.digest()}
        ledger.open_study(membership.study, facts | {"coordinator_key": membership.coordinator_key})


def _require_device(device: str) -> None:
    """Before anything is paid for."""
    import torch

    try:
        torch.zeros(1, device=device)
    # AssertionError: a PyTorch that was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"device {device!r} cannot be used here: {reason}") from error


def _training(
    task: str | Task | None,
    data: Any,
    rules: SitePolicy,
    settings: StudySettings,
    randomness: Randomness | None,
    device: str,
    checkpoint_seconds: float,
    *,
    party: str,
) -> LocalTraining:
    """The study's training on these records, found possible before any round is paid for."""
    from client_sdk.training import LocalTraining

    chosen = _task(task, settings.training)
    records = _records(chosen, data, rules, settings.training)
    coins = randomness or SecureRandomness()
    training = LocalTraining(chosen, records, settings, coins, device, checkpoint_seconds, party)
    training.require_trainable()
    return training


def _task(wanted: str | Task | None, training: Training) -> Task:
    from client_sdk import tasks

    if isinstance(wanted, tasks.Task):
        return wanted
    if wanted is not None and wanted != training.task:
        raise ConfigurationError(f"the study trains task {training.task!r}, not {wanted!r}")
    return tasks.load(training.task, training.task_parameters)


def _records(task: Task, data: Any, rules: SitePolicy, training: Training) -> TaskDataset:
    """One record per patient, of those that the policy does not leave out."""
    records, excluded = records_of(data), set(rules.excluded_patients)
    if not records.named and excluded:
        raise ConfigurationError(
            "the site policy leaves patients out, but these records name none: say which column does (patient_column)"
        )
    if not records.named:
        _LOG.warning("the records name no patients: every one counts as a patient of its own")
    elif excluded:
        found = len(excluded & set(records.patients))
        # Counts alone: no patient is named in a log.
        _LOG.info("%d of %d patients on the exclusion list are left out", found, len(excluded))
    return task.dataset(records).without(rules.excluded_patients).by_patient(training.rows_per_patient)


def _accept_loss(client: Client, ledger: HospitalLedger, membership: Membership, settings: StudySettings) -> None:
    reported = rounds_received(client, membership.study, membership.client)
    if reported - ledger.rounds_known(membership.study):
        # Every round up to it: which of them had left is what the lost ledger knew.
        last = max(reported)
        ledger.accept_loss(membership.study, last, Charge.of(settings, range(1, last + 1)))
