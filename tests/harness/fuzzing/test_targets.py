"""Every parser takes its seeds, and meets changed ones and the finds of fuzzing with the errors that it documents.

`make campaigns` fuzzes the same parsers by coverage. An input that it finds lies in
`inputs/TARGET/` and is tried here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from study_protocol.documents import check
from tests.harness.fuzzing.mutation import mutate_json
from tests.harness.fuzzing.run import NAMES, targets
from tests.harness.fuzzing.target import Target, choose

INPUTS = Path(__file__).with_name("inputs")
# Of each parser, so that all take some seconds together.
CHANGED = 60
Place = tuple[int | str, ...]


@pytest.fixture(scope="module")
def parsers() -> dict[str, Target]:
    return dict(targets())


def test_every_parser_has_its_name_in_the_list(parsers: dict[str, Target]) -> None:
    assert tuple(parsers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_parser_takes_a_seed_and_documents_what_it_refuses(parsers: dict[str, Target], name: str) -> None:
    assert any(parsers[name].try_input(seed) for seed in parsers[name].seeds())


@pytest.mark.slow_cases("certificates", "scans")
@pytest.mark.parametrize("name", NAMES)
def test_changed_seeds_meet_documented_errors(parsers: dict[str, Target], name: str) -> None:
    target = parsers[name]
    for data in islice(_changed(list(target.seeds())), CHANGED):
        target.try_input(data)


def _changed(seeds: list[bytes]) -> Iterator[bytes]:
    number = 0
    while True:
        seed = seeds[number * 7919 % len(seeds)]
        yield mutate_json(seed, number) or seed
        # Cut short, and with one bit changed.
        at = number * 7919 % max(1, len(seed))
        yield seed[:at]
        yield seed[:at] + bytes([seed[at] ^ (1 << number % 8)]) + seed[at + 1 :] if seed else b""
        number += 1


@pytest.mark.parametrize("find", sorted(INPUTS.glob("*/*")), ids=lambda path: f"{path.parent.name}-{path.name[:16]}")
def test_what_fuzzing_found_is_met_with_a_documented_error(parsers: dict[str, Target], find: Path) -> None:
    parsers[find.parent.name].try_input(find.read_bytes())


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (("limits", 0, "certificate", "orders"), {"a": []}),
        (("limits", 0, "certificate", "orders"), [[1.0], {}]),
        (("limits", 0, "certificate", "order"), []),
        (("limits", 0, "observer"), "nobody"),
        (("limits", 0, "certificate", "observer"), "nobody"),
    ],
    ids=["orders-object", "orders-unhashable", "order-list", "observer", "observer-inside"],
)
def test_a_certificate_that_once_ended_in_a_traceback(parsers: dict[str, Target], path: Place, new: Any) -> None:
    target = parsers["certificates"]
    (seed,) = target.seeds()
    target.try_input(_put(seed, path, new))


@pytest.mark.parametrize(
    "path", [("state",), ("stop_reason",), ("model", "sha256"), ("ledger", "released")], ids="-".join
)
def test_a_change_that_no_check_finds_is_a_fault(
    parsers: dict[str, Target], path: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = parsers["certificates"]
    (seed,) = target.seeds()
    changed = _put(seed, path, _OTHER[path[-1]])
    target.try_input(changed)
    monkeypatch.setattr(check, "check_ledger", lambda stated, entries: [])
    with pytest.raises(AssertionError, match=path[0]):
        target.try_input(changed)


_OTHER: dict[int | str, Any] = {
    "state": "running",
    "stop_reason": "budget-exhausted",
    "sha256": "e" * 64,
    "released": 1,
}


def _put(seed: bytes, path: Place, new: Any) -> bytes:
    """A certificate with another value at this place. The place is there."""
    value = json.loads(seed)
    inside: Any = value["certificate"]
    for part in path[:-1]:
        inside = inside[part]
    assert inside[path[-1]] != new
    inside[path[-1]] = new
    return json.dumps(value).encode()


def test_a_fault_is_not_taken_for_a_documented_error() -> None:
    def parse(data: bytes) -> None:
        json.loads(data)["a"]

    target = Target(parse, (ValueError,), list)
    assert (target.try_input(b'{"a": 1}'), target.try_input(b"{")) == (True, False)
    with pytest.raises(KeyError):
        target.try_input(b"{}")


def test_changed_json_keeps_what_stands_around_it_and_is_json() -> None:
    lines = b'\x07{"a": [1, "b", {"c": 2.5}]}\n{"d": null}\n'
    changed = [mutate_json(lines, seed) for seed in range(300)]
    assert len(set(changed)) > 100
    for case in changed:
        assert case is not None
        assert (case[:1], case.count(b"\n")) == (b"\x07", 2)
        for line in case.removeprefix(b"\x07").splitlines():
            json.loads(line)
    assert mutate_json(b"no text of this kind", 1) is None
    assert mutate_json(b"{broken", 1) is None


def test_the_first_byte_chooses_a_variant() -> None:
    assert [choose(bytes([first, 9]), 3) for first in (0, 1, 5)] == [(0, b"\x09"), (1, b"\x09"), (2, b"\x09")]
    assert choose(b"", 3) == (0, b"")
