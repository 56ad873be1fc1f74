"""The loss distribution of a whole run, for one record or several, that are added, removed or exchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from accounting.mechanisms.chains import chained_delta, chained_epsilon
from accounting.mechanisms.composed_loss import composed_delta, composed_deltas, composed_epsilon
from accounting.mechanisms.events import (
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    GaussianEvent,
    Kind,
    LaplaceEvent,
    PairEvent,
    ZCDPEvent,
)
from accounting.mechanisms.finite_pairs import MOST_LOSSES, FiniteLosses, discrete_laplace_pair, finite_pair_of
from accounting.mechanisms.gaussian_mixtures import GaussianMixtures, rounded_noise
from accounting.mechanisms.step_losses import LossLaw
from accounting.mechanisms.unsampled import GRID_STD, LEAST_GRID_STD, Steps, unsampled_delta, unsampled_epsilon
from accounting.units import Relation
from accounting.values import FloatArray

Method = Literal["pld", "analytic-gaussian"]


@dataclass(frozen=True)
class RunLosses:
    """Steps whose composition, so many times one after the other (`links`), bounds a run."""

    steps: tuple[Steps, ...]
    links: int = 1

    @property
    def method(self) -> Method:
        """How ε is computed."""
        return "analytic-gaussian" if self.is_closed else "pld"

    @property
    def is_closed(self) -> bool:
        """Whether δ(ε) has a closed form."""
        return self.links == 1 and all(step.is_closed for step in self.steps)

    @property
    def is_plain(self) -> bool:
        """Whether Rényi divergences are close to all of the steps: Gaussian or Laplace noise, and one record."""
        return self.links == 1 and not any(isinstance(step.law, LossLaw) for step in self.steps)

    def epsilon(self, delta: float, bound: float) -> float:
        """Least ε with δ(ε) ≤ delta, rounded up, or inf without an answer. bound: an upper bound on it."""
        if self.is_closed:
            return unsampled_epsilon(self.steps, delta, bound)
        if self.links > 1:
            return chained_epsilon(lambda share: composed_epsilon(self.steps, share, bound), delta, self.links)
        return composed_epsilon(self.steps, delta, bound)

    def delta(self, epsilon: float, bound: float) -> float:
        """Least δ(ε), rounded up. bound: an upper bound on it."""
        if self.is_closed:
            return unsampled_delta(self.steps, epsilon)
        if self.links > 1:
            return chained_delta(lambda link: composed_delta(self.steps, link, bound), epsilon, self.links)
        return composed_delta(self.steps, epsilon, bound)

    def deltas(self, epsilons: FloatArray, bound: float) -> FloatArray:
        """Least δ(ε) at each ε of an ascending array, shape (epsilons,), rounded up. bound: of δ at the first."""
        if self.is_closed:
            return np.array([unsampled_delta(self.steps, epsilon) for epsilon in epsilons.tolist()])
        singles = composed_deltas(self.steps, epsilons / self.links, bound)
        if self.links == 1:
            return singles
        chains = zip(epsilons.tolist(), singles.tolist(), strict=True)
        return np.array([chained_delta(lambda _, delta=delta: delta, epsilon, self.links) for epsilon, delta in chains])


def run_losses(counts: Mapping[Kind, int], relation: Relation, records: int = 1) -> RunLosses | None:
    """How the run's loss distribution is computed, or None where Rényi divergences alone bound it.

    counts   how often each mechanism was run, at a rate > 0
    records  how many records are added, removed or exchanged together
    """
    if (steps := _steps_of(counts, relation, records)) is not None:
        return RunLosses(steps)
    # Removing and adding, in turn. A pair of laws of a record that is exchanged says nothing of one that is removed.
    by_relation = any(isinstance(kind.atom, PairEvent | ZCDPEvent) for kind in counts)
    if relation is Relation.REPLACE_ONE and not by_relation:
        single, links = _steps_of(counts, Relation.ADD_REMOVE, 1), 2 * records
    else:
        single, links = _steps_of(counts, relation, 1), records
    return None if single is None or links == 1 else RunLosses(single, links)


def _steps_of(counts: Mapping[Kind, int], relation: Relation, records: int) -> tuple[Steps, ...] | None:
    steps = [_step(kind, count, relation, records) for kind, count in counts.items()]
    bounded_steps = tuple(step for step in steps if step is not None)
    return bounded_steps if len(bounded_steps) == len(steps) else None


def _step(kind: Kind, count: int, relation: Relation, records: int) -> Steps | None:
    """The step's dominating pair, or None where none is known."""
    exchanged = relation is Relation.REPLACE_ONE
    if kind.rate == 1 or (records == 1 and not exchanged):
        return _moved_step(kind, count, records, exchanged=exchanged)
    return _joint_step(kind, count, records, exchanged=exchanged)


