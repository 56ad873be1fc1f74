"""Records that `wardround synth` wrote, as records of a simulation: how they are read, and what they cannot show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wardround.cli.shared.shared import say

if TYPE_CHECKING:
    from synthesis.file import Provenance
    from wardround.cli.hospital.table_format import FormatOptions

_LEVEL = "expect the order of settings from them and not the level"
# Noise leaves a few patients in cells where nobody is.
_CELLS = "Leave out their rows with missing or other cells where the study allows none"


def format_of(paths: Sequence[Path], options: FormatOptions) -> FormatOptions:
    """Return the options, or the format of synthetic CSV files where none is given and all files are such."""
    are_synthetic = all(path.suffix == ".csv" and _provenance(path) is not None for path in paths)
    if options.are_given or not are_synthetic:
        return options
    return replace(options, separator="comma", encoding="utf-8", decimal="point")


def say_if_synthetic(paths: Sequence[Path]) -> None:
    """Say of synthetic records what a simulation on them does not promise."""
    for path in paths:
        provenance = _provenance(path)
        if provenance is not None:
            say(
                f"note: {path.name} holds synthetic records of study {provenance.study}. {_words(provenance)}", err=True
            )


def _words(provenance: Provenance) -> str:
    from study_protocol.study.synthesis import STAGES

    if len(provenance.answers) < STAGES:
        return f"No pairs of columns were measured: the accuracy may be 7 to 12 points too high, so {_LEVEL}"
    return f"The accuracy may be too high: {_LEVEL}"


def _provenance(path: Path) -> Provenance | None:
    from synthesis.file import provenance_of

    try:
        return provenance_of(path)
    except (OSError, ValueError):
        # Another program's file, or none. Who reads its records says what is wrong with them.
        return None
