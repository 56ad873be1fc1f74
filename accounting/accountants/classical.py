"""Classical differential privacy: the worst case over all records, from public parameters alone."""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.mechanisms.divergence import log_moment
from accounting.mechanisms.privacy_loss import ComposedLoss, Steps, grid_interval
from accounting.units import Definition, Guarantee, Level, Observer, Relation
from accounting.values import (
    FloatArray,
    check_choice,
    check_count,
    check_delta,
    check_order,
    check_positive,
    check_rate,
)

Method = Literal["pld", "rdp"]

# Real orders, 4 % apart, and every default order of dp-accounting and Opacus.
ORDERS: FloatArray = np.unique(
    np.concatenate(
        [np.geomspace(0.02, 1023, 280), np.arange(1, 100) / 10, np.arange(10.0, 64.0), [127.0, 255.0, 511.0]]
    )
)

# Above this no reader acts on the difference, and the distribution would need a very coarse grid.
PLD_LIMIT = 1000.0

_ASSUMPTIONS = {
    "pld": "the plan and the moment it stops were fixed without looking at the data",
    "rdp": "the plan and the moment it stops were fixed without looking at the data",
    "filter": "every step kept its clip norm, sampling and noise; plan and stop may adapt to what was released",
}


class ClassicalAccountant:
    """ε of Poisson-sampled Gaussian steps under add/remove.

    method "pld": privacy-loss distributions, never above the Rényi value; for plans fixed in advance.
    method "rdp": Rényi divergences at real orders. With `order` the account is read at that one order, fixed before
    the first step, and is then valid for plans and stops that adapt to the releases (Feldman & Zrnic 2021).

    Guarantees: ε is 0 before any step, never negative, never below the true value up to the stated rounding.
    Raises InvalidArgument naming the argument; the accountant is then unchanged.

    >>> account = ClassicalAccountant(delta=1e-5)
    >>> account.step(noise_multiplier=1.1, sampling_rate=0.01, count=1000)
    >>> round(account.epsilon(), 2)
    1.52
    >>> str(account.certificate().definition)
    'classical'
    """

    def __init__(
        self,
        *,
        delta: float,
        method: Method = "pld",
        order: float | None = None,
        level: Level = Level.INSTANCE,
        observer: Observer = Observer.RELEASES,
    ) -> None:
        self.delta = check_delta(delta)
        self.method: str = check_choice("method", method, ("pld", "rdp"))
        self.order = None if order is None else check_order("order", order)
        if self.order is not None and self.method == "pld":
            raise InvalidArgument("order", 'belongs to method "rdp": a loss distribution has no order to fix')
        self.level = Level(level)
        self.observer = Observer(observer)
        self._orders = ORDERS if self.order is None else np.array([self.order])
        self._counts: dict[tuple[float, float], int] = {}
        # What one step of each kind costs at every order.
        self._costs: dict[tuple[float, float], FloatArray] = {}
        self._known: tuple[tuple[Steps, ...], float] = ((), 0.0)

    def step(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> None:
        """Charge `count` steps with noise σ·C (noise_multiplier σ > 0) and Poisson rate q in [0, 1]."""
        key, count = self._check(noise_multiplier, sampling_rate, count)
        self._costs[key] = self._cost(key)
        self._counts[key] = self._counts.get(key, 0) + count

    @cached_property
    def _composed(self) -> ComposedLoss:
        """Losses composed so far; Rényi accounts have none."""
        return ComposedLoss()

    @property
    def steps(self) -> int:
        """Steps charged so far."""
        return sum(self._counts.values())

    def epsilon(self) -> float:
        """ε at this accountant's delta; asked again without a step in between, it is remembered."""
        events = self._events(self._counts)
        if events != self._known[0]:
            self._known = (events, self._epsilon(self._counts, self.delta))
        return self._known[1]

    def epsilon_at(self, delta: float) -> float:
        """ε of the same steps at another delta; a claim made at one delta only, unless the deltas are split."""
        return self._epsilon(self._counts, check_delta(delta))

    def epsilon_after(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> float:
        """ε if `count` such steps were charged now; the accountant is unchanged."""
        key, count = self._check(noise_multiplier, sampling_rate, count)
        return self._epsilon(self._counts | {key: self._counts.get(key, 0) + count}, self.delta)

    def certificate(self) -> Guarantee:
        """ε together with everything needed to read it."""
        kind = "filter" if self.order is not None else self.method
        rates = [rate for _, rate in self._counts]
        return Guarantee(
            epsilon=self.epsilon(),
            delta=self.delta,
            level=self.level,
            definition=Definition.CLASSICAL,
            relation=Relation.ADD_REMOVE,
            observer=self.observer,
            assumption=_ASSUMPTIONS[kind],
            steps=self.steps,
            orders=() if self.method == "pld" else tuple(float(order) for order in self._orders),
            order=self.order,
            sampling_rate=(min(rates), max(rates)) if rates else None,
            composition=kind,
            adversary="path" if self.order is None else "adaptive",
            conversion=None if self.method == "pld" else "improved",
            resolution="rounded up" if self.method == "rdp" else "discretised and rounded up",
        )

    def state(self) -> dict[str, Any]:
        """JSON-safe; `restore` of it answers the same ε."""
        return {
            "delta": self.delta,
            "method": self.method,
            "order": self.order,
            "level": str(self.level),
            "observer": str(self.observer),
            "steps": [[noise, rate, count] for (noise, rate), count in self._counts.items()],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """The accountant whose `state` this was; every value is checked again."""
        out = cls(
            delta=state["delta"],
            method=state["method"],
            order=state["order"],
            level=Level(state["level"]),
            observer=Observer(state["observer"]),
        )
        for noise, rate, count in state["steps"]:
            out.step(noise_multiplier=noise, sampling_rate=rate, count=count)
        return out

    @staticmethod
    def _check(noise_multiplier: float, sampling_rate: float, count: int) -> tuple[tuple[float, float], int]:
        noise = check_positive("noise_multiplier", noise_multiplier)
        return (noise, check_rate("sampling_rate", sampling_rate)), check_count("count", count)

    def _cost(self, key: tuple[float, float]) -> FloatArray:
        return self._costs[key] if key in self._costs else _step_moments(*key, self.order)

    @staticmethod
    def _events(counts: dict[tuple[float, float], int]) -> tuple[Steps, ...]:
        # A step that samples nobody shows nothing; its loss would have no distribution.
        return tuple(Steps(noise, rate, count) for (noise, rate), count in counts.items() if rate > 0)

    def _epsilon(self, counts: dict[tuple[float, float], int], delta: float) -> float:
        events = self._events(counts)
        if not events:
            return 0.0
        # One product a kind, not a running sum: charged singly, at once or replayed, it reads the same to the last bit.
        moments = sum((count * self._cost(key) for key, count in counts.items()), np.zeros_like(self._orders))
        bound, _ = epsilon_from_moments(self._orders, moments, delta)
        if self.method == "rdp" or not 0 < bound <= PLD_LIMIT:
            return bound
        # Both hold; where δ is below the numeric error, the distribution says ∞.
        return min(bound, self._composed.epsilon(events, delta, grid_interval(events, delta, bound)))


@lru_cache(maxsize=256)
def _step_moments(noise_multiplier: float, sampling_rate: float, order: float | None) -> FloatArray:
    if order is not None:
        return log_moment(np.array([order]), 1.0, noise_std=noise_multiplier, sampling_rate=sampling_rate)
    # Where even the unsampled cost is this far out, it replaces the sampled one: no statement is read there. ceil: a
    # rate of 0 stays 0, any other becomes 1.
    far = ORDERS + 1 > 10 * PLD_LIMIT * noise_multiplier * noise_multiplier  # noqa: SIM300
    return np.concatenate(
        [
            log_moment(part, 1.0, noise_std=noise_multiplier, sampling_rate=rate)
            for part, rate in ((ORDERS[~far], sampling_rate), (ORDERS[far], min(1.0, math.ceil(sampling_rate))))
            if part.size
        ]
    )
