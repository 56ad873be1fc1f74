"""The test files of SQL on FHIR, as its specification has them in the folder `tests` of github.com/FHIR/sql-on-fhir-v2.

    python -m research.benchmarks.view_tests --tests sql-on-fhir-v2/tests

Each case is a view over a few resources with the rows that are expected, or an error. Prints the cases that fail, and
the number that pass for each file and tag.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from record_sources.errors import SourceError
from record_sources.fhir.view_definitions import parse_definition
from record_sources.fhir.views import prepare_view


@dataclass(frozen=True)
class ViewCase:
    """A case after its trial. tag: shareable, experimental, or none."""

    file: str
    title: str
    tag: str
    passed: bool


def tried_cases(folder: Path) -> Iterator[ViewCase]:
    """Try each case of the folder's JSON files. Rows may come in any order."""
    for file in sorted(folder.glob("*.json")):
        content = json.loads(file.read_text("utf-8"), parse_float=Decimal)
        for case in content["tests"]:
            tag = (case.get("tags") or ["none"])[0]
            yield ViewCase(file.name, case["title"], tag, _passes(case, content["resources"]))


def _passes(case: Mapping[str, Any], resources: list[dict[str, Any]]) -> bool:
    try:
        view = prepare_view(parse_definition(case["view"]))
        rows = [dict(zip(view.columns, row, strict=True)) for resource in resources for row in view.rows(resource)]
    except SourceError:
        return bool(case.get("expectError"))
    if "expectColumns" in case and list(view.columns) != case["expectColumns"]:
        return False
    return sorted(map(_written, rows)) == sorted(map(_written, case.get("expect", [{"error": True}])))


def _written(row: Mapping[str, Any]) -> str:
    return json.dumps({name: _comparable(cell) for name, cell in row.items()}, sort_keys=True)


def _comparable(cell: Any) -> Any:
    """Return a cell whose numbers are equal if their values are, as in JavaScript."""
    if isinstance(cell, list):
        return [_comparable(part) for part in cell]
    return float(cell) if isinstance(cell, int | Decimal) and not isinstance(cell, bool) else cell


def main() -> None:
    """Try the cases of a folder and print what passes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=Path, required=True, help="the folder of the test files")
    cases = list(tried_cases(parser.parse_args().tests))
    passed = Counter((case.file, case.tag) for case in cases if case.passed)
    for (file, tag), count in sorted(Counter((case.file, case.tag) for case in cases).items()):
        print(f"{file:24} {tag:14} {passed[file, tag]:3} of {count:3}")
    for case in cases:
        if not case.passed:
            print(f"fails: {case.file}, {case.title}")
    for tag, count in sorted(Counter(case.tag for case in cases).items()):
        print(f"{tag}: {sum(case.passed for case in cases if case.tag == tag)} of {count} pass")


if __name__ == "__main__":
    main()