def _moved_step(kind: Kind, count: int, records: int, *, exchanged: bool) -> Steps | None:
    """A step for one record that is added or removed, or an unsampled one."""
    # Unsampled, all records move the sum together, and an exchanged one moves it twice.
    times = records * (2 if exchanged else 1)
    match kind.atom:
        case GaussianEvent(noise_multiplier):
            return Steps(noise_multiplier / times, kind.rate, count)
        case LaplaceEvent(noise_multiplier):
            return Steps(noise_multiplier / times, kind.rate, count, law="laplace")
        # Coarser lattices are beyond what `unsampled` bounds.
        case DiscreteGaussianEvent(noise_std, sensitivity) if noise_std >= LEAST_GRID_STD:
            return Steps(noise_std / sensitivity / times, kind.rate, count, noise_std)
        case DiscreteLaplaceEvent(scale, sensitivity) if times * sensitivity <= MOST_LOSSES:
            law = FiniteLosses(discrete_laplace_pair(scale, times * sensitivity), kind.rate)
            return Steps(1.0, kind.rate, count, law=law)
        case PairEvent(pair) if records == 1 and (finite := finite_pair_of(pair)) is not None:
            return Steps(1.0, kind.rate, count, law=FiniteLosses(finite, kind.rate, exchanged))
        case _:
            return None


def _joint_step(kind: Kind, count: int, records: int, *, exchanged: bool) -> Steps | None:
    """A sampled step for several records, or for one that is exchanged."""
    match kind.atom:
        case GaussianEvent(noise_multiplier):
            noise = rounded_noise(noise_multiplier, GRID_STD)
        case DiscreteGaussianEvent(noise_std, sensitivity) if noise_std >= LEAST_GRID_STD:
            noise = rounded_noise(noise_std / sensitivity, noise_std)
        case PairEvent(pair) if records == 1 and (finite := finite_pair_of(pair)) is not None:
            return Steps(1.0, kind.rate, count, law=FiniteLosses(finite, kind.rate, exchanged))
        case _:
            return None
    return Steps(1.0, kind.rate, count, law=GaussianMixtures(noise, kind.rate, records, exchanged))


def grouped(kind: Kind, records: int) -> Kind | None:
    """The mechanism whose cost for one record bounds this one's for several, or None where none is known."""
    if kind.rate < 1:
        return None
    match kind.atom:
        case GaussianEvent(noise_multiplier):
            return Kind(GaussianEvent(noise_multiplier / records), 1.0)
        case LaplaceEvent(noise_multiplier):
            return Kind(LaplaceEvent(noise_multiplier / records), 1.0)
        case DiscreteGaussianEvent(noise_std, sensitivity):
            return Kind(DiscreteGaussianEvent(noise_std, sensitivity * records), 1.0)
        case DiscreteLaplaceEvent(scale, sensitivity) if 2 * sensitivity * records <= MOST_LOSSES:
            return Kind(DiscreteLaplaceEvent(scale, sensitivity * records), 1.0)
        case ZCDPEvent(rho, 0):
            # Bun & Steinke 2016, group privacy: k²ρ.
            return Kind(ZCDPEvent(math.nextafter(rho * records * records, math.inf)), 1.0)
        case _:
            return None
