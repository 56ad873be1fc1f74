"""Fuzzing and chaos in parts, each of which runs once: python -m tests.harness.campaigns [PART ...] [--list]

A part is a command and a name. One that has passed is marked by a file in `.campaigns` and left out from then on, so
that a campaign of hours may be stopped and taken up again. One that failed, or was stopped, begins anew. To run a part
once more, delete its mark, `.campaigns/PART.json`. What it printed lies beside it. At the end stands a table of all
parts. The exit code is 0 only if every part that was asked for has passed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.harness.fuzzing.run import NAMES

ROOT = Path(__file__).parents[2]
MARKS = ROOT / ".campaigns"
CHAOS_MINUTES = 30
PARSER_MINUTES = 10
INSIDE_MINUTES = 15
SEEDS = range(1, 6)


@dataclass(frozen=True)
class Part:
    """A command that is run by this Python, and what it is for."""

    command: tuple[str, ...]
    about: str


def _fuzz(seed: int) -> Part:
    # Tests without a number of their own get that of the profile; those with one, other examples of the same number.
    arguments = ("-m", "hypothesis", "--hypothesis-profile", "campaign", f"--hypothesis-seed={seed}")
    return Part(("-m", "pytest", "-n", "2", "--timeout", "3600", *arguments), f"random tests, seed {seed}")


def _chaos(seed: int, about: str, *options: str) -> Part:
    return Part(("-m", "tests.harness.chaos", "--minutes", str(CHAOS_MINUTES), "--seed", str(seed), *options), about)


def _parse(name: str) -> Part:
    command = ("-m", "tests.harness.fuzzing.run", name, "--minutes", str(PARSER_MINUTES))
    return Part(command, f"the parser of {name}, with bytes that coverage guides")


def _inside(seed: int, about: str, *options: str) -> Part:
    arguments = ("--minutes", str(INSIDE_MINUTES), "--seed", str(seed), *options)
    return Part(("-m", "tests.harness.inside_storm", *arguments), about)


PARTS: Mapping[str, Part] = {
    **{f"fuzz-{seed}": _fuzz(seed) for seed in SEEDS},
    **{f"parse-{name}": _parse(name) for name in NAMES},
    "chaos-sqlite": _chaos(1, "faults of processes, disks, clocks and network, on SQLite"),
    "chaos-postgresql": _chaos(2, "the same on PostgreSQL, with workers apart", "--postgres", *("--layout", "apart")),
    "chaos-objects": _chaos(
        3, "the same, with an object store in place of a shared disk", *("--postgres", "--blobs", "objects")
    ),
    "inside-sqlite": _inside(4, "many injected faults in one process, on SQLite"),
    "inside-sqlite-apart": _inside(5, "the same, with workers apart", *("--layout", "apart")),
    "inside-postgresql": _inside(6, "the same on PostgreSQL", "--postgres"),
    "inside-postgresql-apart": _inside(
        7, "the same on PostgreSQL, with workers apart", "--postgres", *("--layout", "apart")
    ),
}


@dataclass(frozen=True)
class Campaigns:
    """Runs parts and remembers which have passed.

    marks  a folder, made when a part first runs: NAME.json once the part has passed, NAME.log what it printed last
    """

    parts: Mapping[str, Part]
    marks: Path

    def passed(self, name: str) -> dict[str, Any] | None:
        """When, in how many seconds, and at which commit; None before that."""
        mark = self.marks / f"{name}.json"
        return json.loads(mark.read_text()) if mark.exists() else None

    def run(self, name: str) -> bool:
        """Run the part from its beginning; whether it passed."""
        self.marks.mkdir(exist_ok=True)
        mark, began = self.marks / f"{name}.json", time.monotonic()
        with (self.marks / f"{name}.log").open("w") as log:
            done = subprocess.run([sys.executable, *self.parts[name].command], cwd=ROOT, stdout=log, stderr=log)
        if done.returncode != 0:
            return False
        new_mark = {"seconds": round(time.monotonic() - began), "commit": _commit()}
        # Whole or not there: a mark that was half written would count as a part that has passed.
        temporary = mark.with_suffix(".new")
        temporary.write_text(json.dumps(new_mark) + "\n")
        temporary.replace(mark)
        return True

    def table(self) -> Table:
        """One row for each part, whatever was asked for."""
        table = Table("part", "state", "seconds", "commit", "what", title="campaigns")
        for name, part in self.parts.items():
            mark = self.passed(name)
            state = ("passed", str(mark["seconds"]), mark["commit"]) if mark else (self._not_passed(name), "", "")
            table.add_row(name, *state, part.about)
        return table

    def _not_passed(self, name: str) -> str:
        return "not passed" if (self.marks / f"{name}.log").exists() else "not run"


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip() or "unknown"


def main(argv: Sequence[str] | None = None, campaigns: Campaigns | None = None) -> int:
    campaigns = campaigns or Campaigns(PARTS, MARKS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(campaigns.parts))
    parser.add_argument("--list", action="store_true", help="show the parts and run none")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.parts if name not in campaigns.parts]:
        parser.error(f"no part is called {unknown[0]}: the parts are {', '.join(campaigns.parts)}")
    console, part_names = Console(), options.parts or list(campaigns.parts)
    if not options.list:
        for name in (name for name in part_names if campaigns.passed(name) is None):
            console.print(f"{name}: {campaigns.parts[name].about}; output in {campaigns.marks / name}.log")
            if not campaigns.run(name):
                console.print(f"{name} failed")
    console.print(campaigns.table())
    return int(not options.list and any(campaigns.passed(name) is None for name in part_names))


if __name__ == "__main__":
    sys.exit(main())
