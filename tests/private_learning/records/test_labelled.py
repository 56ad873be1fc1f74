"""Which files of a folder are records, and of which class: no file is left out in silence."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from private_learning.records import DataError, load, read_images
from private_learning.records.labelled import class_order


def pictures(folder: Path, *names: str) -> Path:
    """Grey ones, of which the first pixel is the place in the list."""
    for place, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((3, 4), place, np.uint8)).save(path)
    return folder


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (["10", "2", "1", "0"], ["0", "1", "2", "10"]),
        (["10", "-1", "9"], ["-1", "9", "10"]),
        # Not all are whole numbers as they are written without doubt.
        (["10", "2", "b"], ["10", "2", "b"]),
        (["10", "2", "01"], ["01", "10", "2"]),
        (["10", "2", "²"], ["10", "2", "²"]),
        (["10", "2", "1.5"], ["1.5", "10", "2"]),
        (["well", "ill"], ["ill", "well"]),
    ],
)
def test_numbers_are_in_numeric_order_and_words_in_that_of_their_text(names: list[str], order: list[str]) -> None:
    assert class_order(names) == class_order(reversed(names)) == order


def test_composed_and_decomposed_letters_have_one_place() -> None:
    names = ["f", "é", "e"]
    forms = [[unicodedata.normalize(form, name) for name in names] for form in ("NFC", "NFD")]
    orders = [[unicodedata.normalize("NFC", name) for name in class_order(form)] for form in forms]
    assert orders[0] == orders[1] == ["e", "f", "é"]


def test_class_10_is_not_between_1_and_2_and_the_order_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="private_learning.records")
    names = ("0", "1", "2", "10")
    records = read_images(pictures(tmp_path, *(f"{name}/{part}.png" for name in names for part in "xy")))
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert records.inputs[:, 0, 0].tolist() == list(range(8))
    assert "0 = 0, 1 = 1, 2 = 2, 3 = 10" in caplog.text
    assert "numbers, but not 0 to 3: labels are their places" in caplog.text


def test_pictures_in_deeper_folders_are_read(tmp_path: Path) -> None:
    folder = pictures(tmp_path, "a/1.png", "b/2.png", "b/more/deep/3.png")
    records = read_images(folder)
    assert (records.labels.tolist(), records.inputs[:, 0, 0].tolist()) == ([0, 1, 1], [0, 1, 2])
    (folder / "patients.csv").write_text("file,patient\na/1.png,p\nb/2.png,q\nb/more/deep/3.png,p\n")
    assert read_images(folder).patients == ("p", "q", "p")


def test_labels_of_pictures_may_stand_in_a_list(tmp_path: Path) -> None:
    folder = pictures(tmp_path, "x/1.png", "2.png", "y/z/3.png")
    (folder / "labels.csv").write_text("file,ill,patient\n2.png,1,p\nx/1.png,0,p\ny/z/3.png,1,q\n")
    records = load(folder)
    assert (records.labels.tolist(), records.patients) == ([1, 0, 1], ("p", "p", "q"))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (
            ["a/1.png", "b/2.png", "miller.png"],
            "2 sub-folders with 2 files, and 1 files lie beside them without a class",
        ),
        (["miller.png"], "There are 0 sub-folders with 0 files, and 1 files lie beside them.*labels.csv"),
        (
            ["miller/1.png", "miller/2.png"],
            "There are 1 sub-folders with 2 files.*An empty sub-folder stands for a class",
        ),
    ],
    ids=["beside", "no class", "one class"],
)
def test_files_without_a_class_are_counted(tmp_path: Path, names: list[str], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        load(pictures(tmp_path, *names))
    assert "miller" not in str(caught.value)


@pytest.mark.parametrize("ending", ["gif", "JP2", "heic", "svg"])
def test_images_of_kinds_that_are_not_read_are_counted(tmp_path: Path, ending: str) -> None:
    folder = pictures(tmp_path, "a/1.png", "b/2.png")
    (folder / "a" / f"miller.{ending}").touch()
    with pytest.raises(
        DataError, match=rf"1 files \(\.{ending.lower()}\) are images of a kind that is not read"
    ) as caught:
        load(folder)
    assert "miller" not in str(caught.value)


def test_other_files_are_counted_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = pictures(tmp_path, "a/1.png", "b/2.png")
    assert len(load(folder)) == 2
    assert "left out" not in caplog.text
    (folder / "a" / "notes.miller").touch()
    assert len(load(folder)) == 2
    assert "images: 1 files in the folder have other endings and are left out" in caplog.text
    assert "miller" not in caplog.text


def test_folders_behind_links_are_not_left_out_in_silence(tmp_path: Path) -> None:
    elsewhere = pictures(tmp_path / "elsewhere", "3.png")
    folder = pictures(tmp_path / "data", "a/1.png", "b/2.png")
    (folder / "c").symlink_to(elsewhere, target_is_directory=True)
    assert len(load(folder)) == 3
    (folder / "a" / "more").symlink_to(elsewhere, target_is_directory=True)
    with pytest.raises(DataError, match="1 links to folders are not followed"):
        load(folder)


def test_a_folder_for_each_file_is_asked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_images(pictures(tmp_path / "two", "a/1.png", "b/2.png"))
    assert "is a patient" not in caplog.text
    read_images(pictures(tmp_path / "three", "a/1.png", "b/2.png", "c/3.png"))
    assert "If each of the 3 sub-folders is a patient and not a class, write labels.csv" in caplog.text


@pytest.mark.parametrize("name", ["scan.png", "scan.nii.gz", "scan.dcm", "IM0001"])
def test_one_image_is_no_data_set(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\0" * 128 + b"DICM")
    with pytest.raises(DataError, match=r"this is one image. Name its folder"):
        load(tmp_path / name)
