"""The file of this machine that is a study's backbone, and its kind as given by a person here. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ProgramFile:
    """A file that holds a program (ONNX), which is run on the records. A plain path holds weights (safetensors)."""

    path: str | Path


BackboneFile = str | Path | ProgramFile
"""Weights by their path, or a program that was given as one: no file of weights is ever run."""
