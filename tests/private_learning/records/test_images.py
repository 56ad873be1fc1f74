"""Images in folders: classes by name, colours in front, patients by a list, nothing named in an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from private_learning.records import DataError, Examples, load
from private_learning.records.images import read_images
from private_learning.tasks import load as load_task

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
    with pytest.raises(DataError, match=r"Missing: \['d'\]"):
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
    with pytest.raises(DataError, match="there is no folder nowhere in"):
        read_images(tmp_path / "nowhere")


def test_without_pillow_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "b/0.png": GREY[1]})
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install 'wardround\[images\]'"):
        read_images(tmp_path)


def test_a_folder_without_classes_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"at least two classes is expected\. There are 0"):
        load(tmp_path)


def test_a_list_that_names_a_file_twice_is_refused(tmp_path: Path) -> None:
    """Its patient would be whoever stands last."""
    write(tmp_path, {"sick/a.png": GREY[0], "healthy/a.png": GREY[1]})
    (tmp_path / "patients.csv").write_text("file,patient\nsick/a.png,P1\nhealthy/a.png,P2\nsick/a.png,P2\n")
    with pytest.raises(DataError, match="1 of 3 rows name a file again"):
        load(tmp_path)


def test_deep_grey_beside_colours_is_refused(tmp_path: Path) -> None:
    """As colours its numbers would be cut off at 255."""
    write(tmp_path, {"sick/a.png": GREY[0].astype(np.uint16) + 1000, "healthy/a.png": COLOUR})
    with pytest.raises(DataError, match="more than 8 bits"):
        load(tmp_path)


def test_patients_are_called_by_what_is_written(tmp_path: Path) -> None:
    """As numbers, 007 would be 7, and those beyond 2⁵³ would merge with their neighbours."""
    names = ("007", "7", "9007199254740993", "9007199254740992")
    write(tmp_path, {f"{'ab'[k % 2]}/{k}.png": GREY[0] for k in range(4)})
    lines = "".join(f"{'ab'[k % 2]}/{k}.png,{name}\n" for k, name in enumerate(names))
    (tmp_path / "patients.csv").write_text("file,patient\n" + lines)
    assert read_images(tmp_path).patients == (names[0], names[2], names[1], names[3])


def test_hidden_files_are_no_images(tmp_path: Path) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "b/0.png": GREY[1]})
    (tmp_path / "a" / "._0.png").write_bytes(b"what macOS lays beside it")
    assert len(read_images(tmp_path)) == 2


@pytest.mark.parametrize(("ending", "form"), [("tif", "TIFF"), ("png", "PNG"), ("webp", "WEBP")])
def test_files_of_several_images_are_counted_and_refused(tmp_path: Path, ending: str, form: str) -> None:
    write(tmp_path, {"a/0.png": GREY[0], "b/0.png": GREY[1]})
    first, *others = [Image.fromarray(one) for one in GREY[:3]]
    first.save(tmp_path / "a" / f"secret.{ending}", form, save_all=True, append_images=others)
    with pytest.raises(DataError, match="1 of 3 files hold several images") as caught:
        load(tmp_path)
    assert "secret" not in str(caught.value)


def test_the_preview_within_a_photograph_is_no_second_image(tmp_path: Path) -> None:
    write(tmp_path, {"a/0.png": COLOUR, "b/0.png": COLOUR})
    photograph = Image.fromarray(COLOUR)
    photograph.save(tmp_path / "a" / "1.jpg", "MPO", save_all=True, append_images=[photograph.resize((2, 3))])
    assert read_images(tmp_path).inputs.shape == (3, 3, 6, 4)


def test_images_beside_their_list_are_read_without_sub_folders(tmp_path: Path) -> None:
    for name, shade in (("1.png", 10), ("2.png", 20)):
        Image.new("L", (4, 3), shade).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,label\n1.png,1\n2.png,0\n")
    records = load(tmp_path, lazy=False)
    assert isinstance(records, Examples)
    assert [(int(image[0, 0]), int(label)) for image, label in zip(records.inputs, records.labels, strict=True)] == [
        (10, 1),
        (20, 0),
    ]


def test_a_link_that_leads_nowhere_is_counted_and_a_mac_s_folder_is_no_class(tmp_path: Path) -> None:
    for name in ("a/1.png", "b/2.png", "__MACOSX/3.png"):
        (tmp_path / name).parent.mkdir()
        Image.new("L", (4, 3)).save(tmp_path / name)
    assert read_images(tmp_path).labels.tolist() == [0, 1]
    (tmp_path / "a" / "miller.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(DataError, match="1 links lead to no file") as caught:
        read_images(tmp_path)
    assert "miller" not in str(caught.value)
