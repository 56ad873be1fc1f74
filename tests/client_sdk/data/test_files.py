"""Records from image folders, data sets, MedMNIST and the heart disease files; what is wrong in them is counted."""

import gzip
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from client_sdk.data import DataError, Examples, Table, load, read_heart_disease, read_images, read_npz, records_of
from client_sdk.protocol.randomness.source import SeededRandomness
from client_sdk.protocol.wire.tensors import decode
from client_sdk.tasks import load as load_task
from client_sdk.tasks.dataset import ABSENT
from client_sdk.training import LocalTraining
from client_sdk.training.local import weights_of
from experiments.demo.scenarios import data_folder
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import settings

GREY = np.random.default_rng(0).integers(0, 256, (5, 6, 4), dtype=np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (6, 4, 3), dtype=np.uint8)


def write(folder: Path, images: dict[str, Any]) -> Path:
    for name, pixels in images.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    return folder


def test_grey_images_come_by_class_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path, {"sick/b.png": GREY[0], "sick/a.png": GREY[1], "healthy/z.PNG": GREY[2]})
    (tmp_path / "sick" / "notes.txt").write_text("not an image, and not called one")
    (tmp_path / ".thumbnails").mkdir()
    examples = load(tmp_path)
    assert isinstance(examples, Examples)
    np.testing.assert_array_equal(examples.inputs, GREY[[2, 1, 0]])
    assert examples.labels.tolist() == [0, 1, 1]
    assert len(set(examples.patients)) == 3


def test_colours_come_first_and_grey_joins_them(tmp_path: Path) -> None:
    write(tmp_path, {"a/0.png": COLOUR, "b/0.png": GREY[0]})
    examples = read_images(tmp_path)
    assert examples.inputs.shape == (2, 3, 6, 4)
    np.testing.assert_array_equal(examples.inputs[0], np.moveaxis(COLOUR, 2, 0))
    np.testing.assert_array_equal(examples.inputs[1], np.stack([GREY[0]] * 3))


def test_deep_grey_keeps_its_depth(tmp_path: Path) -> None:
    deep = (GREY[:2].astype(np.uint16) * 200).astype(np.uint16)
    write(tmp_path, {"a/0.png": deep[0], "b/0.png": deep[1]})
    np.testing.assert_array_equal(read_images(tmp_path).inputs, deep)


def test_a_class_without_images_keeps_its_number(tmp_path: Path) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "c/0.png": GREY[1]})
    (tmp_path / "b").mkdir()
    assert read_images(tmp_path).labels.tolist() == [0, 2]
    assert read_images(tmp_path, classes=["c", "a"]).labels.tolist() == [0, 1]
    with pytest.raises(DataError, match=r"missing: \['d'\]"):
        read_images(tmp_path, classes=["a", "d"])


def test_images_of_one_patient_are_told_by_a_list(tmp_path: Path) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "a/1.png": GREY[1], "b/0.png": GREY[2]})
    listed = tmp_path / "patients.csv"
    listed.write_text("file,patient\na/0.png,17\na/1.png,18\nb/0.png,17\n")
    assert read_images(tmp_path).patients == ("17", "18", "17")
    task = load_task("cnn", {"height": 6, "width": 4, "classes": 2})
    together = task.dataset(load(tmp_path)).by_patient(2)
    assert together.patients == ("17", "18")
    listed.write_text("file,patient\na/0.png,17\n")
    with pytest.raises(DataError, match="2 of 3 images are not listed"):
        read_images(tmp_path)
    listed.write_text("name,patient\na/0.png,17\n")
    with pytest.raises(DataError, match="columns file and patient"):
        read_images(tmp_path)


@pytest.mark.parametrize(
    "spoiled", [b"", b"\x89PNG\r\n\x1a\n and then nothing", b"GIF89a"], ids=["empty", "png", "gif"]
)
def test_broken_images_are_counted_and_not_named(tmp_path: Path, spoiled: bytes) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "b/0.png": GREY[1]})
    (tmp_path / "a" / "miller-anna.png").write_bytes(spoiled)
    with pytest.raises(DataError, match="1 of 3 files") as caught:
        read_images(tmp_path)
    assert "miller" not in str(caught.value)


