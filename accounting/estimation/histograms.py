"""Histograms of distances: small integer counts that serve every order, estimator and definition at once.

Distances are rounded up to bin edges, so every estimator that does not fall when its sample rises reads the counts as
it would read the rounded distances. The noise on counts and what it costs are here; the one-sided correction of
noised counts is `estimation.lower_counts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import Values, log_expm1, log_moment
from accounting.units import Relation
from accounting.values import (
    FloatArray,
    check_array,
    check_count,
    check_nonnegative,
    check_orders,
    check_positive,
    check_rate,
)

IntArray = npt.NDArray[np.int64]

_COARSEST = 0.1
_HALVINGS = 30
_EVENINGS = 3


@dataclass(frozen=True)
class Bins:
    """Edges, strictly increasing, the last one the largest value; every value is rounded up to its edge.

    loss  rounding raises the cost c = log E e^X of any sample law by at most the share `loss` of it, if the estimator
          keeps at least the share `floor` of the mass at the largest value, as distribution-free bounds from m
          samples at failure γ do (about ln(1/γ)/m)
    """

    edges: FloatArray
    loss: float
    floor: float


def distance_bins(
    orders: Values,
    *,
    noise_std: float,
    sampling_rate: float,
    max_distance: float,
    loss: float | None = None,
    bins: int | None = None,
    floor: float = 1e-4,
) -> Bins:
    """Bins of distances for all these orders at once: as many as `loss` needs (1 % when neither is given), or `bins`.

    On Y = e^φ − 1 the mean is linear: neighbouring edges within a factor 1 + loss/2 of Y + floor·Y(C) raise E Y and
    the part at the clip norm by at most loss/2 each, and log(1 + (1 + a)z) ≤ (1 + a) log(1 + z). So edges stand at
    equal steps of log(Y + floor·Y(C)), summed over the order that moves most.

    The loss returned is computed from the exact costs at the edges. Raises InvalidArgument.
    """
    lams, share = check_orders(np.atleast_1d(np.asarray(orders))), _check_floor(floor)
    top = check_positive("max_distance", max_distance)
    if check_rate("sampling_rate", sampling_rate) == 0:
        return Bins(np.array([top]), 0.0, share)

    def heights(distances: FloatArray) -> FloatArray:
        points = np.concatenate([[0.0], distances, [top]])
        table = log_expm1(log_moment(lams, points, noise_std=noise_std, sampling_rate=sampling_rate, method="exact"))
        return np.logaddexp(table, table[:, -1:] + math.log(share))[:, :-1]

    nodes = _refine(heights, np.geomspace(1e-3, 1.0, 64) * top)
    climbed = _climb(heights, nodes)
    count = check_count("bins", bins) if bins is not None else _needed(float(climbed[-1]), _check_loss(loss))
    edges = _even(nodes, climbed, count)
    for _ in range(_EVENINGS):
        if float(np.diff(_climb(heights, edges), prepend=0.0).max()) < 1.02 * climbed[-1] / count:
            break
        # Between two nodes the climb is not quite even: the edges themselves are the better nodes.
        nodes = np.union1d(nodes, edges)
        climbed = _climb(heights, nodes)
        edges = _even(nodes, climbed, count)
    return Bins(edges, 2 * float(np.expm1(np.diff(_climb(heights, edges), prepend=0.0).max())), share)


def _climb(heights: Callable[[FloatArray], FloatArray], nodes: FloatArray) -> FloatArray:
    """Σ over the nodes so far of the step of the order that moves most."""
    return np.cumsum(np.diff(heights(nodes), axis=1).max(axis=0))


def _even(nodes: FloatArray, climbed: FloatArray, count: int) -> FloatArray:
    """`count` edges at equal steps of the climb, the last one the last node."""
    levels = np.linspace(0.0, float(climbed[-1]), count + 1)[1:]
    squares, heights = np.append(0.0, nodes * nodes), np.append(0.0, climbed)
    place: IntArray = np.minimum(np.searchsorted(climbed, levels) + 1, climbed.size)
    share = (levels - heights[place - 1]) / (heights[place] - heights[place - 1])
    edges = np.sqrt(squares[place - 1] + share * (squares[place] - squares[place - 1]))
    edges[-1] = nodes[-1]
    return edges


def _refine(heights: Callable[[FloatArray], FloatArray], nodes: FloatArray) -> FloatArray:
    """Nodes halved until no order climbs more than _COARSEST between neighbours."""
    for _ in range(_HALVINGS):
        wide: IntArray = np.flatnonzero(np.diff(_climb(heights, nodes), prepend=0.0) > _COARSEST)
        if not wide.size:
            break
        left = np.append(0.0, nodes)
        nodes = np.sort(np.append(nodes, (left[wide] + nodes[wide]) / 2))
    return nodes


def running_sum_bins(
    log_max: float, *, loss: float | None = None, bins: int | None = None, floor: float = 1e-4
) -> Bins:
    """Bins over [0, log_max] for clients' running sums at one order; as `distance_bins`, in closed form."""
    ceiling, share = check_positive("log_max", log_max), _check_floor(floor)
    top = float(log_expm1(np.array([ceiling]))[0])
    climb = math.log1p(1 / share)
    count = check_count("bins", bins) if bins is not None else _needed(climb, _check_loss(loss))
    # log Y at heights log(Y + floor·Y_max) in equal steps
    logs = top + math.log(share) + log_expm1(climb * np.arange(1, count + 1) / count)
    edges = np.logaddexp(0.0, logs)
    edges[-1] = ceiling
    return Bins(edges, 2 * math.expm1(climb / count), share)


