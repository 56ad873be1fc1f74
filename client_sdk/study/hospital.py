"""A hospital: enrol once, then join studies.

hospital = Hospital.enrol("https://study.example.org", token, directory="wardround-hospital")
outcome = hospital.join("sepsis", "logistic-regression", data)
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from client_sdk.api.client import Client, ServerClock, Signature
from client_sdk.api.config import Connection
from client_sdk.api.transport import Transport
from client_sdk.errors import PolicyRefused
from client_sdk.guard.charges import Charge
from client_sdk.guard.first_round import require_first_round
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.query_rules import require_schedule
from client_sdk.guard.rules import require_allowed
from client_sdk.identity import Identity, Membership
from client_sdk.study.agreed import accept_loss, freeze, require_split_known, settings_shown
from client_sdk.study.enrolment import enrol, rotate
from client_sdk.study.events import OnRound
from client_sdk.study.evidence import Evidence
from client_sdk.study.pace import Pace, chosen_slot, warn_of_slot
from client_sdk.study.versions import joined_with, require_compatible
from client_sdk.study.waiting import OnWait, Watch
from private_learning.records import DataError, Records, Table, as_declared, records_of
from study_protocol.randomness.source import HospitalRandomness, Randomness
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import largest_classical
from study_protocol.study.messages import Study
from study_protocol.study.settings import StudySettings

if TYPE_CHECKING:
    from client_sdk.study.delivery import Capabilities
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
    ) -> Self:
        """Exchange an invitation token for a membership. It makes the identity key if there is none. Repeatable.

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
        checkpoint_seconds: float = 60.0,
        on_round: OnRound | None = None,
        on_wait: OnWait | None = None,
        agree: Agree | None = None,
        randomness: Randomness | None = None,
        backbone: BackboneFile | None = None,
        feature_cache: bool = True,
        slot: float | None = None,
    ) -> Outcome:
        """Take part in `study` until it ends.

        task     the name that the study must use, a Task of this hospital's own, or None: the task that the study names
        data     Table, Examples, or what `records_of` takes, such as a data frame whose rows are patients of their own.
                 Of each
                 patient at most as many rows as the study allows. Text tables are read by a declared format
        device   of torch, several of one kind with commas between, "cuda:all", or "auto": a GPU if there is one
        bfloat16  the model computes in bfloat16. Norms, sums and noise keep their precision
        dataset  names the records: all studies that use the same ones share one ledger
        data_version  what people here call the records as they are now: queries about another version are refused
        policy   the site policy. By default `policy.toml` in the hospital's directory, else the strict one
        accept_lost_ledger  a person says that this data set's ledger is lost: earlier rounds are charged at their worst
        checkpoint_seconds  between two checkpoints of a round of several local steps, at least
        agree  called before anything is written or sent, with what the study asks for. An exception from it is the
               answer no
        on_round  called after every round that was answered, with a `RoundEvent`. An exception ends the participation
        on_wait  called with a `Waiting` whenever something is waited for, with None when it goes on. By default the log
        randomness  of batches, noise and accounting sample. None: cryptographic, keyed by the operating system and by
                    the secret in this hospital's directory
        backbone  the file that the study names, if it names any: weights, or a ProgramFile
        slot     of the study's, at whose multiples this hospital answers, in seconds: `client_sdk.study.pace`
        feature_cache  keep what a frozen backbone makes of the records in the hospital's directory, encrypted

        Raises:
            PolicyRefused, OwnBudgetExceeded: the site policy forbids the study, or leaves no room for a first round.
            ConfigurationError, DataError, TaskError: before anything is sent or computed.
            LedgerInUse: another process works on this data set.
            WardroundError: and as `Participation.run` raises.
        """
        # Torch, which only training needs: enrolling, rotating and asking start in a third of the time without.
        from client_sdk.study.cell_counts import without
        from client_sdk.study.feature_cache import FOLDER, FeatureCache
        from client_sdk.study.participation import Participation
        from client_sdk.study.preparation import able, choice_of
        from private_learning.training.devices import devices_of

        membership, rules = self.identity.membership(study), policy or SitePolicy.in_force(self.directory)
        devices_of(device)
        self.erase_expired()
        watch = Watch(on_wait)
        records = records_of(data)
        with HospitalLedger.open(ledger_path(self.directory, dataset)) as ledger, self.client(study) as client:
            records = as_declared(records, ledger.table_format)
            client.on_pause = watch.unreachable
            # 1. See what the study asks for, and whether this hospital's rules allow it: before anything is waited for.
            received_study = client.study(study)
            settings = settings_shown(received_study, ledger, membership)
            require_compatible(client.spoken, joined_with(ledger.opened(study), settings), settings)
            pinned = membership.pinned is not None
            require_allowed = partial(_require_allowed, rules, received_study, dataset, ledger, pinned=pinned)
            if agree is not None:
                agree(
                    StudyProposal(
                        study, dataset, settings, rules, pinned, ledger.opened(study) is not None, require_allowed
                    )
                )
            require_allowed()
            require_schedule(rules, settings, data_version)
            # Only now: a person has had all the time to agree.
            begun, slot_seconds = client.clock.elapsed(), chosen_slot(settings, ledger, study, slot)
            split = None if settings.evaluation is None else ledger.split(study, settings.evaluation.share)
            # 2. Make the training and what answers questions, of the patients whom the policy does not leave out.
            capabilities = able(
                task,
                records,
                rules,
                settings,
                randomness or HospitalRandomness(self.identity.draw_secret()),
                device,
                checkpoint_seconds,
                membership.client,
                data_version,
                split,
                bfloat16=bfloat16,
                backbone=backbone,
                cache=FeatureCache(self.directory / FOLDER) if feature_cache else None,
                choice=choice_of(ledger.opened(study)),
            )
            # What was made of the records took the longer the more there are.
            Pace(client, slot_seconds, watch.waits).wait("the preparation", since=begun)
            if isinstance(records, Table):
                _log_counts(settings, capabilities, without(records, rules.exclusions), study)
            # 3. Freeze what was agreed to, and how the records are written.
            _warn(rules, settings, records=capabilities.records, pinned=pinned)
            if split is not None and ledger.opened(study) is None:
                if accept_lost_ledger:
                    accept_loss(client, ledger, membership, settings)
                require_split_known(client, ledger, membership, dataset)
            if isinstance(records, Table) and records.format is not None:
                ledger.declare_format(records.format)
            freeze(capabilities, ledger, membership, dataset, split)
            if slot_seconds is not None:
                ledger.declare_slot(study, slot_seconds)
                warn_of_slot(settings, slot_seconds, capabilities.records)
            # 4. Charge what a lost ledger does not know.
            if accept_lost_ledger:
                accept_loss(client, ledger, membership, settings)
            # 5. Take part.
            outbox, evidence = self.directory / "outbox" / study, Evidence(self.directory / "evidence", study)
            return Participation(
                client,
                membership,
                ledger,
                rules,
                capabilities,
                dataset,
                outbox,
                evidence,
                on_round,
                watch,
                slot_seconds,
            ).run()

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


