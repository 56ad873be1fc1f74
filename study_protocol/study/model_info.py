"""A released model by its number and digest."""

from __future__ import annotations

from pydantic import Field

from study_protocol.wire.values import Message, Sha256


class ModelInfo(Message):
    version: int = Field(ge=0, description="the round that made it; 0 is the initial one")
    sha256: Sha256 = Field(description="SHA-256 of the file")
    bytes: int = Field(gt=0, description="size of the file")
