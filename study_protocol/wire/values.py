"""Values of every message on the wire: strict numbers, names, and models that never change."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
Name = Annotated[str, Field(pattern=NAME_PATTERN, description="lower-case letters, digits and hyphens, at most 63")]


def _not_negative_zero(value: float) -> float:
    if value == 0 and math.copysign(1.0, value) < 0:
        raise ValueError("negative zero is not a number of this protocol")
    return value


# Strict: "1" and true are no numbers where numbers are promises.
Finite = Annotated[float, Field(allow_inf_nan=False, strict=True), AfterValidator(_not_negative_zero)]
Whole = Annotated[int, Field(strict=True)]
Positive = Annotated[Finite, Field(gt=0)]
Probability = Annotated[Finite, Field(gt=0, lt=1)]
Rate = Annotated[Finite, Field(gt=0, le=1)]
Share = Annotated[Finite, Field(ge=0, lt=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 in hex")]


class Message(BaseModel):
    """Base of everything on the wire: unknown fields are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
