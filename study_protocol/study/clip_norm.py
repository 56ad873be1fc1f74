"""The least clip norm of a study: the same for the coordinator, for every hospital and for the gradients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from study_protocol.wire.values import Finite

MIN_CLIP_NORM = 1e-6
"""Norms are computed in float32, whose squares vanish below 4e-23: beside inputs of 10¹² a gradient of 6e-10 had norm 0
and was not clipped. From here on what is lost so lies within the room that the clip factor leaves."""

ClipNorm = Annotated[Finite, Field(ge=MIN_CLIP_NORM)]
