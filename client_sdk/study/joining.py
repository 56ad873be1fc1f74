"""How a hospital joins a study: agree to what it asks for, prepare, freeze what was agreed to, and take part."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from client_sdk.api.client import Client
from client_sdk.guard.admission import own_limit_in_words
from client_sdk.guard.approvals import DecisionReader
from client_sdk.guard.columns import readable
from client_sdk.guard.decision import Subject
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_views import RecordsMark, RecordsOrigin
from client_sdk.guard.people import DecidingPerson
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.query_rules import require_schedule
from client_sdk.guard.split import PatientSplit
from client_sdk.identity import Identity, Membership
from client_sdk.study.agreed import (
    accept_loss,
    expected_hospitals,
    freeze,
    require_joinable,
    require_split_known,
    settings_shown,
)
from client_sdk.study.agreements import JoinAgreements, PeopleMissing, terms_of
from client_sdk.study.events import OnRound
from client_sdk.study.pace import Pace, chosen_slot, warn_of_slot
from client_sdk.study.same_records import OnChangedRecords, checked
from client_sdk.study.stay import Stay
from client_sdk.study.versions import joined_with, require_compatible
from client_sdk.study.waiting import OnWait, Watch
from private_learning.records import DataError, Records, Table, as_declared
from study_protocol.randomness.source import HospitalRandomness, Randomness
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.bounds import largest_classical
from study_protocol.study.messages import Study
from study_protocol.study.reasons import MORE_TO_COME
from study_protocol.study.settings import StudySettings
from study_protocol.wire.failpoints import failpoint, register

if TYPE_CHECKING:
    from client_sdk.study.delivery import Capabilities
    from client_sdk.study.participation import Outcome
    from private_learning.tasks import Task
    from private_learning.tasks.backbone_file import BackboneFile

_LOG = logging.getLogger(__name__)

register("hospital.after-terms", "hospital.after-joining")


@dataclass(frozen=True)
class StudyProposal:
    """The request of a study, before this hospital takes part.

    pinned  the roster was compared and pinned
    joined  this hospital agreed to these settings before
    hospitals  of a round, as many as take part or are invited now. None: each round draws some
    own_limit  the hospital's own limit in words, and what of it is spent after this study
    terms  what people here agree to, with its digest
    require_allowed  raises PolicyRefused or OwnBudgetExceeded where this hospital's rules say no
    """

    study: str
    dataset: str
    settings: AnySettings
    policy: SitePolicy
    pinned: bool
    joined: bool
    require_allowed: Callable[[], None]
    hospitals: int | None
    own_limit: str
    terms: Subject


Agree: TypeAlias = Callable[[StudyProposal], None]


@dataclass(frozen=True)
class Computing:
    """The way in which a hospital computes its part of a study.

    device              of torch, several of one kind with commas between, "cuda:all", or "auto": a GPU if there is one
    bfloat16            the model computes in bfloat16. Norms, sums and noise keep their precision
    checkpoint_seconds  between two checkpoints of a round of several local steps, at least
    randomness          of batches, noise and accounting sample. None: cryptographic, keyed by the operating system and
                        by the secret in the hospital's directory
    backbone            the file that the study names, if it names any: weights, or a ProgramFile
    feature_cache       keep what a frozen backbone makes of the records in the hospital's directory, encrypted
    """

    device: str
    bfloat16: bool
    checkpoint_seconds: float
    randomness: Randomness | None
    backbone: BackboneFile | None
    feature_cache: bool


@dataclass(frozen=True)
class Listeners:
    """Functions that are called while a hospital joins and takes part.

    agree     before anything is written or sent, with what the study asks for. An exception from it is the answer no
    on_round  after every round that was answered, with a `RoundEvent`. An exception ends the participation
    on_wait   with a `Waiting` whenever something is waited for, with None when it goes on. By default the log
    """

    agree: Agree | None
    on_round: OnRound | None
    on_wait: OnWait | None


@dataclass(frozen=True)
class LocalTerms:
    """The hospital's own terms for taking part.

    policy              the site policy. By default `policy.toml` in the hospital's directory, else the strict one
    dataset             names the records: all studies that use the same ones share one ledger
    data_version        what people here call the records as they are now: queries about another version are refused
    accept_lost_ledger  a person says that this data set's ledger is lost: earlier rounds are charged at their worst
    accepts_records     asked when these are other records than studies on the data set have used. None: the policy says
    slot                of the study's, at whose multiples this hospital answers, in seconds: `client_sdk.study.pace`
    origin              how the records were made: snapshot, query and mapping. None: it is not known
    one_round_within    take part in at most one round, and wait so many seconds for it. None: until the study ends
    person              who runs it and sees the terms. None: a program without a person. The account is kept, and
                        counts only where one person decides alone
    """

    policy: SitePolicy
    dataset: str
    data_version: str
    accept_lost_ledger: bool
    slot: float | None
    accepts_records: OnChangedRecords | None = None
    origin: RecordsOrigin | None = None
    one_round_within: float | None = None
    person: DecidingPerson | None = None


@dataclass(frozen=True)
class Joining:
    """One hospital that joins one study."""

    identity: Identity
    membership: Membership
    client: Client
    ledger: HospitalLedger
    terms: LocalTerms
    computing: Computing
    listeners: Listeners

    def run(self, task: str | Task | None, data: Records) -> Outcome:
        """Take part in the study. Raises as `Hospital.join`."""
        # Torch, which only training needs: enrolling, rotating and asking start in a third of the time without.
        from client_sdk.study.lacking import tell
        from client_sdk.study.participation import Participation

        study, ledger, watch = self.membership.study, self.ledger, Watch(self.listeners.on_wait)
        records = as_declared(data, ledger.table_format)
        self.client.on_pause = watch.unreachable
        # 1. See what the study asks for, and whether this hospital's rules and people allow it: before any round.
        agreements = self._agreements(watch)
        try:
            agreements.require_policy(accept_loss=self.terms.accept_lost_ledger)
            settings = self._agree(agreements)
        except PeopleMissing:
            return self._outside()
        # Only now: a person has had all the time to agree. And before any record is looked at.
        begun, slot_seconds = self.client.clock.elapsed(), chosen_slot(settings, ledger, study, self.terms.slot)
        mark = checked(ledger, study, records, self._accepts_records(), _origin(self.terms.origin, records))
        split = None if settings.evaluation is None else ledger.split(study, settings.evaluation.share)
        # 2. Make the training and what answers questions, of the patients whom the policy does not leave out.
        capabilities = (make := partial(self._capabilities, task, records, settings, split))(self.terms.policy)
        # What was made of the records took the longer the more there are.
        Pace(self.client, slot_seconds, watch.waits).wait("the preparation", since=begun)
        if isinstance(records, Table):
            _log_counts(settings, capabilities, records, self.terms.policy, study)
        lacking = _logged_lacking(capabilities, readable(records, self.terms.policy.statistics), study)
        _log_hopeless(capabilities)
        # 3. Freeze what was agreed to, and how the records are written.
        _warn(self.terms.policy, settings, records=capabilities.records, pinned=self.membership.pinned is not None)
        self._freeze(records, capabilities, split, slot_seconds, mark)
        tell(self.client, self.membership, self.terms.policy, settings, lacking)
        # 4. Charge what a lost ledger does not know.
        if self.terms.accept_lost_ledger:
            accept_loss(self.client, ledger, self.membership, settings)
        # 5. Take part.
        return Participation(
            self.client,
            self.membership,
            ledger,
            self.terms.policy,
            capabilities,
            self.terms.dataset,
            self.identity.directory,
            self.listeners.on_round,
            watch,
            slot_seconds,
            self.terms.one_round_within,
            make,
        ).run()

    def _outside(self) -> Outcome:
        """Return the outcome before people have agreed. The study may have ended meanwhile."""
        from client_sdk.study.participation import Outcome

        study = self.membership.study
        statement = self.client.budget(study)
        reason = statement.stop_reason
        return Outcome(study, reason or MORE_TO_COME, 0, 0, statement, reason is None)

    def _agreements(self, watch: Watch) -> JoinAgreements:
        home, terms = self.identity.directory, self.terms
        subject = (home, self.membership, terms.dataset, self.ledger, terms.policy, terms.person)
        stay = Stay(terms.one_round_within, self.client.clock.elapsed)
        return JoinAgreements(*subject, watch, self.client.sleep, DecisionReader(home), stay)

    def _agree(self, agreements: JoinAgreements) -> AnySettings:
        membership, ledger, policy, dataset = self.membership, self.ledger, self.terms.policy, self.terms.dataset
        received_study = self.client.study(membership.study)
        settings = settings_shown(received_study, ledger, membership)
        opened = ledger.opened(membership.study)
        require_compatible(self.client.spoken, joined_with(opened, settings), settings)
        check = _check_of(received_study, membership, ledger, policy, dataset)
        if self.listeners.agree is not None:
            self.listeners.agree(proposal_of(received_study, membership, ledger, policy, dataset))
        check()
        agreements.require_terms(settings.digest(), is_joined=opened is not None)
        require_schedule(policy, settings, self.terms.data_version)
        return settings

    def _accepts_records(self) -> OnChangedRecords | None:
        return (lambda _: True) if self.terms.policy.changed_records == "accept" else self.terms.accepts_records

    def _capabilities(
        self,
        task: str | Task | None,
        records: Records,
        settings: AnySettings,
        split: PatientSplit | None,
        policy: SitePolicy,
    ) -> Capabilities:
        from client_sdk.study.feature_cache import FOLDER, FeatureCache
        from client_sdk.study.preparation import able, choice_of

        computing = self.computing
        return able(
            task,
            records,
            policy,
            settings,
            computing.randomness or HospitalRandomness(self.identity.draw_secret()),
            computing.device,
            computing.checkpoint_seconds,
            self.membership.client,
            self.terms.data_version,
            split,
            bfloat16=computing.bfloat16,
            backbone=computing.backbone,
            cache=FeatureCache(self.identity.directory / FOLDER) if computing.feature_cache else None,
            choice=choice_of(self.ledger.opened(self.membership.study)),
        )

    def _freeze(
        self,
        records: Records,
        capabilities: Capabilities,
        split: PatientSplit | None,
        slot_seconds: float | None,
        mark: RecordsMark,
    ) -> None:
        ledger, membership, settings = self.ledger, self.membership, capabilities.settings
        ledger.fix_terms(self.terms.policy.limits)
        failpoint("hospital.after-terms")
        if split is not None and ledger.opened(membership.study) is None:
            if self.terms.accept_lost_ledger:
                accept_loss(self.client, ledger, membership, settings)
            require_split_known(self.client, ledger, membership, self.terms.dataset)
        if isinstance(records, Table) and records.format is not None:
            ledger.declare_format(records.format)
        freeze(capabilities, ledger, membership, self.terms.policy, self.terms.dataset, split, mark)
        failpoint("hospital.after-joining")
        if slot_seconds is not None:
            ledger.declare_slot(membership.study, slot_seconds)
            warn_of_slot(settings, slot_seconds, capabilities.records)


def proposal_of(
    received_study: Study, membership: Membership, ledger: HospitalLedger, policy: SitePolicy, dataset: str
) -> StudyProposal:
    """Return what a study asks of this hospital.

    Raises:
        BadAssignment: the coordinator shows other settings than this hospital joined under.
    """
    settings, study = settings_shown(received_study, ledger, membership), membership.study
    draws = isinstance(settings, StudySettings) and settings.privacy.client_sampling_rate < 1
    return StudyProposal(
        study,
        dataset,
        settings,
        policy,
        membership.pinned is not None,
        ledger.opened(study) is not None,
        _check_of(received_study, membership, ledger, policy, dataset),
        None if draws else expected_hospitals(received_study),
        own_limit_in_words(policy, ledger, study, settings),
        terms_of(membership, dataset, settings.digest()),
    )


def _check_of(
    received_study: Study, membership: Membership, ledger: HospitalLedger, policy: SitePolicy, dataset: str
) -> Callable[[], None]:
    return partial(require_joinable, policy, received_study, dataset, ledger, pinned=membership.pinned is not None)


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


def _log_hopeless(capabilities: Capabilities) -> None:
    """Log why the study cannot learn from these records, for this hospital alone."""
    from client_sdk.study.preparation import remarks_of

    for remark in [] if capabilities.training is None else remarks_of(capabilities.training):
        _LOG.warning("%s", remark)


def _logged_lacking(capabilities: Capabilities, records: Records, study: str) -> list[str]:
    """Return the columns that these records lack and that the study lets a site lack. A person here sees them."""
    from client_sdk.study.lacking import lacking_columns

    lacking = () if capabilities.training is None else lacking_columns(capabilities.training.task, records)
    for column in lacking:
        _LOG.warning("study %s: %s", study, column.in_words)
    return [column.name for column in lacking]


def _origin(stated: RecordsOrigin | None, records: Records) -> RecordsOrigin | None:
    """Return how the records were made, with the mapping that was applied when they were read."""
    if not isinstance(records, Table) or not records.mapping_sha256:
        return stated
    return replace(stated or RecordsOrigin(), mapping_sha256=records.mapping_sha256)


def _log_counts(
    settings: AnySettings, capabilities: Capabilities, table: Table, policy: SitePolicy, study: str
) -> None:
    """Log what the study makes of every column that it names, for this hospital alone."""
    from client_sdk.study.cell_counts import cells_of_question, cells_of_task, log_counts, without

    records = without(cast("Table", readable(table, policy.statistics)), policy.exclusions)
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