def test_folders_that_are_no_image_folders_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "sizes", {"a/0.png": GREY[0], "b/0.png": GREY[0][:3]})
    with pytest.raises(DataError, match="one width and height"):
        read_images(tmp_path / "sizes")
    write(tmp_path / "one", {"a/0.png": GREY[0]})
    with pytest.raises(DataError, match="at least two classes"):
        read_images(tmp_path / "one")
    for name in ("a", "b"):
        (tmp_path / "none" / name).mkdir(parents=True)
    with pytest.raises(DataError, match="no file ends in"):
        read_images(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        read_images(tmp_path / "nowhere")


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "b/0.png": GREY[1]})
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'wardround\[images\]'"):
        read_images(tmp_path)


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
    with pytest.raises(DataError, match="several labels"):
        load(path, split="test")


def test_pneumoniamnist_reads_as_published() -> None:
    path = data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no pneumoniamnist")
    counts = {split: np.bincount(read_npz(path, split=split).labels).tolist() for split in ("train", "val", "test")}
    # Yang et al. 2023, Table 2 and the files' own labels.
    assert counts == {"train": [1214, 3494], "val": [135, 389], "test": [234, 390]}


def test_heart_disease_files_need_no_header(tmp_path: Path) -> None:
    path = tmp_path / "processed.cleveland.data"
    path.write_text("63.0,1.0,1.0,145.0,0,1.0,2.0,150.0,0.0,2.3,3.0,0.0,6.0,0\n67,1,4,0,286,0,2,108,1,1.5,2,?,3,2\n")
    table = load(path)
    assert isinstance(table, Table)
    assert table.patients == ("cleveland-0", "cleveland-1")
    assert table.columns["disease"].tolist() == [0.0, 1.0]
    np.testing.assert_array_equal(table.columns["chol"], [np.nan, 286])
    np.testing.assert_array_equal(table.columns["trestbps"], [145, np.nan])
    np.testing.assert_array_equal(table.columns["ca"], [0, np.nan])
    path.write_text("1,2,3\n")
    with pytest.raises(DataError, match="14 cells"):
        load(path)


@pytest.mark.parametrize(("site", "rows"), [("cleveland", 303), ("hungarian", 294), ("switzerland", 123), ("va", 200)])
def test_the_four_hospitals_have_their_patients(site: str, rows: int) -> None:
    path = data_folder() / "heart_disease_4_hospitals" / f"processed.{site}.data"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no heart_disease_4_hospitals")
    table = read_heart_disease(path)
    assert len(table) == rows
    assert not np.isnan(table.columns["disease"]).any()


def test_a_gzipped_table_reads_like_the_table(tmp_path: Path) -> None:
    text = b"who,x\n7,1.5\n8,?\n"
    (tmp_path / "a.csv").write_bytes(text)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(text))
    plain, packed = (load(tmp_path / name, patient_column="who") for name in ("a.csv", "a.csv.gz"))
    assert isinstance(plain, Table)
    assert isinstance(packed, Table)
    assert plain.patients == packed.patients == ("7", "8")
    np.testing.assert_array_equal(plain.columns["x"], packed.columns["x"])


def test_intensive_care_stays_become_patients() -> None:
    """eICU's demo: 2520 stays of 1841 patients, who may come back up to 24 times."""
    path = data_folder() / "eicu_demo" / "patient.csv.gz"
    if not path.exists():
        pytest.skip("WARDROUND_DATA holds no eicu_demo")
    stays = load(path, patient_column="uniquepid")
    assert isinstance(stays, Table)
    columns = {
        "weight": stays.columns["admissionweight"],
        "female": stays.columns["gender"],
        "died": (stays.columns["hospitaldischargestatus"] == "Expired").astype(float),
    }
    about = {"column.weight": "30..200; missing=80", "column.female": "Female|Male; missing", "label": "died"}
    known = [i for i, gender in enumerate(columns["female"]) if gender in ("Female", "Male", None)]
    rows = load_task("logistic-regression", about).dataset(Table(columns, stays.patients).take(known))
    with pytest.raises(DataError, match="rows_per_patient"):
        rows.by_patient(1)
    for most, longest in ((5, 5), (30, 24)):
        patients = rows.by_patient(most)
        assert patients.inputs.shape[:2] == (len(set(rows.patients)), longest)
        counts = np.unique(rows.patients, return_counts=True)[1]
        assert int((patients.targets != ABSENT).sum()) == int(np.minimum(counts, most).sum())


