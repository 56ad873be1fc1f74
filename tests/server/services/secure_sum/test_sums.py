"""One vector's sum as a file: the sum of what was masked, and nothing where a mask did not cancel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from server.db.blobs import OpenedFile, sum_of
from server.db.file_blobs import FileBlobs
from server.domain import secure_sum_recovery as recovery
from server.domain.secure_sum import Declined
from server.services.secure_sum.sums import write_sum
from study_protocol.wire.tensors import TensorError
from tests.factories.secure_sum import Run, World, small_counts

PLACE = sum_of("sepsis", 1, "terms")
BEFORE = b"octets of another vector"


def masked(lost: dict[str, set[str]] | None = None) -> Run:
    world = World(6)
    return Run(world, small_counts(world), lost or {}).finish()


def octets(run: Run) -> dict[str, bytes]:
    (spec,) = run.session.parameters.vectors
    return {name: run.uploads[name].vectors[spec.name].tobytes() for name in run.session.survivors}


def summed(run: Run, files: dict[str, bytes], home: Path) -> tuple[Declined | None, bytes, int]:
    """What the sum's file holds, and how often the lease was renewed on the way."""
    (spec,) = run.session.parameters.vectors
    recovered = recovery.recover(run.session)
    assert not isinstance(recovered, Declined), recovered
    keys, renewed = recovery.mask_keys_of(run.session, recovered, spec), list[int]()
    vectors = list[tuple[OpenedFile, int]]()
    for name, data in files.items():
        (home / name).write_bytes(BEFORE + data)
        vectors.append((OpenedFile(home / name), len(BEFORE)))
    blobs = FileBlobs(home / "blobs")
    with blobs.receive(spec.octets) as incoming:
        wrong = write_sum(incoming, run.session, spec, vectors, keys, lambda: renewed.append(1))
        blob = blobs.keep(incoming, PLACE)
    file = blobs.open(PLACE, blob.sha256)
    assert file is not None
    with file:
        return wrong, file.read(0, 1 << 20), len(renewed)


@pytest.mark.parametrize("gone", [set(), {"h002"}], ids=["everybody", "one is lost"])
def test_the_masks_cancel_and_the_file_holds_the_sum(gone: set[str], tmp_path: Path) -> None:
    run = masked({"masked": gone})
    wrong, data, renewed = summed(run, octets(run), tmp_path)
    assert wrong is None
    (spec,) = run.session.parameters.vectors
    here = [index for index, name in enumerate(run.world.names) if name not in gone]
    expected = [len(here), sum(10 + index for index in here), sum(1000 * index for index in here)]
    np.testing.assert_array_equal(np.frombuffer(data, spec.dtype)[:3], expected)
    assert len(data) == spec.octets
    assert renewed > 0


@pytest.mark.parametrize("place", [0, -1])
def test_one_changed_octet_is_noticed_where_the_canary_has_it(place: int, tmp_path: Path) -> None:
    """The canary's words come last: the masks on them fail to cancel. Numbers before them are the sender's to say."""
    run = masked()
    files = octets(run)
    changed = bytearray(files["h001"])
    changed[place] ^= 1
    wrong, _, _ = summed(run, files | {"h001": bytes(changed)}, tmp_path)
    if place == 0:
        assert wrong is None
        return
    assert wrong is not None
    assert wrong.code == "canary-mismatch"
    assert "terms" in wrong.detail


def test_without_one_survivors_file_nothing_cancels(tmp_path: Path) -> None:
    run = masked()
    files = octets(run)
    del files["h001"]
    wrong, _, _ = summed(run, files, tmp_path)
    assert wrong is not None
    assert wrong.code == "canary-mismatch"


def test_a_file_that_is_too_short_is_no_vector(tmp_path: Path) -> None:
    run = masked()
    files = octets(run)
    with pytest.raises(TensorError):
        summed(run, files | {"h001": files["h001"][:-1]}, tmp_path)
