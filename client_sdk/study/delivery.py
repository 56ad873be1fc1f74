"""How a contribution leaves its hospital: in the clear, or under masks (`client_sdk.secure_sum.delivery`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from client_sdk.api.client import Client
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from client_sdk.secure_sum.delivery import MaskedDelivery, SummedRounds
from client_sdk.study.evaluated import EvaluatedPatients
from client_sdk.study.patients import AskedPatients
from client_sdk.study.verifier import CoordinatorVerifier
from private_learning.training import Contribution, LocalTraining
from study_protocol.randomness.source import Randomness
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.messages import AssignmentBody, SignedParameters
from study_protocol.wire.tensors import ANSWER_TENSOR, TERMS, UPDATE, encode


@dataclass(frozen=True, repr=False)
class Capabilities:
    """The work that a hospital can do in one study.

    training      None in a study without training
    patients      None where the study asks no question, or the records have no columns
    data_version  what people here call the records as they are now
    evaluated     patients who are never trained on, or None where the study sets no patients aside
    later         everybody, of whom a question about a window picks its patients, or None without [monitoring]
    """

    settings: AnySettings
    randomness: Randomness
    training: LocalTraining | None
    patients: AskedPatients | None
    data_version: str = "1"
    evaluated: EvaluatedPatients | None = None
    later: EvaluatedPatients | None = None

    @property
    def noise_shares(self) -> int:
        """Among how many honest hospitals the noise of a query is shared at least."""
        masking = self.settings.privacy.masking
        return 1 if masking is None else masking.honest_survivors

    @property
    def records(self) -> int:
        """How many patients take part here."""
        if self.training is not None:
            aside = 0 if self.evaluated is None else len(self.evaluated.identifiers)
            return len(self.training.dataset) + aside
        return 0 if self.patients is None else len(self.patients.identifiers)

    def summed(self, party: str) -> SummedRounds:
        """Return what the rounds of the study sum under masks."""
        training = self.training
        return SummedRounds(
            self.settings,
            {} if training is None else training.spec,
            partial(self.randomness.in_round, party),
            0 if training is None else len(training.dataset),
        )


class Delivery(Protocol):
    """One hospital's way out in one study. Of a round: `prepare`, `body` unless the bytes are finished, `send`."""

    def prepare(self, assignment: AssignmentBody, session: SignedParameters | None) -> Sequence[VectorSpec]:
        """Send what others must hold before this hospital pays and trains, such as its keys and shares.

        session  what came with the assignment

        Returns:
            The vectors that `body` fills, none where the update travels as it is.

        Raises:
            SessionEnded: this round needs no payment and no training.
            Refused, BadAssignment: something that was shown is not acceptable.
        """
        ...

    def total_records(self) -> float | None:
        """N of all clients, where the study sums the papers' costs and N is known."""

    def body(
        self,
        round_number: int,
        vectors: Sequence[VectorSpec],
        contribution: Contribution,
        log_moments: LogMomentBounds | None,
    ) -> bytes:
        """The finished bytes of a round, made once: the same are sent as often as it takes.

        Raises:
            TrainingStopped: a value is not finite or does not fit its vector.
        """
        ...

    def answer(self, round_number: int, vectors: Sequence[VectorSpec], part: NDArray[np.int64]) -> bytes:
        """Return the finished bytes of a query's round. part: (cells,) this hospital's sum in grid steps, noise in it.

        Raises:
            TrainingStopped: a value does not fit its vector.
        """
        ...

    def send(self, round_number: int, body: bytes) -> None:
        """Send what `body` or `answer` made.

        Raises:
            SessionEnded, ConflictError: the coordinator did not take it. Their `code` says why.
            Refused: the others' part is not acceptable.
        """

    @property
    def was_accepted(self) -> bool:
        """Whether the coordinator acknowledged, in the round prepared last, what it may have learnt something from: an
        update in the clear, or shares that open a sum. Also after `send` has raised."""
        ...

    def has_opened(self, round_number: int) -> bool:
        """Whether the coordinator has shown this hospital the opened sum of a round."""
        ...

    def leave(self, assignment: AssignmentBody) -> None:
        """Give up a round that was joined, so that the others do not wait for this hospital."""

    def erase_expired(self) -> None:
        """Erase what may be kept no longer. Called whenever the hospital looks for work."""
        ...

    def keeps(self, round_number: int) -> bool:
        """Whether the finished bytes of this round may still have to be sent."""
        ...

    def close(self) -> None:
        """Let another process take over."""


class ClearDelivery:
    """Update and log-moments as they are, in one request.

    put  sends the body of a round
    """

    def __init__(self, put: Callable[[int, bytes], object]) -> None:
        self._put, self.was_accepted = put, False

    def prepare(self, assignment: AssignmentBody, session: SignedParameters | None) -> tuple[()]:
        """Return no vectors: a clear update needs no preparation."""
        self.was_accepted = False
        return ()

    def total_records(self) -> None:
        """The papers' costs are summed under masks only."""

    def body(
        self,
        round_number: int,
        vectors: Sequence[VectorSpec],
        contribution: Contribution,
        log_moments: LogMomentBounds | None,
    ) -> bytes:
        """Raises TrainingStopped for a bound that is not finite."""
        update = {UPDATE + name: array for name, array in contribution.update.items()}
        return encode(update | ({} if log_moments is None else log_moments.tensors()))

    def answer(self, round_number: int, vectors: Sequence[VectorSpec], part: NDArray[np.int64]) -> bytes:
        return encode({ANSWER_TENSOR: part.astype(np.float64)})

    def send(self, round_number: int, body: bytes) -> None:
        self._put(round_number, body)
        self.was_accepted = True

    def has_opened(self, round_number: int) -> bool:
        """No sum is shown to hospitals: the ledger alone says what became of a round."""
        return False

    def leave(self, assignment: AssignmentBody) -> None:
        """The refusal says everything."""

    def erase_expired(self) -> None:
        """There are no secrets."""

    def keeps(self, round_number: int) -> bool:
        """Until a later round begins or the study ends: a coordinator that was restored asks for them again."""
        return True

    def close(self) -> None:
        """Nothing is held."""


def delivery_of(
    client: Client,
    membership: Membership,
    policy: SitePolicy,
    able: Capabilities,
    verifier: CoordinatorVerifier,
    folder: Path,
) -> Delivery:
    """The delivery that the study's settings ask for. folder: of the study's files on this disk."""
    if able.settings.privacy.masking is None:
        study, name = membership.study, membership.client
        return ClearDelivery(lambda round, body: client.put_update(study, round, name, body, verifier.vouch()))
    floors, state = policy.floors(), folder / "secure-sum"
    sources = verifier.roster, verifier.vouch, verifier.total_records, verifier.charge
    return MaskedDelivery(client, membership, floors, able.summed(membership.client), state, *sources)


def reported(contribution: Contribution, log_moments: LogMomentBounds | None) -> dict[str, Any] | None:
    """Return an update's report of its cost: the bounds that go with it, or the distance that it falls into."""
    report: dict[str, Any] = {}
    if log_moments is not None:
        bounds = log_moments.tensors()
        report |= {"filter": float(bounds[TERMS + "filter"][0]), "moments": bounds[TERMS + "moments"].tolist()}
    if contribution.client_distance is not None:
        report["distance"] = contribution.client_distance
    return report or None
