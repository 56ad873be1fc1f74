"""Witnesses that are no hospitals: an auditor, whose key the study's settings name, signs the ledger's heads too."""

from __future__ import annotations

from pydantic import Field

from study_protocol.wire.octets import EncodedKey
from study_protocol.wire.values import Message, Name

# Each is a person who is asked. A ledger's page carries a signature of every one.
MAX_WITNESSES = 16


class OutsideWitness(Message):
    """The name and key of a signer of heads who is no member of the study."""

    name: Name = Field(description="not a hospital's name")
    public_key: EncodedKey = Field(description="as `wardround witness key` prints it on the auditor's machine")


def require_different(witnesses: tuple[OutsideWitness, ...]) -> tuple[OutsideWitness, ...]:
    """Raises ValueError: two have one name or one key."""
    for values in ([witness.name for witness in witnesses], [witness.public_key for witness in witnesses]):
        if len(set(values)) < len(values):
            raise ValueError("each outside witness has a name and a key of its own")
    return witnesses
