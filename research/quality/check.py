"""Check the figures of the source text against `quality.toml`: python -m research.quality.check [ROOT] [--lower].

Exits with 1 where a figure breaks its limit, or a limit was loosened without a new sentence `why`. A limit is compared
with the last commit, or with the one before where `quality.toml` is as it was committed. Exits with 2 where
`quality.toml` or the source cannot be read. `--lower` moves every limit to the measured value where that is tighter.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from research.quality import language, structure
from research.quality.limits import (
    FigureLimit,
    LimitsError,
    as_text,
    broken_limits,
    loosened_without_reason,
    read_limits,
    tightened,
)
from research.quality.structure import MeasurementError

FILE = "quality.toml"
# Figures that `make figures` measures, because something has to run for them.
MEASURED_BY_RUNNING = (
    "masked_update_files",
    "masked_update_hospital_returns",
    "masked_update_coordinator_returns",
    "test_minutes",
    "test_processor_minutes",
)


def measure(root: Path) -> dict[str, float]:
    """Measure every figure that the source text of `root` tells."""
    return limited(structure.figures(root), language.figures(root))


def limited(of_structure: Mapping[str, Any], of_language: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of both measurements that `quality.toml` limits."""
    return structure.limited(of_structure) | language.limited(of_language)


def committed_text(root: Path, text: str) -> str | None:
    """Return the committed `quality.toml` that differs from `text`: the last one, or the one before the last commit.

    None where git, a commit or the file in it is missing.
    """
    for revision in ("HEAD", "HEAD^"):
        try:
            command = ["git", "show", f"{revision}:./{FILE}"]
            process = subprocess.run(command, cwd=root, capture_output=True, check=False)
        except OSError:
            return None
        if process.returncode:
            return None
        if (committed := process.stdout.decode("utf-8", "replace")) != text:
            return committed
    return None


def earlier_limits(root: Path, text: str) -> dict[str, FigureLimit]:
    """Read the limits of the committed file that `text` replaces. Empty where there is none that can be read."""
    committed = committed_text(root, text)
    try:
        return read_limits(committed, tomllib.loads(committed).keys()) if committed else {}
    except (LimitsError, ValueError):
        return {}


def table(limits: Mapping[str, FigureLimit], measured: Mapping[str, float]) -> Iterator[str]:
    """Yield the lines of a table: figure, now, limit, target, and where the limit can be tightened."""
    width = max(map(len, measured), default=0)
    yield f"{'figure':{width}}  {'now':>9}  {'limit':>12}  {'target':>9}"
    for figure, value in measured.items():
        limit = limits[figure]
        target = "" if limit.target is None else as_text(limit.target)
        limit_text = f"{'<=' if limit.bound == 'ceiling' else '>='} {as_text(limit.value)}"
        verb = "lowered" if limit.bound == "ceiling" else "raised"
        remark = f"  can be {verb} to {as_text(value)}" if limit.can_tighten_to(value) else ""
        yield f"{figure:{width}}  {as_text(value):>9}  {limit_text:>12}  {target:>9}{remark}"


def compare(limits: Mapping[str, FigureLimit], measured: Mapping[str, float]) -> bool:
    """Print the table and a sentence for each broken limit. Return whether every limit is kept."""
    print(*table(limits, measured), sep="\n")
    broken = list(broken_limits(limits, measured))
    _complain(broken)
    return not broken


def _complain(sentences: list[str]) -> None:
    sys.stdout.flush()
    for sentence in sentences:
        print(f"{FILE}: {sentence}", file=sys.stderr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    parser.add_argument("--lower", action="store_true", help="tighten every limit to the measured value")
    options = parser.parse_args(arguments)
    root: Path = options.root.resolve()
    path = root / FILE
    try:
        text = path.read_text(encoding="utf-8")
        measured = measure(root)
        limits = read_limits(text, (*measured, *MEASURED_BY_RUNNING))
    except (LimitsError, MeasurementError, OSError, UnicodeDecodeError) as error:
        _complain([str(error)])
        return 2
    is_kept = compare(limits, measured)
    loosened = list(loosened_without_reason(limits, earlier_limits(root, text)))
    _complain(loosened)
    if options.lower:
        path.write_text(tightened(text, limits, measured), encoding="utf-8")
    return 0 if is_kept and not loosened else 1


if __name__ == "__main__":
    raise SystemExit(main())
