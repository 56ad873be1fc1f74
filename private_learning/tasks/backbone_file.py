"""Which file of this machine a study's backbone is, and as what a person here gave it. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProgramFile:
    """A file that holds a program (ONNX), which is run on the records. A plain path holds weights (safetensors)."""

    path: str | Path


BackboneFile = str | Path | ProgramFile
"""Weights by their path, or a program that was given as one: no file of weights is ever run."""
