"""Files of arrays: what is in them comes out, and a broken one is refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Examples, load
from private_learning.records.array_files import read_idx, read_npz
from wardround.demo.scenarios import data_folder

GREY = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8)


COLOUR = np.random.default_rng(1).integers(0, 256, (6, 4, 3), dtype=np.uint8)


def test_medmnist_files_give_their_splits(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    colour = np.stack([COLOUR] * 2)
    arrays = {"train_images": GREY[:3], "train_labels": [[0], [1], [0]], "val_images": colour, "val_labels": [[2], [1]]}
    np.savez(path, **arrays, test_images=GREY[:1], test_labels=[[0, 1]])
    train = load(path)
    assert isinstance(train, Examples)
    np.testing.assert_array_equal(train.inputs, GREY[:3])
    assert train.labels.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(read_npz(path, split="val").inputs, np.moveaxis(colour, 3, 1))
    several = load(path, split="test")
    assert isinstance(several, Examples)
    assert several.labels.tolist() == [[0, 1]]


def test_pneumoniamnist_reads_as_published() -> None:
    path = data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no pneumoniamnist")
    counts = {split: np.bincount(read_npz(path, split=split).labels).tolist() for split in ("train", "val", "test")}
    # Yang et al. 2023, Table 2 and the files' own labels.
    assert counts == {"train": [1214, 3494], "val": [135, 389], "test": [234, 390]}


def idx(array: np.ndarray, code: int = 8) -> bytes:
    return struct.pack(f">2xBB{array.ndim}I", code, array.ndim, *array.shape) + array.tobytes()


def test_npz_gives_examples_and_never_unpickles(tmp_path: Path):
    good, pickled, lacking = tmp_path / "g.npz", tmp_path / "p.npz", tmp_path / "l.npz"
    np.savez(good, inputs=np.ones((2, 3)), labels=[0, 1], patients=["a", "b"])
    np.savez(pickled, inputs=np.array([[object()]], dtype=object), labels=[0])
    np.savez(lacking, inputs=np.ones((2, 3)))
    assert load(good).patients == ("a", "b")
    with pytest.raises(ValueError, match="file of plain arrays"):
        load(pickled)
    with pytest.raises(DataError, match="labels"):
        load(lacking)


@pytest.mark.parametrize("pack", [lambda b: b, gzip.compress], ids=["as it is", "compressed"])
def test_idx_images_find_their_labels(tmp_path: Path, pack):
    suffix = ".gz" if pack is gzip.compress else ""
    pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / f"t-images-idx3-ubyte{suffix}").write_bytes(pack(idx(pixels)))
    (tmp_path / f"t-labels-idx1-ubyte{suffix}").write_bytes(pack(idx(np.array([7, 3], dtype=np.uint8))))
    examples = load(tmp_path / f"t-images-idx3-ubyte{suffix}")
    assert isinstance(examples, Examples)
    np.testing.assert_array_equal(examples.inputs, pixels)
    assert examples.labels.tolist() == [7, 3]


def test_idx_numbers_are_big_endian(tmp_path: Path):
    path = tmp_path / "x"
    path.write_bytes(idx(np.array([1.5, -2.0], dtype=">f4"), code=0x0D))
    assert read_idx(path).tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"PK\x03\x04xxxx", idx(np.zeros(4, np.uint8))[:-1], idx(np.zeros(4, np.uint8)) + b"x"],
    ids=["empty", "half a header", "a zip file", "cut short", "one byte more"],
)
def test_a_broken_idx_is_refused(tmp_path: Path, data: bytes):
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(DataError):
        read_idx(path)
