"""The sum of the updates of a settled round: added up or aggregated otherwise, with the coordinator's noise.

Pure: bodies and draws come in, numbers go out, piece by piece. Every number depends on the same place of every update
alone. A model of any size therefore takes as much memory as one piece of each update.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server.domain.admission import EXACT, CentralNoise, mechanism
from server.domain.bounds import norm
from study_protocol.secure_sum.vectors import RingVector, VectorSpec, decode_signed
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Piece, ReadableTensors, gather_tensors, pieces
from study_protocol.wire.tensors import UPDATE, Array, Spec

logger = logging.getLogger("wardround.worker")

Real = NDArray[np.float64]
Draw = Callable[[float, int], NDArray[np.int64]]
"""draw(std in grid units, size) -> (size,) discrete Gaussian integers."""
# Numbers of all updates together that are sorted at once: 32 MiB.
_SORTED = 1 << 22


@dataclass(frozen=True)
class OpenedSum:
    """A sum of updates that was made under masks.

    words    words(start, stop) -> (stop − start,) of the sum's data words
    longest  L2 norm that it has at most if all are honest
    """

    spec: VectorSpec
    words: Callable[[int, int], RingVector]
    longest: float


class NotFinite(Exception):
    """The aggregate holds NaN or an infinity, or does not fit the grid, so no model can be released from it.

    reason  of the round, which ends without a model
    """

    reason = "not-finite"


class OutOfBounds(NotFinite):
    """The new model has a number beyond ±MAX_WEIGHT: every hospital would refuse to train from it."""

    reason = "weights-out-of-bounds"


def summed_spec(settings: StudySettings, model: Spec) -> Spec:
    """Return names, shapes and types of a sum of updates."""
    return {name: (shape, "float64") for name, (shape, _) in settings.privacy.sent(model).items()}


def noised_sum(
    settings: StudySettings, model: Spec, updates: Sequence[ReadableTensors], opened: OpenedSum | None, draw: Draw
) -> dict[str, Real]:
    """Return the results of `noised_pieces` and `rescaling_factor` in memory, as float64 by parameter name."""
    squares = list[float]()
    pieces = noised_pieces(settings, model, updates, opened, draw)
    total = gather_tensors(summed_spec(settings, model), measured(pieces, squares))
    shrink = None if opened is None else rescaling_factor(squares, opened.longest)
    return total if shrink is None else {name: values * shrink for name, values in total.items()}


def noised_pieces(
    settings: StudySettings, model: Spec, updates: Sequence[ReadableTensors], opened: OpenedSum | None, draw: Draw
) -> Iterator[Piece]:
    """Return the sum of a round's updates on their own scale, with the coordinator's noise where the study has it.

    A study with a median or a trimmed mean gets that, times expected_clients. A sum that was `opened` may be
    longer than honest hospitals make it: see `rescaling_factor`.

    Args:
        updates: bodies that came in the clear. Tensors that are no part of the update are passed over.
        opened: the sum that was made under masks.

    Returns:
        Float64, in the order of `tensor_files.pieces`: an addressed draw must meet the same numbers each time.

    Raises:
        NotFinite: NaN or an infinity, or a sum that is not on the grid of the noise or leaves its range.
    """
    sent = settings.privacy.sent(model)
    if settings.robustness.aggregation != "mean":
        pieces = _robust(settings, sent, updates)
    else:
        pieces = _added(sent, updates, opened, mechanism(settings, model), draw)
    for name, start, values in pieces:
        require_finite(values)
        yield name, start, values


def measured(values: Iterable[Piece], squares: list[float]) -> Iterator[Piece]:
    """Yield the pieces unchanged, and note the squared norm of each."""
    for name, start, piece in values:
        squares.append(float(np.square(piece, dtype=np.float64).sum()))
        yield name, start, piece


def rescaling_factor(squares: Sequence[float], longest: float) -> float | None:
    """Return the factor by which an opened sum of these squared norms is at most `longest` long. None: it is already.

    After the noise, so that it is post-processing: it does not reveal a client that wrote too much into a masked sum.
    """
    length = norm(squares)
    if not length > longest:
        return None
    logger.warning("an opened sum was longer than honest hospitals make it, and was drawn back")
    return longest / length


def _added(
    model: Spec, updates: Sequence[ReadableTensors], opened: OpenedSum | None, noise: CentralNoise | None, draw: Draw
) -> Iterator[Piece]:
    """Yield the added updates. With central noise each is rounded to the grid first: totals in grid units are exact."""
    scale = 1.0 if noise is None else noise.spacing
    # The sensitivity counts one rounding, to this grid: off it the noise would be too small.
    if opened is not None and noise is not None and 2.0**-opened.spec.scale_bits != scale:
        raise NotFinite("the masked sum is not on the grid of the central noise")
    place = 0
    for name, start, stop in pieces(model):
        total = np.zeros(stop - start, np.float64)
        if opened is not None:
            total += _integers(opened, place, stop - start) * (1.0 if noise else 2.0**-opened.spec.scale_bits)
        place += stop - start
        for update in updates:
            total += _rounded(update.piece(UPDATE + name, start, stop), noise)
        if noise is not None:
            _require_on_grid(total)
            total += draw(noise.units, total.size)
            # A power of two: exact.
            total *= scale
        yield name, start, total


def _integers(opened: OpenedSum, start: int, size: int) -> Real:
    """Return a piece of an opened sum in ring units."""
    return decode_signed(opened.words(start, start + size), scale_bits=0)


def _rounded(values: Array, noise: CentralNoise | None) -> Real:
    scaled = values.astype(np.float64)
    if noise is not None:
        scaled /= noise.spacing
        # The noise's sensitivity has half a grid step in every coordinate for this.
        np.rint(scaled, out=scaled)
    return scaled


def _require_on_grid(total: Real) -> None:
    # Half of what is exact is left for the noise. Written so that NaN is refused, too.
    if total.size and not float(np.abs(total).max()) < EXACT / 2:
        raise NotFinite("the sum does not fit the grid")


def _robust(settings: StudySettings, model: Spec, updates: Sequence[ReadableTensors]) -> Iterator[Piece]:
    """Yield the median or trimmed mean of noised updates at every coordinate.

    Yin, Chen, Ramchandran & Bartlett 2018. Times expected_clients, because the later steps divide by it.
    """
    middle = _middle(settings, len(updates))
    for name, start, stop in pieces(model):
        # Equal parts, and never of a single number of many: along one axis numpy adds in another order.
        parts = max(1, math.ceil(len(updates) * (stop - start) / _SORTED))
        bounds = [start + (stop - start) * part // parts for part in range(parts + 1)]
        for begin, end in itertools.pairwise(bounds):
            rows = np.stack([update.piece(UPDATE + name, begin, end) for update in updates]).astype(np.float64)
            rows.sort(axis=0)
            yield name, begin, rows[middle].mean(axis=0) * settings.privacy.expected_clients


def _middle(settings: StudySettings, updates: int) -> slice:
    """Return the sorted values of a coordinate that are averaged: for a median the middle one, or the middle two."""
    trim = settings.robustness.trim
    cut = (updates - 1) // 2 if trim is None else trim
    return slice(cut, updates - cut)


def require_finite(values: Array) -> None:
    """Raises NotFinite."""
    if not bool(np.isfinite(values).all()):
        raise NotFinite("NaN or an infinity in the aggregate")
