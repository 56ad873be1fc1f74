"""Volumes in every type of number: the same values, or a refusal that counts and says why."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from private_learning.records import DataError, Examples, load

VALUES = np.arange(24).reshape(2, 3, 4)
KINDS = ["|u1", "|i1", "<i2", ">i2", "<u2", "<i4", ">i4", "<u4", "<i8", "<u8", "<f4", ">f4", "<f8"]


def write(path: Path, stored: np.ndarray, slope: float = 1, intercept: float = 0, version: int = 1) -> Path:
    """A single file whose voxels are these numbers, and whose header states slope and intercept."""
    image_of: Any = nibabel.Nifti1Image if version == 1 else nibabel.Nifti2Image
    header = image_of.header_class(endianness=">" if stored.dtype.str[0] == ">" else "<")
    header.set_data_dtype(stored.dtype)
    header.set_data_shape(stored.shape)
    header.set_sform(np.eye(4), code=1)
    header["scl_slope"], header["scl_inter"] = slope, intercept
    header["magic"], header["vox_offset"] = (b"n+1", 352) if version == 1 else (b"n+2\0\r\n\x1a\n", 544)
    data = header.binaryblock + b"\0" * 4 + stored.tobytes(order="F")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    ending=st.sampled_from(["nii", "nii.gz"]),
    version=st.sampled_from([1, 2]),
    slope=st.sampled_from([1.0, 2.0, -0.5, 0.1, 0.003]),
    intercept=st.sampled_from([0.0, -1024.0, 0.7]),
)
def test_a_volume_has_the_same_values_in_every_type(
    tmp_path_factory: pytest.TempPathFactory, kind: str, ending: str, version: int, slope: float, intercept: float
) -> None:
    folder = tmp_path_factory.mktemp("volumes")
    write(folder / "a" / f"x.{ending}", VALUES.astype(kind), slope, intercept, version)
    write(folder / "b" / "x.nii", VALUES.astype("<f8"), slope, intercept)
    records = load(folder)
    assert isinstance(records, Examples)
    # Headers of the first version hold slope and intercept in 32 bits.
    scale = np.float32 if version == 1 else np.float64
    wanted = (VALUES * float(scale(slope)) + float(scale(intercept))).astype(np.float32)
    np.testing.assert_array_equal(records.inputs[0], wanted.transpose(2, 1, 0)[:, ::-1])
    if version == 1:
        np.testing.assert_array_equal(records.inputs[0], records.inputs[1])


def test_numbers_of_32_bits_are_scaled_in_64(tmp_path: Path) -> None:
    """The same number in both types, of which slope and intercept leave a small rest."""
    number = np.float32(1000.1)
    for name, kind in (("a", "<f4"), ("b", "<f8")):
        write(tmp_path / name / "x.nii", np.full((2, 3, 4), number, kind), 0.1, -100)
    records = load(tmp_path)
    assert isinstance(records, Examples)
    assert set(np.unique(records.inputs)) == {np.float32(float(number) * float(np.float32(0.1)) - 100)}


COLOURS = np.zeros((2, 3, 4), [("R", "u1"), ("G", "u1"), ("B", "u1")])


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        (VALUES.astype(np.complex64), "1 of 2 files hold complex numbers"),
        (VALUES.astype(np.complex128), "1 of 2 files hold complex numbers"),
        (COLOURS, "1 of 2 files hold colours"),
        (np.zeros((2, 3, 4, 2), np.float32), "1 of 2 files cannot be read as volumes of three axes.*time points"),
        (np.zeros((2, 3), np.float32), "1 of 2 files cannot be read as volumes"),
        (np.zeros((2, 3, 5), np.float32), "one shape first"),
    ],
    ids=["complex", "double complex", "colours", "time", "flat", "shape"],
)
def test_what_is_no_volume_of_real_numbers_is_counted(tmp_path: Path, stored: np.ndarray, words: str) -> None:
    write(tmp_path / "a" / "miller.nii", stored)
    write(tmp_path / "b" / "x.nii", VALUES.astype("<f4"))
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path)
    assert "miller" not in str(caught.value)


def test_several_time_points_of_which_there_is_one_are_a_volume(tmp_path: Path) -> None:
    write(tmp_path / "a" / "x.nii", VALUES.astype("<f4")[..., None])
    write(tmp_path / "b" / "x.nii", VALUES.astype("<f4"))
    records = load(tmp_path)
    np.testing.assert_array_equal(records.inputs[0], records.inputs[1])


@pytest.mark.parametrize("cut", [0, 100, 348, 360, -1])
def test_a_file_that_is_cut_short_is_counted_at_the_start(tmp_path: Path, cut: int) -> None:
    path = write(tmp_path / "a" / "x.nii", VALUES.astype("<f4"))
    write(tmp_path / "b" / "x.nii", VALUES.astype("<f4"))
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match="1 of 2 files cannot be read"):
        load(tmp_path, lazy=True)


def test_headers_apart_from_their_voxels_are_said_to_be_another_kind(tmp_path: Path) -> None:
    for part in ("a", "b"):
        write(tmp_path / part / "x.nii", VALUES.astype("<f4"))
    pair = nibabel.Nifti1Pair(VALUES.astype("<f4"), np.eye(4))
    nibabel.save(pair, tmp_path / "a" / "pair.hdr")
    with pytest.raises(DataError, match=r"2 files \(\.hdr, \.img\) are images of a kind that is not read"):
        load(tmp_path)
    (tmp_path / "a" / "pair.img").unlink()
    (tmp_path / "a" / "pair.hdr").rename(tmp_path / "a" / "pair.nii")
    with pytest.raises(DataError, match="1 of 3 files cannot be read"):
        load(tmp_path)


def test_volumes_without_directions_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "a" / "x.nii", VALUES.astype("<f4"))
    path = write(tmp_path / "b" / "x.nii", VALUES.astype("<f4"))
    load(tmp_path)
    assert "left and right" not in caplog.text
    data = bytearray(path.read_bytes())
    data[252:256] = b"\0" * 4  # qform_code and sform_code
    path.write_bytes(bytes(data))
    load(tmp_path)
    assert "1 of 2 files do not say where left and right are" in caplog.text


@settings(max_examples=120, deadline=None)
@given(place=st.integers(0, 351), values=st.binary(min_size=1, max_size=4))
def test_broken_bytes_of_a_header_are_counted_or_read(
    tmp_path_factory: pytest.TempPathFactory, place: int, values: bytes
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    path = write(folder / "a" / "miller.nii", VALUES.astype("<i2"), 2)
    write(folder / "b" / "x.nii", VALUES.astype("<i2"), 2)
    data = path.read_bytes()
    path.write_bytes(data[:place] + values + data[place + len(values) :])
    message, count = "", 2
    try:
        count = len(load(folder))
    except DataError as error:
        message = str(error)
    assert "miller" not in message
    assert count == 2
