"""Compute and draw figures of the thesis: python -m research.figures 5.4"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from research.figures import page, table
from research.figures.catalogue import FIGURES
from research.figures.drawing import svg
from research.figures.figure import Figure
from wardround.demo.scenarios import DataMissing

_ROOT = Path(__file__).parents[2]
TABLES, DRAWINGS = _ROOT / "research/benchmarks/results/figures", _ROOT / "docs/figures"
PAGE = _ROOT / "docs/figures.md"


def main() -> int:
    """Numbers into CSV, drawings into SVG, and the page anew when all tables are there."""
    parser = argparse.ArgumentParser(prog="python -m research.figures", description=__doc__)
    parser.add_argument(
        "number", nargs="+", choices=[*FIGURES, "all"], metavar="NUMBER", help=f"{', '.join(FIGURES)}, all"
    )
    parser.add_argument("--draw", action="store_true", help="draw from the tables that are there, compute nothing")
    parser.add_argument("--out", type=Path, help="a folder for tables and drawings, in place of the repository's")
    options = parser.parse_args()
    tables, drawings = (options.out, options.out) if options.out else (TABLES, DRAWINGS)
    for folder in (tables, drawings):
        folder.mkdir(parents=True, exist_ok=True)
    figures = FIGURES.values() if "all" in options.number else [FIGURES[number] for number in options.number]
    missing = [figure for figure in figures if not _make_figure(figure, tables, drawings, compute=not options.draw)]
    if options.out is None and all((TABLES / f"{figure.stem}.csv").exists() for figure in FIGURES.values()):
        PAGE.write_text(page.page(TABLES), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(_ROOT)}")
    return 1 if missing else 0


def _make_figure(figure: Figure, tables: Path, drawings: Path, *, compute: bool) -> bool:
    path, drawing, began = tables / f"{figure.stem}.csv", drawings / f"{figure.stem}.svg", time.monotonic()
    try:
        if compute:
            table.write(path, figure.compute())
        points = table.read(path)
    except DataMissing as missing:
        print(f"Figure {figure.number} needs {figure.data}: {missing}", file=sys.stderr)
        return False
    except FileNotFoundError:
        print(f"Figure {figure.number} has no table {path} yet: leave out --draw", file=sys.stderr)
        return False
    drawing.write_text(svg(figure, points, table.digest(path)), encoding="utf-8")
    print(f"Figure {figure.number}: {path}, {drawing} ({time.monotonic() - began:.0f} s)")
    print(figure.caption(points))
    return True


if __name__ == "__main__":
    sys.exit(main())
