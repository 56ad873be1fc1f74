"""Run lines of the papers' tables: python -m research.tables II --clients 100 --epsilon 8 --seeds 5

Each line replaces its file in research/benchmarks/results/tables; --docs writes docs/tables.md from all of them.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from private_learning.errors import ConfigurationError
from private_learning.records import DataError
from research.tables.catalogue import CatalogueEntry, entries, selected_entries
from research.tables.page import PAGE, markdown
from research.tables.result import RESULTS, Row, read, write
from wardround.demo.scenarios import DataMissing


def main(arguments: list[str] | None = None) -> int:
    """0: everything that was asked for was run. 2: the question was wrong."""
    options = _parser().parse_args(arguments)
    if not options.table and not options.docs:
        print("name a table, or --docs", file=sys.stderr)
        return 2
    if options.table:
        selectors = {key: str(value) for key in ("clients", "epsilon", "data") if (value := getattr(options, key))}
        try:
            lines = selected_entries(options.table, selectors)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
        for entry in lines:
            if not _run(entry, options):
                return 2
    if options.docs:
        options.page.write_text(markdown(entries(), read(options.results)), encoding="utf-8")
    return 0


def _run(entry: CatalogueEntry, options: argparse.Namespace) -> bool:
    """False: the folder that was named cannot be used."""
    folder: Path | None = options.folder
    if folder is not None and entry.own is None:
        print(f"{entry.table}, {entry.name}: has its own records; --folder is for lines that are not re-run here")
        return False
    if folder is None and options.backbone is not None:
        print("--backbone is for the pictures of a folder: name it with --folder", file=sys.stderr)
        return False
    run = entry.run if folder is None or entry.own is None else partial(entry.own, folder, options.backbone)
    if run is None:
        print(f"{entry.table}, {entry.name}: not re-run: {entry.reason}")
        return True
    try:
        row = run(range(options.seeds))
    except (DataError, DataMissing, ConfigurationError) as error:
        print(error, file=sys.stderr)
        return False
    write(row, options.results)
    print(line(row), flush=True)
    return True


def line(row: Row) -> str:
    """One line's result in words."""
    spent = "; ".join(
        f"{each.kind} ({each.level}) {'∞' if each.epsilon is None else f'{each.epsilon:.3g}'}" for each in row.spent
    )
    return f"{row.table}, {row.name}: {row.mean:.2f} ± {row.error:.2f} over {len(row.seeds)} seeds; ε: {spent}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m research.tables", description=__doc__)
    parser.add_argument("table", nargs="?", help="I, II, III, IV or ICML")
    parser.add_argument("--clients", help="lines with this many clients")
    parser.add_argument("--epsilon", help="lines at this ε")
    parser.add_argument("--data", help="lines of this data set")
    parser.add_argument(
        "--folder", type=Path, help="train/<class>/ and test/<class>/ with images, or CIFAR-10's batches in binary form"
    )
    parser.add_argument("--backbone", type=Path, help="ONNX program that makes their features")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0, 1, … (5)")
    parser.add_argument("--docs", action="store_true", help="write the page from the results")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    return parser


if __name__ == "__main__":
    sys.exit(main())
