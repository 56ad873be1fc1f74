"""Goldens: every number that small studies of all combinations show, to be the same after a restructuring.

    python -m tests.goldens.record [--jobs 2]          writes tests/goldens/goldens.json
    pytest tests/goldens                               compares a few that cover every pair of choices in every scheme
    pytest tests/goldens -m "slow or not slow"         compares all

A file that is there is gone on with, on the machine that began it, so an interrupted recording loses little; delete it
to begin anew. Only a change that is meant to alter numbers does that.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import multiprocessing
import platform
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from tests.goldens import adapter
from tests.goldens.combinations import Combination, covering, product

PATH = Path(__file__).with_name("goldens.json")
_LIBRARIES = ("numpy", "scipy", "torch", "dp-accounting")
_SHORT = 24
_SAVE_SECONDS = 30.0


@functools.cache
def possible() -> tuple[list[Combination], dict[str, int]]:
    """The combinations of which studies can be made, and how many cannot, by scheme, masking and disclosure."""
    made: list[Combination] = []
    refused: Counter[str] = Counter()
    for chosen in product():
        try:
            adapter.settings_of(chosen)
        except adapter.NoStudy:
            refused[f"{chosen.scheme} {chosen.masking} {chosen.disclosure}"] += 1
        else:
            made.append(chosen)
    return made, dict(refused)


@functools.cache
def first() -> list[Combination]:
    """Those in which every pair of choices occurs within every scheme."""
    made = possible()[0]
    schemes = dict.fromkeys(one.scheme for one in made)
    return [one for scheme in schemes for one in covering([one for one in made if one.scheme == scheme])]


def machine() -> dict[str, str]:
    """What the last bits of a float may depend on."""
    cpuinfo = Path("/proc/cpuinfo")
    told = cpuinfo.read_text() if cpuinfo.exists() else platform.processor()
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        **{name: version(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "processor": f"{platform.machine()} {capability} {processor(told)}",
    }


def processor(told: str) -> str:
    """A digest of what the system tells of its first processor.

    Libraries choose their kernels by what it can do, its flags among it. Its name alone says too little: virtual
    machines give one name to many processors.
    """
    first = told.strip().split("\n\n")[0].splitlines()
    kinds = ("model name", "cpu family", "model\t", "stepping", "flags", "CPU ", "Features")
    known = [line for line in first if line.startswith(kinds)]
    return hashlib.sha256("\n".join(known or first).encode()).hexdigest()[:8]


def run(chosen: Combination, bench: adapter.Bench) -> Any:
    """What the study shows, as it reads after JSON."""
    return json.loads(json.dumps(bench.run(chosen), allow_nan=False))


# -- the file: values that occur again stand once, and are referred to as "@" and their number


class Parts:
    """Values by number."""

    def __init__(self, known: Iterable[Any] = ()) -> None:
        self.values = list(known)
        self._numbers = {json.dumps(value): i for i, value in enumerate(self.values)}

    def pack(self, value: Any) -> Any:
        """The value with all of its parts but short ones replaced by references."""
        if isinstance(value, dict):
            packed: Any = {name: self.pack(item) for name, item in value.items()}
        elif isinstance(value, list):
            packed = [self.pack(item) for item in value]
        else:
            return value
        text = json.dumps(packed)
        if len(text) < _SHORT:
            return packed
        if text not in self._numbers:
            self._numbers[text] = len(self.values)
            self.values.append(packed)
        return f"@{self._numbers[text]}"

    def unpack(self, packed: Any) -> Any:
        """Inverse of `pack`."""
        if isinstance(packed, str) and packed.startswith("@"):
            packed = self.values[int(packed[1:])]
        if isinstance(packed, dict):
            return {name: self.unpack(item) for name, item in packed.items()}
        return [self.unpack(item) for item in packed] if isinstance(packed, list) else packed


@functools.cache
def recorded() -> dict[str, Any]:
    """The file, its studies unpacked."""
    reported = json.loads(PATH.read_text())
    parts = Parts(reported["parts"])
    return {**reported, "studies": {name: parts.unpack(packed) for name, packed in reported["studies"].items()}}


def write(studies: dict[str, Any]) -> None:
    """One line a study and one a part, so that a difference shows which."""
    parts = Parts()
    order = {str(chosen): i for i, chosen in enumerate(possible()[0])}
    packed = {name: parts.pack(studies[name]) for name in sorted(studies, key=lambda name: order.get(name, -1))}
    head = {"recorded on": machine(), "possible": len(order), "refused": possible()[1]}
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in head.items()]
    lines.append('"studies": {\n' + ",\n".join(f"{json.dumps(n)}: {json.dumps(v)}" for n, v in packed.items()) + "\n}")
    lines.append('"parts": [\n' + ",\n".join(_text(value) for value in parts.values) + "\n]")
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# -- recording


def _share(wanted: list[Combination]) -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        bench = adapter.Bench(Path(folder))
        for chosen in wanted:
            yield str(chosen), run(chosen, bench)
        bench.close()


def _record_some(wanted: list[Combination]) -> list[tuple[str, Any]]:
    return list(_share(wanted))


def record(jobs: int) -> None:
    """Run what is not in the file yet."""
    if PATH.exists() and recorded()["recorded on"] != machine():
        raise SystemExit(f"{PATH} was begun on another machine or with other libraries: delete it to record anew")
    studies: dict[str, Any] = dict(recorded()["studies"]) if PATH.exists() else {}
    # What covers most comes first, then what costs least.
    rest = sorted(possible()[0], key=lambda one: (one.masking != "none", one.adversary == "path", one.conversion))
    wanted = [one for one in dict.fromkeys([*first(), *rest]) if str(one) not in studies]
    portions = [wanted[i : i + 8] for i in range(0, len(wanted), 8)]
    saved = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for done in pool.imap(_record_some, portions):
            studies |= dict(done)
            if time.monotonic() - saved > _SAVE_SECONDS:
                write(studies)
                saved = time.monotonic()
    write(studies)
    print(f"{len(studies)} of {len(possible()[0])} possible studies, {PATH.stat().st_size} bytes")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--jobs", type=int, default=2)
    record(options.parse_args().jobs)
