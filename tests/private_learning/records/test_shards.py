"""Shards of tar files: samples by their names, patterns with braces, and what is refused."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Examples, load
from private_learning.records.shards import is_pattern, list_shards, shards_at
from tests.private_learning.records.test_lazy import GREY, image, shard


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("0.png", image(GREY[0]))], "1 of 1 samples lack"),
        ([("0.cls", b"1")], "1 of 1 samples lack"),
        ([("0.png", image(GREY[0])), ("0.cls", b"one")], "1 of 1 samples lack"),
        ([("0.png", image(GREY[0])), ("0.json", b'{"label": "ill"}')], "1 of 1 samples lack"),
        ([("0.png", image(GREY[0])), ("0.jpg", b""), ("0.cls", b"1")], "1 of 1 samples lack"),
        ([("0.png", b"nothing"), ("0.cls", b"1")], "1 of 1 files cannot be read as images"),
        ([], "no samples"),
        (
            [("0.png", image(GREY[0])), ("0.cls", b"1"), ("1.png", image(GREY[1][:3])), ("1.cls", b"1")],
            "one width and height",
        ),
        ([("0.png", image(GREY[0])), ("0.cls", b"1"), ("1.npy", b""), ("1.cls", b"1")], "keep one kind"),
    ],
    ids=["no label", "no input", "word", "text", "two inputs", "broken", "empty", "sizes", "kinds"],
)
def test_shards_that_are_none_are_refused(tmp_path: Path, members: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises(DataError, match=words):
        load(shard(tmp_path / "a.tar", members))


def test_a_compressed_shard_is_to_be_unpacked(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("0.cls"))
    with pytest.raises(DataError, match="not a plain tar file"):
        load(tmp_path / "a.tar")
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "b-{0..1}.tar")
    with pytest.raises(DataError, match="1 of 3 are named a second time"):
        load(tmp_path / "{a,b,a}.tar")


def array(value: float) -> bytes:
    written = io.BytesIO()
    np.save(written, np.full((2, 2), value, np.float32))
    return written.getvalue()


def test_a_key_that_comes_again_is_a_sample_of_its_own(tmp_path: Path) -> None:
    members = [("k.npy", array(1)), ("k.cls", b"0"), ("k.npy", array(2)), ("k.cls", b"1")]
    found = load(shard(tmp_path / "one.tar", members))
    assert isinstance(found, Examples)
    assert (found.inputs[:, 0, 0].tolist(), found.labels.tolist()) == ([1.0, 2.0], [0, 1])


def test_hidden_members_and_shards_are_none(tmp_path: Path) -> None:
    shard(tmp_path / "one.tar", [("./k.npy", array(1)), ("./k.cls", b"0"), ("./._k.npy", b"of macOS")])
    (tmp_path / "._one.tar").write_bytes(b"of macOS")
    assert len(load(tmp_path)) == 1


@pytest.mark.parametrize(
    "second",
    [[("b.npy", array(1)), ("b.npy", array(2)), ("b.cls", b"1")], [("b.npy", array(1)), ("b.json", b"[" * 200_000)]],
    ids=["two inputs", "deep json"],
)
def test_samples_that_cannot_be_told_are_counted(tmp_path: Path, second: list[tuple[str, bytes]]) -> None:
    path = shard(tmp_path / "one.tar", [("a.npy", array(1)), ("a.cls", b"0"), *second])
    with pytest.raises(DataError, match="shards: 1 of "):
        load(path)


def test_braces_stand_for_shards_in_order(tmp_path: Path) -> None:
    pattern = tmp_path / "{train,val}-{08..11}.tar"
    assert is_pattern(pattern)
    assert not is_pattern(tmp_path / "train-08.tar")
    assert not is_pattern(tmp_path / "{a,b}.zip")
    assert [path.name for path in shards_at(pattern)] == [
        *("train-08.tar", "train-09.tar", "train-10.tar", "train-11.tar"),
        *("val-08.tar", "val-09.tar", "val-10.tar", "val-11.tar"),
    ]
    assert shards_at(tmp_path / "one.tar") == [tmp_path / "one.tar"]


@pytest.mark.parametrize("name", ["{9..3}.tar", "{0..999999}.tar", "{0..999}-{0..999}.tar"])
def test_a_pattern_of_no_file_or_of_far_too_many_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="the braces stand for"):
        shards_at(tmp_path / name)


def test_inputs_are_read_from_their_places_in_any_order(tmp_path: Path) -> None:
    paths = [
        shard(tmp_path / f"{part}.tar", [(f"{part}{row}.{kind}", data) for row in range(3) for kind, data in files])
        for part, files in enumerate([[("npy", array(0)), ("cls", b"0")], [("npy", array(1)), ("cls", b"1")]])
    ]
    records = list_shards(paths)
    assert records.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert not records.named
    assert records.read([5, 0, 3]).inputs[:, 0, 0].tolist() == [1.0, 0.0, 1.0]


def test_a_patient_is_named_for_all_samples_or_for_none(tmp_path: Path) -> None:
    named = [("a.npy", array(1)), ("a.json", b'{"label": 1, "patient": "p7"}')]
    assert list_shards([shard(tmp_path / "one.tar", named)]).patients == ("p7",)
    mixed = [*named, ("b.npy", array(2)), ("b.cls", b"0")]
    with pytest.raises(DataError):
        list_shards([shard(tmp_path / "two.tar", mixed)])


def test_arrays_of_different_shapes_are_refused_when_they_are_read(tmp_path: Path) -> None:
    other = io.BytesIO()
    np.save(other, np.zeros((2, 3), np.float32))
    members = [("a.npy", array(1)), ("a.cls", b"0"), ("b.npy", other.getvalue()), ("b.cls", b"1")]
    records = list_shards([shard(tmp_path / "one.tar", members)])
    with pytest.raises(DataError, match="one shape and one type"):
        records.read([0, 1])
    pickled = io.BytesIO()
    np.save(pickled, np.array([object()], dtype=object))
    records = list_shards([shard(tmp_path / "two.tar", [("a.npy", pickled.getvalue()), ("a.cls", b"0")])])
    with pytest.raises(DataError, match="not whole, or not plain"):
        records.read([0])
