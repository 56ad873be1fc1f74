"""What every store of blobs keeps to: folders, and an object store behind real HTTP."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from server.db.blobs import (
    Blobs,
    Place,
    masked_of,
    models_of,
    noised_of,
    optimisers_of,
    round_folder,
    sum_of,
    update_of,
)
from server.db.file_blobs import FileBlobs
from server.db.object_blobs import ObjectBlobs
from server.domain.errors import Rejected
from tests.harness.object_store import ObjectStore

MODELS, UPDATE = models_of("a"), update_of("a", 1, "h1")


class Here:
    """One store, and as many coordinators of it as are asked for."""

    def __init__(self, another: Callable[[], Blobs], damage: Callable[[Place, str, bytes], None]) -> None:
        self.another, self.damage, self.blobs = another, damage, another()


@pytest.fixture(params=["files", "objects"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Here]:
    if request.param == "files":
        root = tmp_path / "blobs"

        def damage(place: Place, sha256: str, data: bytes) -> None:
            (root / place.key(sha256)).write_bytes(data)

        yield Here(lambda: FileBlobs(root), damage)
        return
    store: ObjectStore = request.getfixturevalue("object_store")
    address, caches = store.bucket(), iter(range(100))

    def replace(place: Place, sha256: str, data: bytes) -> None:
        store.put(address, place.key(sha256), data)

    yield Here(lambda: ObjectBlobs(store.store(address), tmp_path / f"cache-{next(caches)}", 1 << 30), replace)


def read(blobs: Blobs, place: Place, sha256: str) -> bytes | None:
    file = blobs.open(place, sha256)
    if file is None:
        return None
    with file:
        return file.read(0, file.bytes)


def test_what_is_kept_is_found_by_every_coordinator(here: Here) -> None:
    body = os.urandom(100_000)
    with here.blobs.receive(len(body)) as file:
        for start in range(0, len(body), 7777):
            file.write(memoryview(body)[start : start + 7777])
        kept = here.blobs.keep(file, MODELS)
    digest = hashlib.sha256(body).hexdigest()
    assert (kept.sha256, kept.bytes) == (digest, len(body))
    for blobs in (here.blobs, here.another()):
        assert blobs.has(MODELS, digest)
        assert read(blobs, MODELS, digest) == body
        # Again, from wherever it lies now.
        assert read(blobs, MODELS, digest) == body
        assert blobs.hashes(MODELS) == [digest]


@pytest.mark.quick("files")
def test_a_body_of_several_parts_comes_back_whole(here: Here) -> None:
    body = os.urandom((20 << 20) + 5)
    kept = here.blobs.write(UPDATE, body)
    assert read(here.another(), UPDATE, kept.sha256) == body


def test_a_body_that_is_not_kept_leaves_nothing(here: Here) -> None:
    def fail() -> None:
        with here.blobs.receive(10) as file:
            file.write(b"12345")
            raise ConnectionError

    with pytest.raises(ConnectionError):
        fail()
    assert here.blobs.hashes(MODELS) == []
    assert here.blobs.sweep(-1.0) == 0


def test_not_a_byte_more_than_allowed_is_taken(here: Here) -> None:
    with here.blobs.receive(10) as file:
        file.write(b"12345")
        with pytest.raises(Rejected, match="body-too-large"):
            file.write(b"678901")
        file.write(b"67890")
        assert file.bytes == 10


def test_keeping_the_same_bytes_twice_is_keeping_them_once(here: Here) -> None:
    first, second = here.blobs.write(MODELS, b"same"), here.another().write(MODELS, b"same")
    assert first == second
    assert here.blobs.hashes(MODELS) == [first.sha256]


@pytest.mark.quick("files")
def test_places_do_not_touch_one_another(here: Here) -> None:
    """Also those whose names begin alike."""
    places = [
        *(update_of("a", 1, client) for client in ("h", "h1", "h11", "h-1")),
        *(masked_of("a", 1, client) for client in ("h", "h1", "h-1")),
        *(sum_of("a", 1, vector) for vector in ("u", "up")),
        *(update_of(study, number, "h") for study, number in (("a", 11), ("a-b", 1), ("aa", 1))),
        *(models_of("a"), models_of("aa"), optimisers_of("a"), noised_of("a", 1), noised_of("a", 11)),
    ]
    kept = [here.blobs.write(place, place.key("").encode()).sha256 for place in places]
    assert len(set(kept)) == len(places)
    for place, sha256 in zip(places, kept, strict=True):
        assert here.blobs.hashes(place) == [sha256]
        for other in kept:
            assert here.blobs.has(place, other) == (other == sha256)


def test_removing_is_repeatable_and_stays_in_its_place(here: Here) -> None:
    other = update_of("a", 2, "h1")
    one, two = here.blobs.write(UPDATE, b"same"), here.blobs.write(other, b"same")
    elsewhere = here.another()
    assert read(elsewhere, UPDATE, one.sha256) == b"same"
    for _ in range(2):
        here.blobs.remove(UPDATE, one.sha256)
    for blobs in (here.blobs, elsewhere):
        assert not blobs.has(UPDATE, one.sha256)
        assert read(blobs, UPDATE, one.sha256) is None
        assert read(blobs, other, two.sha256) == b"same"
    assert here.blobs.folders("rounds") == ["rounds/a"]
    for _ in range(2):
        here.blobs.clear(round_folder("a", 2))
    assert read(elsewhere, other, two.sha256) is None


def test_clearing_a_round_spares_those_whose_numbers_begin_alike(here: Here) -> None:
    ten = here.blobs.write(update_of("a", 10, "h1"), b"ten")
    here.blobs.write(UPDATE, b"one")
    here.blobs.clear(round_folder("a", 1))
    assert here.blobs.folders("rounds/a") == ["rounds/a/10"]
    assert read(here.blobs, update_of("a", 10, "h1"), ten.sha256) == b"ten"


def test_a_file_that_is_damaged_is_reported_and_never_used(here: Here, caplog: pytest.LogCaptureFixture) -> None:
    body = os.urandom(5000)
    kept = here.blobs.write(UPDATE, body)
    for wrong in (body[:-1], body + b"\0", b"", bytes([body[0] ^ 1]) + body[1:]):
        here.damage(UPDATE, kept.sha256, wrong)
        caplog.clear()
        assert here.another().open(UPDATE, kept.sha256) is None
        assert "not what its name says" in caplog.text
        # The log names no hospital.
        said = [vars(record)["event"] for record in caplog.records]
        assert [event for event in said if kept.sha256 in event] == said
        assert not [event for event in said if "h1" in event]
    # Sent again it is there again.
    here.blobs.write(UPDATE, body)
    assert read(here.another(), UPDATE, kept.sha256) == body


def test_who_has_opened_a_file_keeps_it_whole(here: Here) -> None:
    body = os.urandom(5000)
    kept = here.blobs.write(UPDATE, body)
    file = here.blobs.open(UPDATE, kept.sha256)
    assert file is not None
    here.another().clear(round_folder("a", 1))
    here.blobs.clear(round_folder("a", 1))
    with file:
        assert file.read(0, 5000) == body


def test_two_workers_may_clear_one_folder_at_once(here: Here) -> None:
    for client in range(20):
        here.blobs.write(update_of("a", 1, f"h{client}"), b"update")
    failures: list[BaseException] = []
    coordinators = [here.blobs, here.another(), here.another()]

    def clear(blobs: Blobs) -> None:
        try:
            blobs.clear(round_folder("a", 1))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            failures.append(error)

    threads = [threading.Thread(target=clear, args=(blobs,)) for blobs in coordinators]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert here.blobs.folders("rounds/a") == []


def test_a_check_leaves_nothing_behind(here: Here) -> None:
    here.blobs.check()
    assert here.blobs.folders(".probe") == []