def _needed(climb: float, loss: float) -> int:
    # 3 % more, since equal steps come out a little unequal.
    return math.ceil(1.03 * climb / math.log1p(loss / 2))


def _check_loss(loss: float | None) -> float:
    return 0.01 if loss is None else check_positive("loss", loss)


def _check_floor(floor: float) -> float:
    share = check_positive("floor", floor)
    if share > 1:
        raise InvalidArgument("floor", f"must be ≤ 1, not {share!r}")
    return share


def count_values(values: Values, edges: Values) -> IntArray:
    """How many values lie in each bin, every value rounded up to its bin's edge; shape like `edges`.

    Raises InvalidArgument for a value above the last edge: no bin bounds it.
    """
    grid = _check_edges(edges)
    found = check_array("values", values)
    if found.max() > grid[-1]:
        raise InvalidArgument("values", f"holds {float(found.max())!r}, above the last edge {float(grid[-1])!r}")
    return np.bincount(np.searchsorted(grid, found, side="left"), minlength=grid.size).astype(np.int64)


def release_charge(
    orders: Values,
    *,
    noise_std: float,
    most_counts: int = 1,
    relation: Relation = Relation.ADD_REMOVE,
) -> FloatArray:
    """What publishing one histogram costs when each count carries discrete Gaussian noise: λ(λ+1)Δ²/2z².

    noise_std    z, in counts; the discrete Gaussian is no worse than the continuous one for integer shifts
                 (Canonne, Kamath & Steinke 2020, Proposition 5)
    most_counts  M: the most counts one record (1) or one client (its accounting sample) holds
    relation     add-remove: M counts vanish from one bin, Δ = M. zero-out and replace-one: they move to another bin,
                 Δ = √2·M

    Shape (orders,). To be charged to the classical and the Bayesian ledger, and reserved beforehand.
    """
    most = check_count("most_counts", most_counts)
    shift = float(most) if relation is Relation.ADD_REMOVE else math.nextafter(math.sqrt(2.0) * most, math.inf)
    return log_moment(
        np.atleast_1d(np.asarray(orders)), shift, noise_std=check_positive("noise_std", noise_std), sampling_rate=1.0
    )


def _check_edges(edges: Values) -> FloatArray:
    grid = check_array("edges", edges)
    if bool((np.diff(grid) <= 0).any()):
        raise InvalidArgument("edges", "must be strictly increasing")
    check_nonnegative("edges", float(grid[0]))
    return grid
