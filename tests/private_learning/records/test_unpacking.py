"""Files that promise or unpack more than they hold, and names that stand for too many."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
from itertools import count
from pathlib import Path

import nibabel
import numpy as np
import pytest

from private_learning.records import DataError, load, read_idx
from study_protocol.cells.unpacking import MAX_RATIO, MAX_UNPACKED, TooLarge, require_safe
from tests.private_learning.records.test_lazy import shard

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
    monkeypatch.setattr("study_protocol.cells.unpacking.MAX_UNPACKED", 1 << 20)
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
    with pytest.raises(DataError, match=r"the braces stand for .* files. 1 to 100,000"):
        load(tmp_path / f"{name}.tar")


def test_a_packed_volume_that_unpacks_into_too_much_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        nibabel.save(nibabel.Nifti1Image(np.zeros((64, 64, 64), np.int16), np.eye(4)), tmp_path / name / "x.nii.gz")
    assert len(load(tmp_path)) == 2
    monkeypatch.setattr("private_learning.records.nifti.MAX_UNPACKED", 1 << 20)
    with pytest.raises(DataError, match="2 of 2 files would take more than 1 GiB and more than 200 times"):
        load(tmp_path)


def _header(shape: tuple[int, ...], descr: str = "<f8") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


@pytest.mark.parametrize(
    ("inputs", "labels"),
    [
        (_header((1 << 40, 0)), _header((1 << 40, 0))),
        (_header((1 << 40, 3, 0)), _header((1 << 40,), "|V0")),
        (_header((1 << 40, 2), "|V0"), _header((1 << 40,), "|V0")),
        (_header((-1, 2)) + bytes(64), _header((4,)) + bytes(32)),
        (_header((2, 2)) + bytes(32), _header((-2,)) + bytes(16)),
    ],
    ids=["no columns", "no depth", "no bytes", "negative", "negative labels"],
)
def test_rows_that_take_no_bytes_are_refused(tmp_path: Path, inputs: bytes, labels: bytes) -> None:
    """A few hundred bytes stood for any number of patients, each with a name of its own in memory."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("inputs.npy", inputs)
        archive.writestr("labels.npy", labels)
    (tmp_path / "inputs.npy").write_bytes(inputs)
    (tmp_path / "labels.npy").write_bytes(labels)
    for name in ("a.npz", "inputs.npy"):
        with pytest.raises(DataError, match=r"not a whole .npz? file|not a whole .npy file"):
            load(tmp_path / name)
    path = tmp_path / "t-images-idx3-ubyte"
    path.write_bytes(struct.pack(">2xBB3I", 8, 3, 1 << 31, 0, 1))
    with pytest.raises(DataError, match="no numbers"):
        read_idx(path)


def _chain() -> bytes:
    """Long names of long names: each is read within the one before."""
    link = tarfile.TarInfo("././@LongLink")
    link.type, link.size = tarfile.GNUTYPE_LONGNAME, 1
    return (link.tobuf(tarfile.GNU_FORMAT) + b"x" + bytes(511)) * 3000


def _pax(size: int, body: bytes = b"") -> bytes:
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, size
    rest = tarfile.TarInfo("0.npy").tobuf() + bytes(1024)
    return head.tobuf(tarfile.GNU_FORMAT) + body.ljust(512, bytes(1)) + rest


@pytest.mark.parametrize(
    "data",
    [_chain(), _pax(1 << 50), _pax(29, b"29 GNU.sparse.size=abcdefghi\n"), _pax(9, b"9 size=z\n")],
    ids=["a chain of names", "a huge header", "no number", "no size"],
)
def test_a_broken_tar_header_is_an_error_in_words(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(DataError, match=r"a\.tar: not a plain tar file|shards: "):
        load(tmp_path / "a.tar")


def test_what_stands_beside_the_voxels_of_a_nifti_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension of the header was unpacked whole, and given to a reader of DICOM or XML by its code."""
    image = nibabel.Nifti1Image(np.ones((4, 4, 2), np.float32), np.eye(4))
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * 4096))
    for label in ("0", "1"):
        (tmp_path / label).mkdir()
        image.to_filename(tmp_path / label / f"{label}.nii.gz")

    def never(*_: object) -> None:
        raise AssertionError("an extension was read")

    monkeypatch.setattr(nibabel.nifti1.Nifti1Extensions, "from_fileobj", never)
    monkeypatch.setattr(nibabel, "load", never)
    found = load(tmp_path, lazy=False)
    np.testing.assert_array_equal(found.inputs, np.ones((2, 2, 4, 4)))


HEADERS = {
    "brackets without end": b"(" * 9000,
    "a truth for a side": b"{'descr': '|u1', 'fortran_order': False, 'shape': (True, 1)}\n",
    "a zero byte": b"{'descr': '|u1', 'fortran_order': False, 'shape': (1,\0)}\n",
    "indented": b" {'descr':\n  1\n }",
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_of_an_array_that_is_none_is_refused_in_words(tmp_path: Path, kind: str) -> None:
    head = HEADERS[kind]
    (tmp_path / "inputs.npy").write_bytes(promise(8))
    (tmp_path / "labels.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head + b"\0" * 8)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name in ("inputs.npy", "labels.npy"):
            archive.write(tmp_path / name, name)
    for name in ("a.npz", "inputs.npy"):
        with pytest.raises(DataError, match="not a whole"):
            load(tmp_path / name)


def test_an_array_of_too_many_axes_is_refused_in_words(tmp_path: Path) -> None:
    path = tmp_path / "t-images-idx255-ubyte"
    path.write_bytes(b"\0\0\x08\xff" + struct.pack(">255I", *[1] * 255) + b"\0")
    with pytest.raises(DataError, match="more than 31 axes"):
        read_idx(path)


@pytest.mark.parametrize("size", [-1, -512, -1024, -1536, -2048, -(1 << 40)])
@pytest.mark.parametrize("name", ["b.npy", ".hidden"])
def test_a_shard_whose_headers_lead_back_ends(tmp_path: Path, size: int, name: str) -> None:
    """It has been read again and again without end, and each time its samples were added."""
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for each, data, given in (("a.npy", promise(8), None), ("a.cls", b"0", None), (name, promise(8), size)):
            entry = tarfile.TarInfo(each)
            entry.size, entry.pax_headers = len(data), {} if given is None else {"size": str(given)}
            archive.addfile(entry, io.BytesIO(data))
    with pytest.raises(DataError, match="not a plain tar file"):
        load(tmp_path / "a.tar")
