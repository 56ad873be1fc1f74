"""The queries that were charged to one limit, and what they cost together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from accounting.mechanisms.events import DiscreteGaussianEvent
from accounting.plan.queries import Bears, QueryCost

_UP = 1 + 2.0**-49


class ChargedQueries:
    """A multiset: what it costs does not depend on the order, and live and restored agree to the last bit."""

    def __init__(self, counts: Counter[tuple[Bears, float, float]] | None = None) -> None:
        self._counts = Counter[tuple[Bears, float, float]]() if counts is None else counts

    def __bool__(self) -> bool:
        return bool(self._counts)

    def __len__(self) -> int:
        return self._counts.total()

    def plus(self, cost: QueryCost, times: int = 1) -> ChargedQueries:
        """These and one more, or several."""
        counts = Counter(self._counts)
        counts[cost.bears, cost.noise_std, cost.sensitivity] += times
        return ChargedQueries(+counts)

    def beyond(self, cost: QueryCost, at_most: int) -> ChargedQueries:
        """Return the queries without those of this cost, but for the number of them above `at_most`."""
        kind = (cost.bears, cost.noise_std, cost.sensitivity)
        return ChargedQueries(+(self._counts - Counter({kind: at_most})))

    def events(self, *bears: Bears) -> Iterator[tuple[DiscreteGaussianEvent, int]]:
        """Those that any of `bears` bears, each with how often."""
        for (bearer, noise_std, sensitivity), count in sorted(self._counts.items()):
            if bearer in bears:
                yield DiscreteGaussianEvent(noise_std, sensitivity), count

    def precision(self, *bears: Bears, less_variance: float = 0.0) -> float:
        """Σ Δ²/s² of those that any of `bears` bears, rounded up. `less_variance` is taken off every s²."""
        terms = [
            count * (sensitivity * sensitivity) / (noise_std * noise_std - less_variance)
            for (bearer, noise_std, sensitivity), count in self._counts.items()
            if bearer in bears
        ]
        return math.nextafter(math.fsum(terms) * _UP, math.inf) if terms else 0.0

    def state(self) -> list[list[Any]]:
        """JSON: who bears it, s, Δ, how often."""
        return [[*kind, count] for kind, count in sorted(self._counts.items())]

    @classmethod
    def restore(cls, state: Sequence[Sequence[Any]]) -> ChargedQueries:
        """Those whose `state` this was."""
        return cls(
            Counter({(bearer, noise_std, sensitivity): count for bearer, noise_std, sensitivity, count in state})
        )
