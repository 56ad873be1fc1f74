"""Images and their masks, in two folders side by side. Images are read on demand, masks are in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from private_learning.records.images import listed
from private_learning.records.labelled import require_read
from private_learning.records.lazy import LazyExamples
from private_learning.records.paths import visible_paths
from private_learning.records.pictures import SUFFIXES, read_class_numbers
from private_learning.records.records import Array, DataError

IMAGES, MASKS = "images", "masks"


def holds_masks(folder: Path) -> bool:
    """Return whether the sub-folders are `images` and `masks`, without others."""
    return {path.name for path in visible_paths(folder) if path.is_dir()} == {IMAGES, MASKS}


def list_masked(folder: Path) -> LazyExamples:
    """Return examples from <folder>/images and <folder>/masks, with files of the same names except for their endings.

    A mask is an image of one channel, or of a palette, with the class of each pixel as its number. Labels are
    (n, height, width). With one bit a pixel they are 0 and 1. Files in deeper folders belong together if their folders
    have the same name. Patients are as in `list_images`, with the column file as images/<name>.

    Raises:
        DataError: an image or a mask has no partner, several files have one name, sizes differ, files are no images,
            or masks are in colours.
    """
    require_read(folder, "images and masks", _is_image)
    images, masks = (_by_stem(folder / part) for part in (IMAGES, MASKS))
    unpaired = len(images.keys() ^ masks.keys())
    if not (images or masks):
        raise DataError(f"the folders {IMAGES} and {MASKS} hold no image. Endings are {', '.join(sorted(SUFFIXES))}")
    if unpaired:
        raise DataError(
            f"images and masks: {unpaired} of {len(images)} images and {len(masks)} masks have no partner of their "
            "name. images/a.png and masks/a.png belong together"
        )
    stems = sorted(images)
    labels = _masks([masks[stem] for stem in stems])
    records = listed(folder, [images[stem].relative_to(folder).as_posix() for stem in stems], labels)
    height, width = records.read([0]).inputs.shape[-2:]
    if labels.shape[1:] != (height, width):
        raise DataError("masks: bring each to the width and height of its image first")
    return records


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES


def _by_stem(folder: Path) -> dict[str, Path]:
    paths = [path for path in visible_paths(folder, below=True) if path.is_file() and _is_image(path)]
    by_stem = {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}
    if len(by_stem) < len(paths):
        raise DataError(
            f"{folder.name}: {len(paths) - len(by_stem)} files have the name of another, but for the ending"
        )
    return by_stem


def _masks(paths: Sequence[Path]) -> Array:
    """Return the masks, (n, height, width)."""
    masks = list(filter(None, [read_class_numbers(path, path.suffix.lower()) for path in paths]))
    if len(masks) < len(paths):
        raise DataError(
            f"masks: {len(paths) - len(masks)} of {len(paths)} files cannot be read as single images of one channel, "
            "with numbers of 1 bit or of 8 and more for the class of each pixel"
        )
    kinds = Counter(kind for kind, _ in masks)
    if len(kinds) > 1:
        counts = ", ".join(f"{kind}: {kinds[kind]}" for kind in sorted(kinds))
        raise DataError(
            f"masks: keep one kind of files ({counts}). One bit is 0 and 1, a palette has places, and others have the "
            "numbers themselves: the same pixel may be 1 in one and 255 in another"
        )
    if len({mask.shape for _, mask in masks}) > 1:
        raise DataError("masks: bring them to one width and height first")
    return np.stack([mask for _, mask in masks])
