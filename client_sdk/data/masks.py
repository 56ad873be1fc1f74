"""Images and their masks, in two folders side by side: images are read when they are needed, masks lie in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from client_sdk.data.images import SUFFIXES, class_number_image, listed
from client_sdk.data.lazy import LazyExamples
from client_sdk.data.paths import seen
from client_sdk.data.records import Array, DataError

IMAGES, MASKS = "images", "masks"


def holds_masks(folder: Path) -> bool:
    """Are its sub-folders `images` and `masks`, and no others?"""
    return {path.name for path in seen(folder) if path.is_dir()} == {IMAGES, MASKS}


def list_masked(folder: Path) -> LazyExamples:
    """Examples from <folder>/images and <folder>/masks, whose files have the same names but for their endings.

    A mask is an image of one channel, or of a palette, whose numbers say what each pixel is: labels are
    (n, height, width). Patients as in `list_images`, with the column file as images/<name>.

    Raises:
        DataError: an image without its mask or a mask without its image, several of one name, several sizes, files
            that are no images, masks in colours.
    """
    images, masks = (_by_stem(folder / part) for part in (IMAGES, MASKS))
    alone = len(images.keys() ^ masks.keys())
    if not (images or masks):
        raise DataError(f"the folders {IMAGES} and {MASKS} hold no image; endings are {', '.join(sorted(SUFFIXES))}")
    if alone:
        raise DataError(
            f"images and masks: {alone} of {len(images)} images and {len(masks)} masks have no partner of their name; "
            "images/a.png and masks/a.png belong together"
        )
    stems = sorted(images)
    labels = _masks([masks[stem] for stem in stems])
    found = listed(folder, [f"{IMAGES}/{images[stem].name}" for stem in stems], labels)
    height, width = found.read([0]).inputs.shape[-2:]
    if labels.shape[1:] != (height, width):
        raise DataError("masks: bring each to the width and height of its image first")
    return found


def _by_stem(folder: Path) -> dict[str, Path]:
    paths = [path for path in seen(folder) if path.suffix.lower() in SUFFIXES]
    found = {path.stem: path for path in paths}
    if len(found) < len(paths):
        raise DataError(f"{folder.name}: {len(paths) - len(found)} files have the name of another, but for the ending")
    return found


def _masks(paths: Sequence[Path]) -> Array:
    """(n, height, width)."""
    opened = [class_number_image(path) for path in paths]
    found = [mask for mask in opened if mask is not None]
    if len(found) < len(paths):
        raise DataError(
            f"masks: {len(paths) - len(found)} of {len(paths)} files cannot be read as single images of one channel, "
            "whose numbers say what each pixel is"
        )
    if len({mask.shape for mask in found}) > 1:
        raise DataError("masks: bring them to one width and height first")
    return np.stack(found)
