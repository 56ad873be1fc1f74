"""The two options for a study's backbone: public weights, or a program that runs on the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from private_learning.tasks.backbone_file import BackboneFile

Weights = Annotated[
    Path | None,
    typer.Option(
        "--backbone", help="safetensors file with the public weights that the study names (training.backbone)"
    ),
]
Program = Annotated[
    Path | None,
    typer.Option(
        "--backbone-program", help="ONNX file of the program that a study with task features runs on the records"
    ),
]


def backbone_file(weights: Path | None, program: Path | None) -> BackboneFile | None:
    """Return the backbone that the options name, or None if both are missing.

    Raises:
        BadParameter: both options are given.
    """
    if program is None:
        return weights
    if weights is not None:
        raise typer.BadParameter("a study has public weights or a program: give --backbone or --backbone-program")
    from private_learning.tasks.backbone_file import ProgramFile

    return ProgramFile(program)
