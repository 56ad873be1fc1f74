"""Read the limits of `quality.toml` and compare them with measured figures and with an earlier version of the file.

Every figure is a table with a `ceiling` or a `floor`. It has a `target` where the figure shall go on from there, and a
sentence `why` where the limit was loosened:

    [shipped_lines]
    ceiling = 77552
    target = 76000
    why = "The query of percentiles adds 400 lines."
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import tomlkit

Bound = Literal["ceiling", "floor"]
KEYS = frozenset({"ceiling", "floor", "target", "why"})


class LimitsError(Exception):
    """The file of limits cannot be used. The message says what to correct."""


@dataclass(frozen=True)
class FigureLimit:
    """The limit of one figure: at most `value` for a ceiling, at least `value` for a floor."""

    figure: str
    bound: Bound
    value: float
    target: float | None = None
    why: str = ""

    def is_kept_by(self, measured: float) -> bool:
        return measured <= self.value if self.bound == "ceiling" else measured >= self.value

    def can_tighten_to(self, measured: float) -> bool:
        return self.is_kept_by(measured) and measured != self.value

    def is_looser_than(self, earlier: FigureLimit) -> bool:
        return self.bound != earlier.bound or not earlier.is_kept_by(self.value)


def as_text(value: float) -> str:
    """Write a number as the table and the sentences show it: 77,552 or 0.5, and 64 for 64.0."""
    return f"{_whole(value):,}"


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def read_limits(text: str, figures: Collection[str]) -> dict[str, FigureLimit]:
    """Read the text of `quality.toml`, which must limit exactly `figures`.

    Raises:
        LimitsError: it is no TOML, a figure is unknown or missing, or a limit is not one finite number.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise LimitsError(f"it is not valid TOML: {error}") from error
    if unknown := sorted(tables.keys() - set(figures)):
        raise LimitsError(f"unknown figure {', '.join(unknown)}. Remove it, or correct its name.")
    if missing := sorted(set(figures) - tables.keys()):
        raise LimitsError(f"no limit for {', '.join(missing)}. Add a table with a ceiling or a floor.")
    return {figure: _limit(figure, table) for figure, table in tables.items()}


def _limit(figure: str, table: Any) -> FigureLimit:
    if not isinstance(table, dict) or not table.keys() <= KEYS:
        raise LimitsError(f"{figure} must be a table with the keys {', '.join(sorted(KEYS))} and no other.")
    entries: dict[str, Any] = {**table}
    if ("ceiling" in entries) == ("floor" in entries):
        raise LimitsError(f"{figure} needs either a ceiling or a floor.")
    bound: Bound = "ceiling" if "ceiling" in entries else "floor"
    reason = entries.get("why", "")
    if not isinstance(reason, str) or ("why" in entries and not reason.strip()):
        raise LimitsError(f"{figure}.why must be a sentence.")
    target = _number(f"{figure}.target", entries["target"]) if "target" in entries else None
    return FigureLimit(figure, bound, _number(f"{figure}.{bound}", entries[bound]), target, reason.strip())


def _number(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise LimitsError(f"{place} is {value!r}. It must be a finite number.")
    return value


def broken_limits(limits: Mapping[str, FigureLimit], measured: Mapping[str, float]) -> Iterator[str]:
    """Yield a sentence for every measured figure that is over its ceiling or under its floor."""
    for figure, value in measured.items():
        limit = limits[figure]
        if not limit.is_kept_by(value):
            side = "over its ceiling" if limit.bound == "ceiling" else "under its floor"
            yield (
                f"{figure} is {as_text(value)}, which is {side} of {as_text(limit.value)}. "
                f'Bring it back, or move the {limit.bound} and give the reason in a new sentence "why".'
            )


def loosened_without_reason(limits: Mapping[str, FigureLimit], earlier: Mapping[str, FigureLimit]) -> Iterator[str]:
    """Yield a sentence for every limit that is looser than in the `earlier` file and has no new sentence `why`."""
    for figure, limit in limits.items():
        before = earlier.get(figure)
        if before and limit.is_looser_than(before) and limit.why in ("", before.why):
            yield (
                f"{figure} had the {before.bound} {as_text(before.value)} "
                f"and has the {limit.bound} {as_text(limit.value)} now. "
                f'Give the reason in a new sentence "why", or take the old limit.'
            )


def tightened(text: str, limits: Mapping[str, FigureLimit], measured: Mapping[str, float]) -> str:
    """Return the text of `quality.toml` with every limit at the measured value where that is tighter."""
    document: dict[str, Any] = tomlkit.parse(text)
    for figure, value in measured.items():
        limit = limits[figure]
        if limit.can_tighten_to(value):
            document[figure][limit.bound] = _whole(value)
    return tomlkit.dumps(document)
