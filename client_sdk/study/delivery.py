"""How a contribution leaves its hospital: in the clear, or under masks (`client_sdk.secure_sum.delivery`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from client_sdk.api.client import Client
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy import SitePolicy
from client_sdk.identity import Membership
from client_sdk.protocol.secure_sum.vectors import VectorSpec
from client_sdk.protocol.study.messages import AssignmentBody, SignedParameters
from client_sdk.protocol.wire.tensors import TERMS, UPDATE, encode
from client_sdk.secure_sum.delivery import MaskedDelivery
from client_sdk.study.verifier import CoordinatorVerifier
from client_sdk.training import Contribution, LocalTraining


class Delivery(Protocol):
    """One hospital's way out in one study. Of a round: `prepare`, `body` unless the bytes are finished, `send`."""

    def prepare(self, assignment: AssignmentBody, session: SignedParameters | None) -> Sequence[VectorSpec]:
        """What others must hold before this hospital pays and trains, such as its keys and shares.

        session  what came with the assignment

        Returns:
            The vectors that `body` fills; none where the update travels as it is.

        Raises:
            SessionEnded: nothing is to be paid or trained for this round.
            Refused, BadAssignment: something that was shown is not acceptable.
        """
        ...

    def total_records(self) -> float | None:
        """N of all clients, where the study sums the papers' costs and N is known."""

    def body(
        self, round: int, vectors: Sequence[VectorSpec], made: Contribution, log_moments: LogMomentBounds | None
    ) -> bytes:
        """The finished bytes of a round, made once: the same are sent as often as it takes.

        Raises:
            TrainingStopped: a value is not finite or does not fit its vector.
        """
        ...

    def send(self, round: int, body: bytes) -> None:
        """Send what `body` made.

        Raises:
            SessionEnded, ConflictError: the coordinator did not take it; their `code` says why.
            Refused: the others' part is not acceptable.
        """

    @property
    def taken(self) -> bool:
        """Whether the coordinator acknowledged, in the round prepared last, what it may have learnt something from: an
        update in the clear, or shares that open a sum. Also after `send` has raised."""
        ...

    def leave(self, assignment: AssignmentBody) -> None:
        """Give a round up, so that nobody waits for this hospital; nothing where it was not joined."""

    def erase_expired(self) -> None:
        """Erase what may be kept no longer. Called whenever the hospital looks for work."""
        ...

    def close(self) -> None:
        """Let another process take over."""


class ClearDelivery:
    """Update and log-moments as they are, in one request.

    put  sends the body of a round
    """

    def __init__(self, put: Callable[[int, bytes], object]) -> None:
        self._put, self.taken = put, False

    def prepare(self, assignment: AssignmentBody, session: SignedParameters | None) -> tuple[()]:
        """Nobody needs anything before."""
        self.taken = False
        return ()

    def total_records(self) -> None:
        """The papers' costs are summed under masks only."""

    def body(
        self, round: int, vectors: Sequence[VectorSpec], made: Contribution, log_moments: LogMomentBounds | None
    ) -> bytes:
        """Raises TrainingStopped for a bound that is not finite."""
        update = {UPDATE + name: array for name, array in made.update.items()}
        return encode(update | ({} if log_moments is None else log_moments.tensors()))

    def send(self, round: int, body: bytes) -> None:
        self._put(round, body)
        self.taken = True

    def leave(self, assignment: AssignmentBody) -> None:
        """The refusal says everything."""

    def erase_expired(self) -> None:
        """There are no secrets."""

    def close(self) -> None:
        """Nothing is held."""


def delivery_of(
    client: Client,
    membership: Membership,
    policy: SitePolicy,
    training: LocalTraining,
    verifier: CoordinatorVerifier,
    folder: Path,
) -> Delivery:
    """The delivery that the study's settings ask for. folder: of the study's files on this disk."""
    if training.settings.privacy.masking is None:
        study, name = membership.study, membership.client
        return ClearDelivery(lambda round, body: client.put_update(study, round, name, body, verifier.vouch()))
    floors, state = policy.floors(), folder / "secure-sum"
    believed = verifier.roster, verifier.vouch, verifier.total_records
    return MaskedDelivery(client, membership, floors, training, state, *believed)


def reported(made: Contribution, log_moments: LogMomentBounds | None) -> dict[str, Any] | None:
    """What an update tells of its cost: the bounds that go with it, or the distance that it falls into."""
    told: dict[str, Any] = {}
    if log_moments is not None:
        bounds = log_moments.tensors()
        told |= {"filter": float(bounds[TERMS + "filter"][0]), "moments": bounds[TERMS + "moments"].tolist()}
    if made.client_distance is not None:
        told["distance"] = made.client_distance
    return told or None
