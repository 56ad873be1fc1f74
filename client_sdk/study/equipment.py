"""The parts by which a hospital answers the rounds of a study, made anew where further patients are left out."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from client_sdk.api.client import Client
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from client_sdk.outbox import Outbox
from client_sdk.study.answers import AnsweringWork
from client_sdk.study.consents import HospitalConsents
from client_sdk.study.delivery import Capabilities, Delivery, delivery_of
from client_sdk.study.models import StudyModels
from client_sdk.study.permission import Permission
from client_sdk.study.synthesis import rule_of
from client_sdk.study.verifier import CoordinatorVerifier
from client_sdk.study.work import RoundCharges, TrainingWork

_LOG = logging.getLogger(__name__)


class PatientsObjected(Exception):
    """The exclusion list has grown between the beginning of a round and its charge."""


class Equipment:
    """What one hospital trains and answers with in one study.

    policy, able  the site policy, and what this hospital can do under it
    delivery      its way out
    training, answers, consents  its work, None where it does not do that

    Args:
        renew: makes the capabilities anew under a policy that leaves further patients out. None: they stay
    """

    delivery: Delivery
    training: TrainingWork | None
    answers: AnsweringWork | None
    consents: HospitalConsents | None

    def __init__(
        self,
        client: Client,
        membership: Membership,
        ledger: HospitalLedger,
        verifier: CoordinatorVerifier,
        directory: Path,
        renew: Callable[[SitePolicy], Capabilities] | None,
    ) -> None:
        self._client, self._membership, self._ledger = client, membership, ledger
        self._verifier, self._directory, self._renew = verifier, directory, renew

    def take(self, policy: SitePolicy, able: Capabilities) -> None:
        """Make all parts under a policy."""
        client, membership, ledger = self._client, self._membership, self._ledger
        study, outbox = membership.study, self._directory / "outbox" / membership.study
        self.policy, self.able = policy, able
        self.delivery = delivery_of(client, membership, policy, able, self._verifier, outbox)
        books = RoundCharges(study, ledger, policy, Outbox(outbox), self.require_current)
        # A study without training has no work of that kind, and one without questions no answers.
        self.training = self.answers = self.consents = None
        models = None if able.training is None else StudyModels(client, study, able.training, ledger)
        if able.training is not None and models is not None:
            self.training = TrainingWork(membership.client, books, able.training, models, self.delivery)
        if able.patients is not None or able.evaluated is not None:
            rule = rule_of(client, membership, able.settings)
            approvals = Approvals(self._directory, study, policy.approval)
            permission = Permission(study, able.settings, policy, approvals, ledger, rule)
            self.answers = AnsweringWork(membership.client, books, able, models, self.delivery, permission)
            self.consents = HospitalConsents(client, membership, policy, able, permission)

    def heed_objections(self, round_number: int) -> None:
        """Leave out the patients who have come to the list, before anything of a round is computed.

        Raises:
            ConfigurationError: the list cannot be read, or holds a wrong line: it is not known whom it leaves out.
            DataError: no patient is left.
        """
        if self._renew is None or (policy := self.policy.current()) is self.policy:
            return
        added = len(policy.exclusions) - len(self.policy.exclusions)
        _LOG.info("%d entries have come to the exclusion list: they count from round %d on", added, round_number)
        # First, so that records that do not fit end the run with everything as it was.
        able = self._renew(policy)
        self.delivery.close()
        self.take(policy, able)

    def require_current(self) -> None:
        """Require that no patient has objected since the round began.

        It is called once the charge of a round is durable. So a patient may be in a round whose charge was in the
        ledger before the patient was on the list, and in no other one.

        Raises:
            PatientsObjected: one has. The round is paid for, and no part of it is computed.
            ConfigurationError: as `heed_objections`.
        """
        if self._renew is not None and self.policy.current() is not self.policy:
            raise PatientsObjected
