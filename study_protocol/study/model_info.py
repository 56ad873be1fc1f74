"""A released model by its number and digest."""

from __future__ import annotations

from pydantic import Field

from study_protocol.wire.values import Message, Positive, Sha256


class ModelInfo(Message):
    version: int = Field(ge=0, description="the round that made it; 0 is the initial one")
    sha256: Sha256 = Field(description="SHA-256 of the file")
    bytes: int = Field(gt=0, description="size of the file")
    # Left out where there is none: documents of other studies stay as earlier versions sign them.
    clip_norm: Positive | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="of the rounds that start from it, where the study's clip norm is adaptive",
    )
