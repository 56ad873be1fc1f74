"""The averaged classical bound: each record's own privacy-loss distribution, averaged over the population.

E_{x'} δ_{x'}(ε) ≤ δ is the Bayesian promise itself, so the numerical δ_{x'}(ε) of every record of a sample can be
bounded directly, without moments, by a distribution-free estimator: δ_{x'} lies between 0 and the classical δ.

Towards the safe side: distances are rounded up to bins, losses are discretised so as to dominate, tails, wrapped mass
and round-off are added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting.accountants.bayesian_spec import EstimateSpec
from accounting.errors import EstimatorRefused, InvalidArgument
from accounting.estimation.upper_mean import upper_mean
from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.mechanisms.divergence import Values, log_moment
from accounting.mechanisms.privacy_loss import IntArray, LossGrid, LossTable
from accounting.units import Definition, Guarantee, Relation
from accounting.values import (
    FloatArray,
    check_array,
    check_choice,
    check_count,
    check_instance,
    check_nonnegative,
    check_positive,
    check_rate,
)

# Mass that may wrap past the end of the grid, before it is bounded and added.
_WRAPPED = 1e-18
_LEAST_SIZE, _MOST_SIZE = 1 << 12, 1 << 17
# Orders of Chernoff's bound on wrapped mass. Missing the best one only loosens it.
_MOMENTS: FloatArray = np.geomspace(0.05, 400, 60)
# Values of ε that are tried: a thousandth of the classical one apart.
_POINTS = 1024


@dataclass
class _Kind:
    """Steps with one sampling rate. Counts[i, k] = how often record i fell into bin k."""

    counts: FloatArray
    steps: int = 0


class AveragedAccountant:
    """(ε, δ) averaged over the population, from the distances of the same m records at every step.

    spec       its estimator is "betting" or "bernstein", distribution-free. δ_{x'} lies between 0 and the classical δ.
               The bound on the average fails with probability γ over drawing the sample. β = δ − γ
    members    m
    max_ratio  largest clip norm over noise, C/s, that any step may have: the top of the bins
    bins       distances are rounded up to this many equal steps of d/s

    The claim is for the path that was taken (plan and stop fixed beforehand). Raises InvalidArgument, and
    EstimatorRefused for fewer than 3 records.

    >>> spec = EstimateSpec(delta=1e-3, estimator_failure_probability=1e-4)
    >>> account = AveragedAccountant(spec, members=100, max_ratio=0.5, bins=8)
    >>> account.step([0.1, 0.2] * 50, noise_std=2.0, sampling_rate=0.1, max_distance=1.0)
    >>> round(account.epsilon(), 3)
    0.036
    """

    def __init__(self, spec: EstimateSpec, *, members: int, max_ratio: float, bins: int = 256) -> None:
        check_choice("estimator", check_instance("spec", EstimateSpec, spec).estimator, ("betting", "bernstein"))
        self.spec, self.members = spec, check_count("members", members)
        if self.members < 3:
            raise EstimatorRefused(f"{members} records: an estimate needs at least 3")
        self.max_ratio = check_positive("max_ratio", max_ratio)
        # A hair above max_ratio, which the caller may have rounded down.
        self._ratios: FloatArray = self.max_ratio * (1 + 1e-12) * np.arange(1, check_count("bins", bins) + 1) / bins
        self._kinds: dict[float, _Kind] = {}
        self._last_epsilon: float | None = None

    @property
    def steps(self) -> int:
        """Steps charged so far."""
        return sum(kind.steps for kind in self._kinds.values())

    def step(self, distances: Values, *, noise_std: float, sampling_rate: float, max_distance: float) -> None:
        """Charge one step: distances (members,) of the accounting sample, each at most max_distance.

        Raises InvalidArgument, and then charges no step.
        """
        norms = check_array("distances", distances)
        std, rate = check_positive("noise_std", noise_std), check_rate("sampling_rate", sampling_rate)
        top = check_positive("max_distance", max_distance)
        if norms.size != self.members:
            raise InvalidArgument(
                "distances", f"has {norms.size} entries, but the accounting sample has {self.members} records"
            )
        if bool((norms > top).any()):
            raise InvalidArgument("distances", "holds a norm above max_distance")
        if top / std > self._ratios[-1]:
            raise InvalidArgument("max_distance", f"is {top / std!r} times the noise, above max_ratio")
        # The last row is the worst case, whom the classical bound describes.
        ratios = np.append(norms, top) / std
        kind = self._kinds.setdefault(rate, _Kind(np.zeros((self.members + 1, self._ratios.size))))
        index = np.searchsorted(self._ratios, ratios, side="left")
        # At distance 0 nothing is lost: such steps fall into no bin.
        charged = ratios > 0
        kind.counts[np.flatnonzero(charged), index[charged]] += 1
        kind.steps += 1
        self._last_epsilon = None

    def epsilon(self) -> float:
        """Least ε on the grid such that the average δ is at most δ − γ there and at every larger grid point.

        The grid does not depend on the sample and is walked from the top, so one γ serves all of it: a wrong answer
        needs a failure at the one point just below the true ε. Never above the classical ε at δ − γ. Remembered until
        the next step.
        """
        if self._last_epsilon is None:
            self._last_epsilon = self._min_epsilon()
        return self._last_epsilon

    def __repr__(self) -> str:
        fixed = f"delta={self.spec.delta!r}, estimator={self.spec.estimator!r}"
        return f"AveragedAccountant({fixed}, members={self.members}, steps={self.steps})"

    def delta_for(self, epsilon: float) -> float:
        """The bound on E δ_{x'}(ε) plus γ, at the grid point at or below ε. Fails with probability γ, so ask once."""
        epsilons, deltas = self._profiles(self.spec.beta)
        place = int(np.searchsorted(epsilons, check_nonnegative("epsilon", epsilon), side="right")) - 1
        return min(1.0, self._bound(deltas[:, place]) + self.spec.estimator_failure_probability)

    def certificate(self) -> Guarantee:
        """ε with everything needed to read it."""
        rates = list(self._kinds)
        return Guarantee(
            epsilon=self.epsilon(),
            delta=self.spec.delta,
            level=self.spec.level,
            definition=Definition.BAYESIAN,
            relation=Relation.ADD_REMOVE,
            observer=self.spec.observer,
            assumption="records are drawn from one population, and neither plan nor stop followed the releases",
            steps=self.steps,
            sampling_rate=(min(rates), max(rates)) if rates else None,
            estimator=self.spec.estimator,
            composition="averaged loss distributions",
            beta=self.spec.beta,
            gamma=self.spec.estimator_failure_probability,
            adversary="path",
            sample=self.spec.sample,
            resolution=f"distances rounded up to {self._ratios.size} bins, losses discretised and rounded up",
        )

    def _min_epsilon(self) -> float:
        if not any(rate > 0 and kind.counts.any() for rate, kind in self._kinds.items()):
            return 0.0
        beta = self.spec.beta
        epsilons, deltas = self._profiles(beta)
        for place in range(epsilons.size - 1, -1, -1):
            if self._bound(deltas[:, place]) > beta:
                return float(epsilons[place + 1]) if place + 1 < epsilons.size else math.inf
        return float(epsilons[0])

    def _bound(self, deltas: FloatArray) -> float:
        """Upper bound on the mean of δ_{x'}, which lies in [0, δ_classical]: the last row is the worst case."""
        worst = float(deltas[-1])
        if worst == 0:
            return 0.0
        shares = np.minimum(deltas[:-1] / worst, 1.0)
        # upper_mean bounds E e^X. With X = ln(1 + share), e^X − 1 is the share itself.
        log_mean = upper_mean(
            np.log1p(shares), self.spec.estimator_failure_probability, method=self.spec.estimator, log_max=math.log(2)
        )
        return min(worst, worst * math.expm1(log_mean) * (1 + 1e-12))

    def _profiles(self, beta: float) -> tuple[FloatArray, FloatArray]:
        """ε from 0 to the classical one at β, and δ at each for every record and the worst case in the last row."""
        steps, counts = self._used()
        grid = self._grid(steps, counts[-1])
        tables = [LossTable.build(steps, grid, _MOMENTS, removal=removal) for removal in (True, False)]

        def larger(rows: FloatArray, places: IntArray) -> FloatArray:
            parts = zip(*(table.profiles(rows, places) for table in tables), strict=True)
            # The larger direction of every record bounds the mean of each.
            return np.concatenate([np.maximum(first, second) for first, second in parts])

        everywhere = np.arange(grid.size // 2 - 1)
        worst = larger(counts[-1:], everywhere)[0]
        last = int(np.argmax(worst <= beta)) if bool((worst <= beta).any()) else everywhere.size - 1
        places = np.unique(np.linspace(0, last, min(last + 1, _POINTS)).astype(np.int64))
        return np.asarray(places * grid.interval, dtype=np.float64), larger(counts, places)

    def _used(self) -> tuple[list[tuple[float, float]], FloatArray]:
        """The (ratio, rate) of every bin that occurs, and how often each record (and the worst case) fell into it."""
        steps: list[tuple[float, float]] = []
        columns: list[FloatArray] = []
        for rate, kind in self._kinds.items():
            used: list[int] = np.flatnonzero(kind.counts.any(axis=0)).tolist() if rate > 0 else []
            for column in used:
                steps.append((float(self._ratios[column]), rate))
                columns.append(kind.counts[:, column])
        return steps, np.stack(columns, axis=1)

    def _grid(self, steps: list[tuple[float, float]], worst: FloatArray) -> LossGrid:
        """Wide enough for the worst case's tail, fine against the spread of one of its steps."""
        moments = np.stack([log_moment(_MOMENTS, r, noise_std=1.0, sampling_rate=q) for r, q in steps])
        half = 1.2 * epsilon_from_moments(_MOMENTS, worst @ moments, _WRAPPED, conversion="chernoff")[0]
        variance = sum(n * q**2 * math.expm1(min(r**2, 50.0)) for n, (r, q) in zip(worst, steps, strict=True))
        interval = 0.03 * math.sqrt(variance / worst.sum())
        size = 2 ** math.ceil(math.log2(2 * half / interval))
        size = min(max(size, _LEAST_SIZE), _MOST_SIZE)
        return LossGrid(2 * half / size, size)
