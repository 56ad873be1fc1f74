"""What a hospital keeps for the masked rounds of one study, and what it sends in them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from client_sdk.api.client import Client
from client_sdk.api.credentials import Signature
from client_sdk.errors import BadAssignment, ConfigurationError
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.identity import Membership, active_fingerprint
from client_sdk.protocol.secure_sum.layout import UPDATE, sums_as_in_papers
from client_sdk.protocol.secure_sum.parameters import SessionPlan
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.messages import AssignmentBody
from client_sdk.protocol.wire.signing import decode_public_key
from client_sdk.protocol.wire.tensors import Array, encode
from client_sdk.secure_sum.checks import Floors, Party
from client_sdk.secure_sum.ring_encoding import from_bytes, ring_vectors_of, to_bytes
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.session import SecureSumClient
from client_sdk.secure_sum.store import FileStore, opened_rounds
from client_sdk.training import Contribution, LocalTraining
from client_sdk.training.weights import spec_of_model

_LOG = logging.getLogger(__name__)


class MaskedStudy:
    """One hospital's masked rounds in one study that sums under masks.

    floors  what the hospital demands of any session
    folder  of the sessions' state; taken at the first round, so that no other process uses it until `close`
    """

    def __init__(
        self, client: Client, membership: Membership, floors: Floors, training: LocalTraining, folder: Path
    ) -> None:
        self._client, self._membership, self._floors = client, membership, floors
        self._training, self._folder = training, folder
        self._settings = training.settings
        self._model = spec_of_model(training.task.model())
        self._store: FileStore | None = None
        self._records_reported: float | None = None

    def round(self, assignment: AssignmentBody) -> MaskedRound:
        """This hospital's part in the round's secure sum.

        Raises:
            BadAssignment: the roster shown is not the assigned one.
            StateRefused: another process takes part for this hospital.
        """
        party = self._party(assignment)
        plan = SessionPlan.of(
            self._settings,
            self._model,
            study=self._membership.study,
            round=assignment.round,
            roster=assignment.roster_sha256,
            model=assignment.model.sha256,
        )
        return MaskedRound(
            self._client, party, plan, self._open(party), exact_updates=self._settings.privacy.rules.central
        )

    def body(
        self,
        round: int,
        vectors: Sequence[VectorSpec],
        made: Contribution,
        log_moments: LogMomentBounds | None,
        update: dict[str, Array],
    ) -> bytes:
        """The finished bytes of a round: the words that will be masked, and the update where it travels in the clear.

        Raises:
            TrainingStopped: a value does not fit its vector.
        """
        training = self._training
        words = ring_vectors_of(
            self._settings.privacy,
            self._model,
            vectors,
            made,
            log_moments,
            # Once: two sums over almost the same hospitals would show one hospital's number.
            records=0 if self.total_records() is not None or self._reported(round) else len(training.dataset),
            randomness=training.randomness_in(round),
        )
        return to_bytes(words, {} if UPDATE in words else update)

    def send(self, round: int, masked: MaskedRound, body: bytes) -> None:
        """Send what `body` made. Raises as `Client.put_update` and `MaskedRound.complete`."""
        words, clear = from_bytes(body)
        if clear:
            self._client.put_update(self._membership.study, round, self._membership.client, encode(clear))
        masked.complete(words)

    def total_records(self) -> float | None:
        """N of all clients as the ledger tells it, where the study sums costs as in the papers."""
        if not sums_as_in_papers(self._settings.privacy) or self._records_reported is not None:
            return self._records_reported
        after = 0
        while page := self._client.ledger(self._membership.study, after).entries:
            for entry in page:
                report = entry.body.get("report") if entry.kind == "settled" else None
                if report and "records" in report:
                    self._records_reported = float(report["records"])
                    return self._records_reported
            after = page[-1].sequence
        return None

    def close(self) -> None:
        """Give the folder back: whoever goes on, also in this process, takes it anew."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _reported(self, round: int) -> bool:
        """Whether this hospital has helped to open a sum of an earlier round."""
        return self._store is not None and any(True for _ in opened_rounds(self._store, self._membership.study, round))

    def _open(self, party: Party) -> FileStore:
        if self._store is None:
            self._store = FileStore(self._folder)
        if self._store.moved:
            # Other words than those that were sent, under the same masks, would show the difference.
            _LOG.warning("%s was copied or restored: its sessions are left", self._folder)
            for number in self._store.rounds(self._membership.study):
                SecureSumClient(party, self._membership.study, number, self._store).abort()
            self._store.settle()
        return self._store

    def _party(self, assignment: AssignmentBody) -> Party:
        roster = self._client.roster(self._membership.study, assignment.round)
        if active_fingerprint(roster) != assignment.roster_sha256:
            raise BadAssignment("the roster shown is not the one that the assignment names")
        if not isinstance(self._client.credentials, Signature):
            raise ConfigurationError("a hospital signs with its own identity key")
        return Party(
            client=self._membership.client,
            identity=self._client.credentials.key,
            coordinator=decode_public_key(self._membership.coordinator_key),
            roster={m.client: decode_public_key(m.public_key) for m in roster.members if m.state == "active"},
            roster_fingerprint=assignment.roster_sha256,
            floors=self._floors,
        )
