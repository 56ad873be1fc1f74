"""MNIST as the tables train on it: scattering, then a discriminant fitted to invented handwriting. Nothing is private.

The coordinates are computed once, in minutes, and kept in the temporary folder under a name that says how.
"""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.records import read_idx
from research.tables import discriminant, scattering, strokes
from research.tables.discriminant import fit, unit
from wardround.demo.scenarios import DataMissing, data_folder

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]

# Chosen once, with the shape of MNIST in mind and on its first 50,000 images: 2,000 glyphs, 20 copies.
GLYPHS, COPIES, SEED = 2000, 20, 0
SHRINKAGE = 0.1
MOST_KEPT = 400
# The last training images choose settings; the others train meanwhile.
VALIDATION = 10_000


@dataclass(frozen=True)
class Digits:
    """inputs: (n, kept) of L2 norm 1. labels: (n,). The same for the records that judge."""

    inputs: Floats
    labels: Labels
    test_inputs: Floats
    test_labels: Labels


def digits(components: int) -> Digits:
    """All training images, and the test images. Raises DataMissing."""
    coordinates = _coordinates()
    train, test = (unit(coordinates[f"{part}_coordinates"][:, :components]) for part in ("train", "t10k"))
    return Digits(train, coordinates["train_labels"], test, coordinates["t10k_labels"])


def held_out(components: int) -> Digits:
    """The first 50,000 training images, judged by the other 10,000."""
    whole = digits(components)
    inputs, labels = whole.inputs, whole.labels
    return Digits(inputs[:-VALIDATION], labels[:-VALIDATION], inputs[-VALIDATION:], labels[-VALIDATION:])


def _coordinates() -> dict[str, Any]:
    path = Path(tempfile.gettempdir()) / f"wardround-tables-{_recipe()}.npz"
    if not path.exists():
        computed = _computed()
        part = path.with_suffix(".part.npz")
        np.savez(part, **computed)
        part.rename(path)
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def _computed() -> dict[str, Any]:
    folder = data_folder() / "mnist"
    if not folder.is_dir():
        raise DataMissing(f"{folder} is missing: set WARDROUND_DATA to the folder that holds mnist/")
    images, glyphs = strokes.handwriting(GLYPHS, COPIES, SEED)
    public = fit(scattering.scattering(images), glyphs, MOST_KEPT, SHRINKAGE)
    arrays: dict[str, Any] = {}
    for part in ("train", "t10k"):
        pictures = read_idx(folder / f"{part}-images-idx3-ubyte.gz")
        # In pieces: all features of all images would take a gigabyte.
        pieces = [public(scattering.scattering(piece)) for piece in np.array_split(pictures, len(pictures) // 2000)]
        arrays[f"{part}_coordinates"] = np.concatenate(pieces)
        arrays[f"{part}_labels"] = read_idx(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
    return arrays


def _recipe() -> str:
    """Names the code and constants that the coordinates come from."""
    text = repr((GLYPHS, COPIES, SEED, SHRINKAGE, MOST_KEPT)).encode()
    for module in (strokes, scattering, discriminant):
        text += Path(str(module.__file__)).read_bytes()
    return hashlib.sha256(text).hexdigest()[:16]
