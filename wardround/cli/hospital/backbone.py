"""The two options that give a study's backbone: weights, or a program that is run on the records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from private_learning.tasks.backbone_file import BackboneFile

Weights = Annotated[
    Path | None,
    typer.Option("--backbone", help="file of the public weights that the study names (training.backbone), safetensors"),
]
Program = Annotated[
    Path | None,
    typer.Option(
        "--backbone-program", help="ONNX file of the program that a study of task features names, run on the records"
    ),
]


def backbone_file(weights: Path | None, program: Path | None) -> BackboneFile | None:
    """What the options give; None: neither is there.

    Raises:
        BadParameter: both.
    """
    if program is None:
        return weights
    if weights is not None:
        raise typer.BadParameter("a study has public weights or a program: give --backbone or --backbone-program")
    from private_learning.tasks.backbone_file import ProgramFile

    return ProgramFile(program)
