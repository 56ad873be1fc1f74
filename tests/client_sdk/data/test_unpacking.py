"""Files that promise or unpack more than they hold, and names that stand for too many."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from itertools import count
from pathlib import Path

import nibabel
import numpy as np
import pytest

from client_sdk.data import DataError, load, read_idx
from client_sdk.data.unpacking import MAX_RATIO, MAX_UNPACKED, TooLarge, require_safe
from tests.client_sdk.data.test_lazy import shard

PROMISED = 1 << 40


def promise(count: int = PROMISED) -> bytes:
    """An array that says that it has so many bytes, and has eight."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (count, 1)})
    return file.getvalue() + b"\0" * 8


def test_the_limit_is_of_size_and_of_ratio() -> None:
    require_safe("a", 1, MAX_UNPACKED)
    require_safe("a", MAX_UNPACKED, MAX_RATIO * MAX_UNPACKED)
    with pytest.raises(TooLarge, match=r"unpacked it would take 1.0 GiB, more than 1.0 GiB and more than 200 times"):
        require_safe("a", 1 << 20, MAX_UNPACKED + 1)


@pytest.mark.parametrize("part", ["inputs", "labels"])
def test_an_array_that_promises_more_than_there_is_is_refused(tmp_path: Path, part: str) -> None:
    for name in ("inputs", "labels"):
        (tmp_path / f"{name}.npy").write_bytes(promise() if name == part else promise(8))
    for lazy in (False, True):
        with pytest.raises(DataError, match=r"not a whole .npy file|shorter than its header"):
            load(tmp_path / "inputs.npy", lazy=lazy)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_of_arrays_that_promise_more_than_there_is_is_refused(tmp_path: Path, compression: int) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("inputs.npy", promise())
        archive.writestr("labels.npy", promise(8))
    with pytest.raises(DataError, match=r"not a whole .npz file"):
        load(path)


def test_an_archive_that_unpacks_into_too_much_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, inputs=np.zeros((1000, 1000)), labels=np.zeros(1000))
    assert len(load(path)) == 1000
    monkeypatch.setattr("client_sdk.data.unpacking.MAX_UNPACKED", 1 << 20)
    with pytest.raises(DataError, match=r"a.npz: unpacked it would take"):
        load(path)


def test_a_gzip_file_is_unpacked_as_far_as_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "t-images-idx3-ubyte.gz"
    head = struct.pack(">2xBB3I", 8, 3, 2, 1, 1)
    path.write_bytes(gzip.compress(head + b"\0" * (1 << 24)))
    with pytest.raises(DataError, match="length does not fit the header"):
        read_idx(path)
    path.write_bytes(gzip.compress(struct.pack(">2xBB3I", 8, 3, 1 << 20, 1 << 10, 1 << 10)))
    with pytest.raises(TooLarge, match=r"unpacked it would take 1,024.0 GiB"):
        read_idx(path)


def test_an_array_in_a_shard_that_promises_too_much_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="some of 1 arrays are not whole"):
        load(shard(tmp_path / "a.tar", [("0.npy", promise()), ("0.cls", b"1")]), lazy=False)


@pytest.mark.parametrize(
    "name", ["{0..99999999999}", "{0..999}-{0..999}", "{9..1}", "{a,b}" * 17], ids=map(str, count())
)
def test_braces_that_stand_for_none_or_too_many_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"the braces stand for .* files; 1 to 100,000"):
        load(tmp_path / f"{name}.tar")


def test_a_packed_volume_that_unpacks_into_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        nibabel.save(nibabel.Nifti1Image(np.zeros((64, 64, 64), np.int16), np.eye(4)), tmp_path / name / "x.nii.gz")
    assert len(load(tmp_path)) == 2
    monkeypatch.setattr("client_sdk.data.nifti.MAX_UNPACKED", 1 << 20)
    with pytest.raises(DataError, match="2 of 2 files would take more than 1 GiB and more than 200 times"):
        load(tmp_path)