class Wards(Dataset[Any]):
    """Items as given."""

    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> Any:
        return self.items[index]


def test_data_sets_of_pytorch_are_records() -> None:
    x, y = torch.arange(6.0).view(3, 2), torch.tensor([0, 1, 1])
    plain = records_of(TensorDataset(x, y))
    assert isinstance(plain, Examples)
    np.testing.assert_array_equal(plain.inputs, x.numpy())
    assert plain.labels.tolist() == [0, 1, 1]
    assert len(set(plain.patients)) == 3
    named = records_of(TensorDataset(x.requires_grad_(), y, torch.tensor([7, 8, 7])))
    assert named.patients == ("7", "8", "7")
    pictures = records_of(Wards([(Image.fromarray(COLOUR), 1), (Image.fromarray(COLOUR), np.int64(0))]))
    assert isinstance(pictures, Examples)
    np.testing.assert_array_equal(pictures.inputs[0], np.moveaxis(COLOUR, 2, 0))


def test_data_frames_and_records_pass_as_they_are() -> None:
    frame = pd.DataFrame({"x": [1, 2], "t": ["u", None]})
    table = records_of(frame)
    assert isinstance(table, Table)
    assert table.columns["t"].tolist() == ["u", None]
    assert records_of(table) is table


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([(np.zeros(2), 0)])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Stream(), "map-style"),
        (17, "map-style"),
        (Wards([np.zeros(2)]), r"\(x, y\)"),
        (Wards([(np.zeros(2), 0), (np.zeros(2), 0, "a")]), r"\(x, y\)"),
        (Wards([(np.zeros(2), 0), (np.zeros(3), 0)]), "one shape"),
        (Wards([(np.zeros(2), [0, 1])]), "one number"),
        (Wards([]), r"\(x, y\)"),
    ],
    ids=["stream", "number", "no pair", "triple", "shapes differ", "two labels", "empty"],
)
def test_what_is_no_record_is_refused(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        records_of(data)


@pytest.mark.parametrize("kind", ["frame", "data set"])
def test_excluded_patients_are_left_out_whatever_the_records_came_from(tmp_path: Path, kind: str) -> None:
    """The list of the site policy, through the whole participation: the same update as without these records."""
    table = records(12)
    if kind == "frame":
        frame = pd.DataFrame({**table.columns, "patient": table.patients})
        given: Any = Table.of(frame, patient_column="patient")
        chosen = settings(sampling_rate=1.0, max_steps=1)
        task = load_task(chosen.training.task, chosen.training.task_parameters)
    else:
        parameters = {"features": 2, "classes": 2, "bound": 5.0}
        chosen = settings(
            training={"task": "last-layer", "task_parameters": parameters}, sampling_rate=1.0, max_steps=1
        )
        task = load_task("last-layer", parameters)
        x = torch.tensor(np.column_stack([table.columns["age"] / 100, table.columns["rate"] / 10]))
        given = Wards(list(zip(x, table.columns["ill"], table.patients, strict=True)))
    other, rules = coordinator(chosen), plain_policy(excluded_patients=["p3", "p7", "p11"])

    def randomness() -> SeededRandomness:
        return SeededRandomness(1, allow_insecure=True)

    hospital(other, tmp_path).join("sepsis", None, given, policy=rules, dataset="icu", randomness=randomness())
    sent = decode(other.updates[1]["mercy"], other._update_spec())
    kept = [i for i in range(12) if i not in (3, 7, 11)]
    rest = records_of(given).take(kept)
    alone = LocalTraining(task, task.dataset(rest), chosen, randomness(), party="mercy")
    for name, array in alone.update(weights_of(task.model()), None).items():
        np.testing.assert_array_equal(sent[f"update/{name}"], array)
