"""The studies of today show what was recorded: models' bytes, opened sums, and every ε, δ and λ told on the way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest

from tests.goldens import adapter, record
from tests.goldens.combinations import Combination

_EXACT = record.machine() == record.recorded()["recorded on"]
_HOW = (
    "If this change is meant to alter numbers, delete tests/goldens/goldens.json, run `python -m tests.goldens.record` "
    "and say in the commit which numbers changed and why. If it is not, the change is wrong."
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[adapter.Bench]:
    made = adapter.Bench(tmp_path_factory.mktemp("goldens"))
    yield made
    made.close()


def _wanted() -> list[Any]:
    quick = {str(chosen) for chosen in record.first()}
    names = record.recorded()["studies"]
    # A test's name has a length that it may have.
    short = {name: name.removeprefix("client-") for name in names}
    return [pytest.param(name, id=short[name], marks=() if name in quick else pytest.mark.slow) for name in names]


def test_the_same_choices_exclude_each_other() -> None:
    made, refused = record.possible()
    assert len(made) == record.recorded()["possible"] >= 320
    assert refused == record.recorded()["refused"]
    assert {str(chosen) for chosen in record.first()} <= set(record.recorded()["studies"])
    assert set(record.recorded()["studies"]) <= {str(chosen) for chosen in made}


def test_processors_of_one_name_that_can_do_different_things_are_told_apart() -> None:
    told = "processor\t: {}\nmodel name\t: AMD EPYC\ncpu MHz\t: {}\nflags\t: fpu avx2{}\n\n"
    one = record.processor(told.format(0, 2400, "") + told.format(1, 2400, ""))
    assert one == record.processor(told.format(0, 3100, "")), "its clock changes from second to second"
    assert one != record.processor(told.format(0, 2400, " avx512f"))
    assert record.processor("arm") != record.processor("i386")


@pytest.mark.quick(
    "distributed updates noised bayesian betting holder adaptive chernoff none",
    "distributed updates plain classical - - - - -",
    "joint updates final clients bernstein holder adaptive improved none",
    "sequential updates final classical - - - - -",
)
@pytest.mark.parametrize("name", _wanted())
def test_a_study_shows_what_it_showed(bench: adapter.Bench, name: str) -> None:
    before, now = record.recorded()["studies"][name], record.run(Combination.parse(name), bench)
    if now == before:
        return
    where = list(differences(before, now, tolerance=0.0))
    assert not _EXACT, f"{_HOW}\n" + "\n".join(where[:12])
    # Other processors and libraries round otherwise: bytes may differ there, numbers hardly.
    where = list(differences(before, now, tolerance=1e-3))
    assert not where, f"{_HOW}\n" + "\n".join(where[:12])
    pytest.skip(
        "equal to three digits; bytes were recorded on another processor or with other libraries. To compare bytes, "
        "record at the commit before the change on this machine, and run this again after it"
    )


def differences(before: Any, now: Any, *, tolerance: float, path: str = "") -> Iterator[str]:
    """Where two records differ. tolerance: relative, of floats; with one, hashes may differ."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() == now.keys():
        for name in before:
            if name != "sha256" or tolerance == 0:
                yield from differences(before[name], now[name], tolerance=tolerance, path=f"{path}/{name}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (one, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, other, tolerance=tolerance, path=f"{path}/{i}")
    elif before != now and not _close(before, now, tolerance):
        yield f"{path}: {before!r} was recorded, {now!r} came out"


def _close(before: Any, now: Any, tolerance: float) -> bool:
    numbers = isinstance(before, float) and isinstance(now, float)
    return numbers and math.isclose(before, now, rel_tol=tolerance, abs_tol=tolerance / 100)


def test_differences_are_found() -> None:
    before = {"sha256": "a", "values": [1.0, 2.0], "left": 3}
    assert not list(differences(before, dict(before), tolerance=0.0))
    assert list(differences(before, before | {"sha256": "b"}, tolerance=0.0)) == [
        "/sha256: 'a' was recorded, 'b' came out"
    ]
    assert not list(differences(before, before | {"sha256": "b", "values": [1.0, 2.0001]}, tolerance=1e-3))
    assert list(differences(before, before | {"values": [1.0, 2.1]}, tolerance=1e-3))
    assert list(differences(before, before | {"left": 4}, tolerance=1e-3))
    assert list(differences(before, {"values": []}, tolerance=1e-3))


def test_parts_are_put_together_again() -> None:
    value = {"a": [1.5, 2.5, 3.5, {"long": "x" * 40}], "b": [[1.5, 2.5, 3.5, {"long": "x" * 40}], None]}
    parts = record.Parts()
    packed = parts.pack(value)
    assert record.Parts(parts.values).unpack(packed) == value
    assert len(parts.values) == 3
