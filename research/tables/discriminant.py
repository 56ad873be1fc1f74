"""A linear map fitted to public images: Fisher's discriminant keeps what separates glyphs and evens out the hand.

Coordinates come in order of how well they separate, of unit variance within a glyph: few of them do, so that little
noise is added, and one gradient step from zero already weighs them as a discriminant does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg as _linalg  # pyright: ignore[reportMissingTypeStubs]

Floats = NDArray[np.float32]
Labels = NDArray[np.int64]
_solve = cast(Any, _linalg)
_MIN_EIGENVALUE = 1e-6
_PIECE = 2000


@dataclass(frozen=True)
class Discriminant:
    """centre: (features,). directions: (features, kept)."""

    centre: Floats
    directions: Floats

    def __call__(self, features: Floats) -> Floats:
        """(n, features) to coordinates (n, kept), every record by itself."""
        return np.asarray((unit(features) - self.centre) @ self.directions, np.float32)


def unit(features: Floats) -> Floats:
    """Every row scaled to L2 norm 1; rows that are nearly 0 stay short."""
    lengths = np.linalg.norm(features, axis=1, keepdims=True).astype(np.float32)
    return features / np.maximum(lengths, np.float32(_MIN_EIGENVALUE))


def fit(features: Floats, glyphs: Labels, components: int, shrinkage: float) -> Discriminant:
    """Of public features (n, features) of so many copies of every glyph (n,).

    shrinkage  this share of the mean variance within glyphs is added to every direction's

    Raises:
        ValueError: more directions are asked for than glyphs separate.
    """
    count, rows = int(glyphs.max()) + 1, unit(features)
    if components >= min(count, rows.shape[1] + 1):
        raise ValueError(f"{count} glyphs of {rows.shape[1]} features separate fewer than {components} directions")
    centre = rows.mean(axis=0)
    means = np.zeros((count, rows.shape[1]), np.float32)
    np.add.at(means, glyphs, rows)
    means /= np.bincount(glyphs)[:, None].astype(np.float32)
    # In place and in pieces: the rows of a wide map are most of the memory.
    for start in range(0, len(rows), _PIECE):
        rows[start : start + _PIECE] -= means[glyphs[start : start + _PIECE]]
    within = (rows.T @ rows / len(rows)).astype(np.float64)
    within += shrinkage * np.trace(within) / len(within) * np.eye(len(within))
    root = _solve.cholesky(within, lower=True)
    # Whitened within glyphs: the glyphs' means then lie along the directions that separate them.
    spread = _solve.solve_triangular(root, (means - centre).T.astype(np.float64), lower=True) / np.sqrt(count)
    whole = spread @ spread.T
    size = len(whole)
    vectors = _solve.eigh(whole, subset_by_index=[size - components, size - 1])[1][:, ::-1]
    directions = _solve.solve_triangular(root.T, vectors, lower=False)
    # Signs are the solver's whim: the largest entry is positive.
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(components)]
    return Discriminant(centre.astype(np.float32), (directions * np.sign(largest)).astype(np.float32))
