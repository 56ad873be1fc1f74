"""How returns are counted, and that the files that are left out are still there."""

from __future__ import annotations

import json

import pytest

from research.benchmarks.watched_round import ASIDE, ROOT, Way, settings
from research.benchmarks.way_of_an_update import (
    figures,
    returns,
    room_of,
    rooms_on_the_way,
    show,
)
from research.quality.structure import RESULTS


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("client_sdk/ledger.py", "client_sdk"),
        ("private_learning/training/local.py", "private_learning/training"),
        ("study_protocol/wire/tensors.py", None),
        ("client_sdk/errors.py", None),
        ("accounting/accounts/classical.py", "accounting"),
        ("accounting/classical.py", "accounting"),
        ("accounting/plan/schemes.py", None),
    ],
)
def test_rooms_on_the_hospitals_side(path: str, room: str | None) -> None:
    assert room_of(path, "client_sdk") == room


def test_a_return_is_an_entry_into_a_room_that_was_left() -> None:
    files = [
        "client_sdk/study/participation.py",
        "client_sdk/study/verifier.py",
        "client_sdk/guard/individual.py",
        "study_protocol/signing.py",
        "client_sdk/guard/policy.py",
        "client_sdk/study/outbox.py",
        "client_sdk/api/client.py",
        "client_sdk/guard/ledger.py",
    ]
    rooms = rooms_on_the_way(files, "client_sdk")
    assert [room.removeprefix("client_sdk/") for room in rooms] == ["study", "guard", "study", "api", "guard"]
    assert returns(rooms) == 2
    found = figures(Way(files, ["server/api/rounds.py", "study_protocol/signing.py"]))
    assert found["files"] == 9
    assert found["hospital"]["returns_into"] == {"client_sdk/guard": 1, "client_sdk/study": 1}
    assert [line.split()[-1] for line in show(found) if line.startswith("  <")] == [files[5], files[7]]


def test_every_file_that_is_left_out_exists() -> None:
    assert [path for path in ASIDE if not (ROOT / path).is_file()] == []


def test_the_watched_study_is_masked_or_in_the_clear() -> None:
    assert (settings(masked=True).privacy.masking is None, settings(masked=False).privacy.masking) == (False, None)


def test_the_record_counts_its_own_lists() -> None:
    # Rooms of the layout before have other names.
    for recorded in json.loads(RESULTS.read_text())["after"]["way_of_an_update"].values():
        way = Way(recorded["hospital"]["way"], recorded["coordinator"]["way"])
        assert figures(way) == recorded
