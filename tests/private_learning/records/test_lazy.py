"""Every kind of data that is read when it is needed says, row by row, what the same data says in memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from private_learning.records import DataError, Examples, LazyExamples, list_images, load, one_per_patient, records_of
from private_learning.records.lazy import chained

DRAW = np.random.default_rng(2)
GREY = DRAW.integers(0, 256, (9, 6, 4), dtype=np.uint8)
COLOUR = DRAW.integers(0, 256, (9, 6, 4, 3), dtype=np.uint8)
LABELS = [0, 1, 0, 1, 1, 0, 0, 1, 1]


def image(pixels: Any) -> bytes:
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "PNG")
    return written.getvalue()


def shard(path: Path, members: list[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path


def folder_of_images(tmp_path: Path, pixels: Any = GREY) -> Path:
    for row, label in enumerate(LABELS):
        path = tmp_path / "images" / f"class{label}" / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(pixels[row]))
    rows = [f"class{label}/{row}.png,p{row // 2}" for row, label in enumerate(LABELS)]
    (tmp_path / "images" / "patients.csv").write_text("\n".join(["file,patient", *rows]))
    return tmp_path / "images"


def deep_images(tmp_path: Path) -> Path:
    return folder_of_images(tmp_path, GREY.astype(np.uint16) * 200)


def coloured_images(tmp_path: Path) -> Path:
    folder = folder_of_images(tmp_path, COLOUR)
    # Grey joins them.
    (folder / "class0" / "0.png").write_bytes(image(GREY[0]))
    return folder


def stored_npz(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", labels=LABELS, patients=[f"p{row // 2}" for row in range(9)], inputs=GREY)
    return tmp_path / "a.npz"


def medmnist(tmp_path: Path) -> Path:
    np.savez(tmp_path / "m.npz", train_images=COLOUR, train_labels=np.array(LABELS)[:, None])
    return tmp_path / "m.npz"


def stored_npy(tmp_path: Path) -> Path:
    np.save(tmp_path / "inputs.npy", GREY.astype(">f4"))
    np.save(tmp_path / "labels.npy", LABELS)
    return tmp_path / "inputs.npy"


def shards(tmp_path: Path) -> Path:
    (tmp_path / "shards").mkdir()
    for part in range(3):
        members: list[tuple[str, bytes]] = []
        for row in range(3 * part, 3 * part + 3):
            members.append((f"ward/{row:03d}.png", image(GREY[row])))
            if row % 2:
                members.append((f"ward/{row:03d}.cls", str(LABELS[row]).encode()))
            told = {"label": LABELS[row], "patient": f"p{row // 2}"}
            members.append((f"ward/{row:03d}.json", json.dumps(told).encode()))
        shard(tmp_path / "shards" / f"part-{part:02d}.tar", members)
    return tmp_path / "shards"


def pattern_of_shards(tmp_path: Path) -> Path:
    return shards(tmp_path) / "part-{00..02}.tar"


def shard_of_arrays(tmp_path: Path) -> Path:
    members: list[tuple[str, bytes]] = []
    for row, label in enumerate(LABELS):
        written = io.BytesIO()
        np.save(written, GREY[row].astype(np.float32))
        members += [(f"{row}.npy", written.getvalue()), (f"{row}.cls", str(label).encode())]
    return shard(tmp_path / "one.tar", members)


KINDS = [
    folder_of_images,
    deep_images,
    coloured_images,
    stored_npz,
    medmnist,
    stored_npy,
    shards,
    pattern_of_shards,
    shard_of_arrays,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rows_read_on_demand_are_those_in_memory(tmp_path: Path, kind: Callable[[Path], Path]) -> None:
    path = kind(tmp_path)
    here, there = load(path), load(path, lazy=True)
    assert isinstance(here, Examples)
    assert isinstance(there, LazyExamples)
    assert len(here) == 9
    np.testing.assert_array_equal(here.labels, there.labels)
    assert (here.patients, here.named) == (there.patients, there.named)
    whole = there.in_memory()
    np.testing.assert_array_equal(whole.inputs, here.inputs, strict=True)
    few = there.take([8, 2, 3, 4]).read([3, 0, 0])
    np.testing.assert_array_equal(few.inputs, here.inputs[[4, 8, 8]], strict=True)
    assert few.labels.tolist() == here.labels[[4, 8, 8]].tolist()
    # Into the process of a worker and back.
    again = pickle.loads(pickle.dumps(there.reader))
    np.testing.assert_array_equal(again.read(np.array([7, 0])), here.inputs[[7, 0]])


def test_kinds_hold_what_was_written(tmp_path: Path) -> None:
    by_class = np.argsort(LABELS, kind="stable")
    found = load(folder_of_images(tmp_path), lazy=True)
    assert isinstance(found, LazyExamples)
    np.testing.assert_array_equal(found.in_memory().inputs, GREY[by_class])
    assert found.patients == tuple(f"p{row // 2}" for row in by_class)
    told = load(shards(tmp_path), lazy=True)
    assert isinstance(told, LazyExamples)
    np.testing.assert_array_equal(told.in_memory().inputs, GREY)
    assert told.labels.tolist() == LABELS
    assert told.patients == tuple(f"p{row // 2}" for row in range(9))
    assert one_per_patient(told).patients == ("p0", "p1", "p2", "p3", "p4")


def test_what_is_large_is_read_on_demand_unless_somebody_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder_of_images(tmp_path)
    assert isinstance(load(path), Examples)
    monkeypatch.setattr("private_learning.records.lazy.LARGE", GREY.nbytes)
    assert isinstance(load(path), Examples)
    monkeypatch.setattr("private_learning.records.lazy.LARGE", GREY.nbytes - 1)
    assert isinstance(load(path), LazyExamples)
    assert isinstance(load(path, lazy=False), Examples)


@pytest.mark.parametrize("written", ["compressed", "fortran"])
def test_arrays_that_are_not_stored_row_by_row_are_read_as_a_whole(tmp_path: Path, written: str) -> None:
    path = tmp_path / "a.npz"
    if written == "compressed":
        np.savez_compressed(path, inputs=GREY, labels=LABELS)
    else:
        path = tmp_path / "inputs.npy"
        np.save(path, np.asfortranarray(GREY))
        np.save(tmp_path / "labels.npy", LABELS)
    found = load(path)
    assert isinstance(found, Examples)
    np.testing.assert_array_equal(found.inputs, GREY)
    with pytest.raises(DataError, match="cannot be read row by row"):
        load(path, lazy=True)


@pytest.mark.parametrize("what", ["table", "idx"])
def test_what_is_never_read_on_demand_says_so(tmp_path: Path, what: str) -> None:
    path = tmp_path / ("a.csv" if what == "table" else "train-images-idx3-ubyte")
    path.write_text("x,y\n1,2\n")
    (tmp_path / "train-labels-idx1-ubyte").write_text("x")
    with pytest.raises(DataError, match="into memory as a whole"):
        load(path, lazy=True)


def test_an_image_that_goes_or_breaks_or_grows_is_counted_and_not_named(tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path)
    found = list_images(folder)
    gone = folder / "class0" / "0.png"
    for change in (gone.unlink, lambda: gone.write_bytes(b"\x89PNG\r\n\x1a\n")):
        change()
        with pytest.raises(DataError, match="1 of 2 files cannot be read as images") as caught:
            found.read([0, 1])
        assert "0.png" not in str(caught.value)
    gone.write_bytes(image(GREY[0][:3]))
    with pytest.raises(DataError, match="changed since they were listed"):
        found.read([0, 1])


def test_a_file_of_arrays_that_changes_is_refused(tmp_path: Path) -> None:
    path = stored_npy(tmp_path)
    found = load(path, lazy=True)
    assert isinstance(found, LazyExamples)
    os.utime(path, ns=(1, 1))
    with pytest.raises(DataError, match="has changed"):
        found.read([0])
    path.unlink()
    with pytest.raises(DataError, match=r"some of 1 records can no longer be read \(FileNotFoundError\)"):
        found.read([0])


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


class Wards:
    """A data set that counts how often an item was made."""

    def __init__(self, triples: bool = False, **held: Any) -> None:
        self.triples, self.made = triples, 0
        vars(self).update(held)

    def __len__(self) -> int:
        return 9

    def __getitem__(self, row: int) -> tuple[Any, ...]:
        self.made += 1
        item = (GREY[row].astype(np.float32), LABELS[row])
        return (*item, f"p{row // 2}") if self.triples else item


@pytest.mark.parametrize(
    ("wards", "made"),
    [
        # 16 of all: eight items are looked at twice, to see whether they change.
        (Wards(), 26),
        (Wards(triples=True), 26),
        (Wards(targets=LABELS), 25),
        (Wards(labels=np.array(LABELS)), 25),
        (Wards(triples=True, targets=LABELS, patients=[f"p{row // 2}" for row in range(9)]), 25),
        # Labels that are not those of the items, as before a transformation of the targets.
        (Wards(targets=[7] * 9), 27),
        (Wards(triples=True, targets=LABELS), 27),
    ],
    ids=["pairs", "triples", "targets", "labels", "patients", "others' labels", "no patients"],
)
def test_labels_of_a_data_set_are_taken_without_its_items_where_they_are_held(wards: Wards, made: int) -> None:
    here, there = records_of(wards, lazy=False), None
    wards.made = 0
    there = records_of(wards, lazy=True)
    assert isinstance(there, LazyExamples)
    assert wards.made == made
    assert isinstance(here, Examples)
    assert there.labels.tolist() == here.labels.tolist() == LABELS
    assert (there.patients, there.named) == (here.patients, here.named)
    np.testing.assert_array_equal(there.in_memory().inputs, here.inputs, strict=True)
    assert there.read_by == "caller"


def test_chained_records_keep_their_order_and_tell_patients_apart(tmp_path: Path) -> None:
    one = load(folder_of_images(tmp_path), lazy=True)
    assert isinstance(one, LazyExamples)
    both = chained([one.take([3, 1]), one])
    assert len(both) == 11
    np.testing.assert_array_equal(both.read([0, 5, 1]).inputs, one.read([3, 3, 1]).inputs)
    assert both.patients[0] == f"0/{one.patients[3]}"
    assert both.patients[5] == f"1/{one.patients[3]}"


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