@dataclass(frozen=True)
class StudyProposal:
    """The request of a study, before this hospital takes part.

    pinned  the roster was compared and pinned
    joined  this hospital agreed to these settings before
    require_allowed  raises PolicyRefused or OwnBudgetExceeded where this hospital's rules say no
    """

    study: str
    dataset: str
    settings: AnySettings
    policy: SitePolicy
    pinned: bool
    joined: bool
    require_allowed: Callable[[], None]


def _require_allowed(
    rules: SitePolicy, received_study: Study, dataset: str, ledger: HospitalLedger, *, pinned: bool
) -> None:
    """Raises PolicyRefused, OwnBudgetExceeded: what would be refused in every round is refused here."""
    study, settings = received_study.study, received_study.settings
    check = partial(require_allowed, rules, study, dataset, settings, roster_pinned=pinned)
    check()
    expected = max(received_study.clients, received_study.invited, settings.schedule.min_clients)
    try:
        check(expected=expected)
    except PolicyRefused as refused:
        # Until it is started others may still be invited.
        if received_study.state not in ("draft", "enrolling"):
            raise
        _LOG.warning("as many hospitals as are invited now are too few for this one: %s", refused.detail)
    # Later a round may be paid for and not yet sent: there every round is asked for itself. Of queries each is.
    if isinstance(settings, StudySettings) and not ledger.rounds_known(study):
        require_first_round(rules, ledger.charges(), Charge.of(settings, [1]))


Agree: TypeAlias = Callable[[StudyProposal], None]


def _warn(rules: SitePolicy, settings: AnySettings, *, records: int, pinned: bool) -> None:
    """Log what no other party may see, such as how many records there are. It is never sent."""
    _, delta = largest_classical(settings)
    if delta * records > 1:
        _LOG.warning(
            "delta %g is larger than 1 over the number of records here. At this delta a guarantee allows that some "
            "patient's whole record is disclosed. Ask the study for a smaller delta",
            delta,
        )
    if settings.privacy.masking is not None and not pinned and not rules.needs_pin(settings):
        _LOG.warning(
            'THE ROSTER IS NOT PINNED (unpinned_roster = "laboratory"): the coordinator can invent the other '
            "hospitals and read this one's values off the sums. For laboratories only"
        )


def _log_counts(settings: AnySettings, capabilities: Capabilities, records: Table, study: str) -> None:
    """Log what the study makes of every column that it names, for this hospital alone."""
    from client_sdk.study.cell_counts import cells_of_question, cells_of_task, log_counts

    if capabilities.training is not None:
        log_counts(cells_of_task(capabilities.training.task, records), f"study {study}")
    scheduled = None
    if isinstance(settings, StudySettings) and settings.evaluation is not None:
        scheduled = settings.evaluation.question
    if scheduled is not None:
        try:
            log_counts(cells_of_question(scheduled, records), f"study {study}, its scheduled question")
        except DataError as lacks:
            _LOG.warning("study %s, its scheduled question, which this hospital will refuse: %s", study, lacks)
