"""Images beside their masks in a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from private_learning.records import DataError, Examples, LazyExamples, load
from private_learning.tasks import dataset_of
from private_learning.tasks import load as load_task

COUNT, HEIGHT, WIDTH = 4, 6, 8


def folder_of(path: Path, palette: bool = False) -> tuple[Path, np.ndarray, np.ndarray]:
    """Images of one channel and masks of 0 and 255, or of a palette's places 0 and 1."""
    draw = np.random.default_rng(1)
    images = draw.integers(0, 256, (COUNT, HEIGHT, WIDTH), np.uint8)
    masks = draw.integers(0, 2, (COUNT, HEIGHT, WIDTH), np.uint8) * (1 if palette else 255)
    for part in ("images", "masks"):
        (path / part).mkdir()
    for place in range(COUNT):
        Image.fromarray(images[place]).save(path / "images" / f"scan-{place}.png")
        mask = Image.fromarray(masks[place])
        if palette:
            mask.putpalette([0, 0, 0, 200, 10, 10])
            assert mask.mode == "P"
        mask.save(path / "masks" / f"scan-{place}.{'png' if place % 2 else 'tif'}")
    (path / "patients.csv").write_text(
        "file,patient\n" + "".join(f"images/scan-{place}.png,p{place // 2}\n" for place in range(COUNT))
    )
    return path, images, masks


@pytest.mark.parametrize("palette", [False, True])
def test_images_and_masks_are_paired_by_name(tmp_path: Path, palette: bool) -> None:
    folder, images, masks = folder_of(tmp_path, palette)
    (folder / "masks" / "._scan-1.png").write_bytes(b"hidden")
    found, lazy = load(folder), load(folder, lazy=True)
    assert isinstance(found, Examples)
    assert isinstance(lazy, LazyExamples)
    np.testing.assert_array_equal(found.inputs, images)
    np.testing.assert_array_equal(found.labels, masks)
    np.testing.assert_array_equal(lazy.labels, masks)
    assert found.patients == ("p0", "p0", "p1", "p1")
    values = "0|1" if palette else "0|255"
    parameters = {"height": HEIGHT, "width": WIDTH, "classes": 2, "mask-values": values, "filters": 8, "depth": 1}
    task = load_task("segmentation", parameters)
    one, other = dataset_of(task, found), dataset_of(task, lazy)
    assert one.targets.equal(other.targets)
    assert one.inputs[[2, 0]].equal(other.inputs[[2, 0]])
    np.testing.assert_array_equal(one.targets.numpy(), masks > 0)


def test_what_is_wrong_with_a_folder_is_counted_and_never_named(tmp_path: Path) -> None:
    folder, images, _ = folder_of(tmp_path)
    first = folder / "masks" / "scan-1.png"

    def refused(text: str) -> None:
        with pytest.raises(DataError, match=text) as caught:
            load(folder)
        assert "scan-" not in str(caught.value)

    first.write_bytes(b"no image")
    refused("1 of 4 files cannot be read as single images of one channel")
    Image.fromarray(np.stack([images[1]] * 3, axis=2)).save(first)
    refused("1 of 4 files cannot be read as single images of one channel")
    one = Image.fromarray(images[1])
    one.save(first, save_all=True, append_images=[Image.fromarray(images[0])])
    refused("1 of 4 files cannot be read as single images of one channel")
    Image.fromarray(images[1][:3]).save(first)
    refused("masks: bring them to one width and height")
    first.unlink()
    refused("1 of 4 images and 3 masks have no partner")
    for path in (folder / "masks").iterdir():
        Image.fromarray(images[1][:3]).save(path)
    (folder / "images" / "scan-1.png").unlink()
    refused("bring each to the width and height of its image")
    Image.fromarray(images[1]).save(folder / "masks" / "scan-0.png")
    refused("masks: 1 files have the name of another")


def test_folders_without_an_image_are_named(tmp_path: Path) -> None:
    for part in ("images", "masks"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "notes.txt").write_text("none")
    with pytest.raises(DataError, match="the folders images and masks hold no image"):
        load(tmp_path)


def masks_of(folder: Path, **modes: str) -> Path:
    """Two images, and masks of the same two kinds of pixels in these modes."""
    pixels = np.array([[0, 1, 1], [1, 0, 1]], np.uint8)
    for name, mode in modes.items():
        for part in ("images", "masks"):
            (folder / part / "deep").mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "images" / "deep" / f"{name}.png")
        mask = Image.fromarray(pixels * 255).convert("1") if mode == "1" else Image.fromarray(pixels)
        if mode == "P":
            mask.putpalette([0, 0, 0, 200, 10, 10])
        mask.save(folder / "masks" / "deep" / f"{name}.png")
    return folder


@pytest.mark.parametrize("mode", ["1", "P", "L"])
def test_masks_of_one_kind_are_their_numbers_also_in_deeper_folders(tmp_path: Path, mode: str) -> None:
    records = load(masks_of(tmp_path, a=mode, b=mode))
    assert isinstance(records, Examples)
    np.testing.assert_array_equal(records.labels, [[[0, 1, 1], [1, 0, 1]]] * 2)
    assert records.labels.dtype == np.uint8


@pytest.mark.parametrize(("one", "other"), [("1", "L"), ("P", "L"), ("1", "P")])
def test_masks_of_several_kinds_are_refused_with_counts(tmp_path: Path, one: str, other: str) -> None:
    with pytest.raises(DataError, match=r"masks: keep one kind of files \(.*: 1, .*: 1\)"):
        load(masks_of(tmp_path, a=one, b=other))


def test_a_mask_lies_as_its_own_file_says(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    image, mask = np.arange(6, dtype=np.uint8).reshape(2, 3), np.array([[0, 1, 1], [1, 0, 1]], np.uint8)
    for part, pixels in (("images", image), ("masks", mask)):
        (tmp_path / part).mkdir()
        Image.fromarray(pixels).save(tmp_path / part / "a.png", exif=exif)
    records = load(tmp_path)
    assert isinstance(records, Examples)
    # A quarter to the right.
    np.testing.assert_array_equal(records.inputs[0], np.rot90(image, -1))
    np.testing.assert_array_equal(records.labels[0], np.rot90(mask, -1))
