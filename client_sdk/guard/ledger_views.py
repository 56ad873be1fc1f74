"""What a hospital's ledger says of one round and of one body that left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

BodyKind = Literal["update", "refusal"]


@dataclass(frozen=True)
class ChargedRound:
    """A round this ledger has paid for. `sha256` of the finished update; None until there is one.

    sequence: of the entry that holds the charge.
    """

    sequence: int
    model_sha256: str
    sha256: str | None


@dataclass(frozen=True)
class OwnRound:
    """What this hospital knows of its own part in a round.

    taken     the coordinator acknowledged an update, or shares that open it: it may have learnt something
    finished  an update was made ready, and may have left
    reported  the bound that it told, or the distance that it fell into; None where it told none
    """

    taken: bool
    finished: bool
    reported: Mapping[str, Any] | None


@dataclass(frozen=True)
class Departure:
    """One body. `ready_at`: from here on it may have left; `sent_at`, `answer`: when and how the coordinator answered.

    charge: sequence number of the ledger entry that paid for it; a refusal needs none.
    Times are UTC in ISO 8601.
    """

    study: str
    round: int
    what: BodyKind
    sha256: str
    bytes: int
    charge: int | None
    ready_at: str
    answer: str | None = None
    sent_at: str | None = None
