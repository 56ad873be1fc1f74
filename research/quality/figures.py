"""Measure what something has to run for: python -m research.quality.figures [--record KEY].

Watches one update in the clear and one under masks (`research.benchmarks.way_of_an_update`), and reads the times of the
last whole `make test` from `.figures/junit.xml` if it is there. Prints the figures that `quality.toml` limits, those of
the source text too, and exits with 1 where one breaks its limit.

The order of the coordinator's files differs from run to run, because it answers several hospitals at once. The masked
update is watched three times, and the run with the fewest returns is taken.

`--record KEY` writes all figures under KEY of research/benchmarks/results/structure.json, in place of what stands
there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from research.quality import language, structure
from research.quality.check import FILE, MEASURED_BY_RUNNING, compare, limited
from research.quality.limits import LimitsError, read_limits
from research.quality.structure import MeasurementError, record

ROOT = Path(__file__).parents[2]
TIMES = Path(".figures", "junit.xml")
# The property of a test case that tests/conftest.py writes.
PROCESSOR_SECONDS = "processor_seconds"
FOLDER_DEPTH = 3
MASKED_RUNS = 3


@dataclass(frozen=True)
class CaseTime:
    """The seconds of one test case, its fixtures included. `processor` is None where it was not measured."""

    module: str
    wall: float
    processor: float | None

    @property
    def folder(self) -> str:
        """The folder of the test file, at most three names deep: "tests/server/services"."""
        return "/".join(self.module.split(".")[:-1][:FOLDER_DEPTH])


def read_times(path: Path) -> tuple[float, list[CaseTime]]:
    """Return the wall seconds of the whole run, and the times of its test cases.

    Raises:
        MeasurementError: the file is not the JUnit XML that pytest writes.
    """
    try:
        suites = list(ElementTree.parse(path).getroot().iter("testsuite"))
        cases = [_time(case) for suite in suites for case in suite.iter("testcase")]
        return sum(float(suite.attrib["time"]) for suite in suites), cases
    except (ElementTree.ParseError, KeyError, ValueError) as error:
        raise MeasurementError(f"{path} is no JUnit XML of pytest: {error!r}. Run `make test` again.") from error


def _time(case: ElementTree.Element) -> CaseTime:
    properties = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
    processor = properties.get(PROCESSOR_SECONDS)
    return CaseTime(_module(case), float(case.attrib["time"]), None if processor is None else float(processor))


def _module(case: ElementTree.Element) -> str:
    """Return the dotted name of the test's module. Pytest adds the classes of the test to it."""
    parts = case.attrib["classname"].split(".")
    last = max((place for place, part in enumerate(parts) if part.startswith("test_")), default=len(parts) - 1)
    return ".".join(parts[: last + 1])


def times_by_folder(wall: float, cases: Iterable[CaseTime]) -> dict[str, Any]:
    """Sum the seconds of the cases by folder. Processor seconds are None where a case has none."""
    folders: dict[str, list[CaseTime]] = defaultdict(list)
    for case in cases:
        folders[case.folder].append(case)
    every = [case for group in folders.values() for case in group]
    return {
        "run_wall_seconds": round(wall, 1),
        **_sums(every),
        "folders": {folder: _sums(group) for folder, group in sorted(folders.items())},
    }


def _sums(cases: list[CaseTime]) -> dict[str, Any]:
    processor = [case.processor for case in cases if case.processor is not None]
    return {
        "cases": len(cases),
        "wall_seconds": round(sum(case.wall for case in cases), 1),
        "processor_seconds": round(sum(processor), 1) if len(processor) == len(cases) else None,
    }


def limited_by_running(ways: Mapping[str, Any], times: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the figures that `quality.toml` limits, those of the times only where they were measured."""
    masked = ways["masked"]
    values: dict[str, float] = {
        "masked_update_files": masked["files"],
        "masked_update_hospital_returns": masked["hospital"]["returns"],
        "masked_update_coordinator_returns": masked["coordinator"]["returns"],
    }
    if times:
        values["test_minutes"] = round(times["run_wall_seconds"] / 60, 1)
        if times["processor_seconds"] is not None:
            values["test_processor_minutes"] = round(times["processor_seconds"] / 60, 1)
    return values


def watched_ways() -> dict[str, Any]:
    """Watch one update in the clear, and the one under masks whose coordinator has the fewest returns."""
    from research.benchmarks.watched_round import run
    from research.benchmarks.way_of_an_update import figures

    masked = [figures(run(masked=True)) for _ in range(MASKED_RUNS)]
    return {
        "clear": figures(run(masked=False)),
        "masked": min(masked, key=lambda way: way["coordinator"]["returns"]),
    }


def write_record(root: Path, key: str, parts: Mapping[str, Any]) -> None:
    """Write every part under `key` of the results in place of what stands there."""
    path = root / structure.RESULTS.relative_to(ROOT)
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(recorded | {key: {}}), encoding="utf-8")
    for part, measured in parts.items():
        record(path, key, part, measured)


def summary(times: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield the times by folder, the longest first, or where they would come from."""
    if not times:
        yield f"{TIMES} is missing. A whole `make test` writes the times of the tests into it."
        return
    folders = times["folders"]
    yield f"{'folder of tests':32}  {'cases':>7}  {'wall s':>9}  {'processor s':>11}"
    for folder in sorted(folders, key=lambda name: -folders[name]["wall_seconds"]):
        sums = folders[folder]
        processor = "" if sums["processor_seconds"] is None else f"{sums['processor_seconds']:,}"
        yield f"{folder:32}  {sums['cases']:>7,}  {sums['wall_seconds']:>9,}  {processor:>11}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", metavar="KEY")
    options = parser.parse_args(arguments)
    try:
        times = times_by_folder(*read_times(ROOT / TIMES)) if (ROOT / TIMES).exists() else None
        parts = {"structure": structure.figures(ROOT), "language": language.figures(ROOT)}
        figures = (*limited(parts["structure"], parts["language"]), *MEASURED_BY_RUNNING)
        limits = read_limits((ROOT / FILE).read_text(encoding="utf-8"), figures)
    except (LimitsError, MeasurementError, OSError) as error:
        print(f"{FILE}: {error}", file=sys.stderr)
        return 2
    parts["language"]["commits"] = language.commits(ROOT)
    parts["way_of_an_update"] = watched_ways()
    if times:
        parts["tests"] = times
    print(*summary(times), "", sep="\n")
    source = limited(parts["structure"], parts["language"])
    is_kept = compare(limits, source | limited_by_running(parts["way_of_an_update"], times))
    if options.record:
        write_record(ROOT, options.record, parts)
    return 0 if is_kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
