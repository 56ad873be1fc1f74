"""The terms that a hospital agreed to when it first joined a study: frozen in its ledger, or charged if that is
lost."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from accounting.plan.plan import Plan
from client_sdk.api.client import Client
from client_sdk.errors import BadAssignment, ConfigurationError, PolicyRefused
from client_sdk.guard.admission import admit
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger, RecordsMark
from client_sdk.guard.policy import SitePolicy
from client_sdk.guard.rules import require_allowed
from client_sdk.guard.split import PatientSplit
from client_sdk.identity import Membership
from client_sdk.study.verifier import queries_asked, require_known_past, rounds_received
from client_sdk.study.versions import joined_with
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import Study
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.rounded import number, significant

if TYPE_CHECKING:
    from client_sdk.study.delivery import Capabilities

_LOG = logging.getLogger(__name__)


def settings_shown(study: Study, ledger: HospitalLedger, membership: Membership) -> AnySettings:
    """The study's settings: those frozen when the hospital first joined, also if the coordinator forgets."""
    # Computed here: every assignment is held against this digest.
    digest = study.settings.digest()
    if digest != study.settings_sha256:
        raise BadAssignment("the study's settings do not have the digest that the coordinator names")
    opened = ledger.opened(membership.study)
    joined = None if opened is None else (opened["settings_sha256"], opened["coordinator_key"])
    if joined not in (None, (digest, membership.coordinator_key)):
        raise BadAssignment("the study's settings or its coordinator are not those that this hospital joined under")
    return study.settings


def expected_hospitals(received_study: Study) -> int:
    """Return how many hospitals a round has, if all that are invited now take part."""
    min_clients = received_study.settings.schedule.min_clients
    return max(received_study.clients, received_study.invited, min_clients)


def require_joinable(
    rules: SitePolicy, received_study: Study, dataset: str, ledger: HospitalLedger, *, pinned: bool
) -> None:
    """Raises PolicyRefused, OwnBudgetExceeded: what would be refused in every round is refused here."""
    study, settings = received_study.study, received_study.settings
    check = partial(require_allowed, rules, study, dataset, settings, roster_pinned=pinned)
    check()
    try:
        check(expected=expected_hospitals(received_study))
    except PolicyRefused as refused:
        # Until it is started others may still be invited.
        if received_study.state not in ("draft", "enrolling"):
            raise
        _LOG.warning("as many hospitals as are invited now are too few for this one: %s", refused.detail)
    # Later a round may be paid for and not yet sent: there every round is asked for itself. Of queries each is.
    if isinstance(settings, StudySettings) and not ledger.rounds_known(study):
        admit(rules, ledger, study, settings)


def freeze(
    capabilities: Capabilities,
    ledger: HospitalLedger,
    membership: Membership,
    policy: SitePolicy,
    dataset: str,
    split: PatientSplit | None,
    mark: RecordsMark,
) -> None:
    """Write into the hospital's ledger what it agreed to, when it first joins, and which records it uses."""
    if ledger.opened(membership.study) is not None:
        ledger.declare_records(membership.study, mark)
    else:
        settings = capabilities.settings
        is_training = isinstance(settings, StudySettings)
        whole_plan = admit(policy, ledger, membership.study, settings) if is_training else None
        choice = None if capabilities.training is None else capabilities.training.require_trainable()
        facts: dict[str, Any] = {
            "client": membership.client,
            "dataset": dataset,
            "settings_sha256": settings.digest(),
            "coordinator_key": membership.coordinator_key,
            "protocol": joined_with(None, settings),
            "gradients": None if choice is None else choice.to_dict(),
            # Left out where there is none, as in entries of earlier versions.
            **({} if whole_plan is None else {"whole_plan": whole_plan.to_dict()}),
        }
        ledger.open_study(membership.study, facts, split, mark)
        if whole_plan is not None:
            _LOG.info(
                "admitted whole: epsilon %s at delta %s of this hospital's own limit are reserved for all %d steps",
                number(whole_plan.epsilon),
                significant(whole_plan.delta),
                whole_plan.steps,
            )


def accept_loss(client: Client, ledger: HospitalLedger, membership: Membership, settings: AnySettings) -> None:
    """Charge what a lost ledger may have known."""
    reported = rounds_received(client, membership.study, membership.client)
    if reported - ledger.rounds_known(membership.study):
        # Every round up to it: which of them had left is what the lost ledger knew.
        last = max(reported)
        training: list[Charge] = []
        if isinstance(settings, StudySettings):
            training = _by_stage(Charge.of(settings, range(1, last + 1)), plan_of(settings), last)
        charges = [*training, *queries_asked(client, membership.study)]
        if ledger.opened(membership.study) is None:
            # To everybody: on which side each patient was is lost, too.
            charges = [replace(charge, bears="all") for charge in charges]
        ledger.accept_loss(membership.study, last, charges)


def _by_stage(once: Charge, plan: Plan, rounds: int) -> list[Charge]:
    """Return the charges of so many lost rounds, of which this hospital trained in those of the plan at most.

    Under a noise schedule none of them had a place beyond its number, and no histograms are published.
    """
    counts = plan.first_rounds(min(rounds, plan.rounds))
    return [
        replace(once, noise_multiplier=plan.noise_of(stage), steps=once.steps * count)
        for stage, count in enumerate(counts)
        if count
    ]


def require_split_known(client: Client, ledger: HospitalLedger, membership: Membership, dataset: str) -> None:
    """Before a split is kept for a study: that there was none. With another one patients would be trained on and
    evaluated in one study.

    Raises:
        LostLedger: no person has said yet that the ledger is lost.
        ConfigurationError: it is.
    """
    if ledger.rounds_lost(membership.study):
        raise ConfigurationError(
            "the lost ledger held the split into patients for training and for evaluation. This hospital cannot "
            "continue, and the possible cost is charged to its own limits. Restore the ledger from a "
            "backup, or take part in a new study"
        )
    require_known_past(client, ledger, membership.study, membership.client, dataset)
