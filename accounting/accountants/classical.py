"""Classical differential privacy: the worst case over all records, from public parameters alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidArgument
from accounting.mechanisms.composed_loss import composed_delta, composed_epsilon, exchanged_delta, exchanged_epsilon
from accounting.mechanisms.conversion import deltas_of, epsilons_of
from accounting.mechanisms.divergence import MOST_TERMS
from accounting.mechanisms.events import (
    Event,
    GaussianEvent,
    Kind,
    NothingEvent,
    PoissonSampledEvent,
    kind_from_json,
    kind_moments,
    kind_to_json,
    kinds_of,
    steps_of,
)
from accounting.mechanisms.unsampled import Steps, unsampled_delta, unsampled_epsilon
from accounting.units import Definition, Guarantee, Level, Observer, Relation
from accounting.values import FloatArray, check_choice, check_delta, check_nonnegative, check_word, order_or_alpha

IntArray = npt.NDArray[np.int64]
Method = Literal["pld", "rdp"]

# Real orders, 4 % apart, and every default order of dp-accounting and Opacus.
_COMMON_ORDERS: FloatArray = np.unique(
    np.concatenate(
        [np.geomspace(0.02, 1023, 280), np.arange(1, 100) / 10, np.arange(10.0, 64.0), [127.0, 255.0, 511.0]]
    )
)
# At an order λ no noise brings ε below about ln(1/δλ)/λ: small ε need larger ones. Integers, whose sums are cheap.
_LARGE_ORDERS: FloatArray = np.unique(np.geomspace(1064, MOST_TERMS, 177).round())
ORDERS: FloatArray = np.concatenate([_COMMON_ORDERS, _LARGE_ORDERS])

# Above this no reader acts on the difference, and the distribution would need a very coarse grid.
PLD_LIMIT = 1000.0

# What was asked for, and what was used where the losses of some event have no distribution here.
Used = Literal["pld", "analytic-gaussian", "rdp", "filter"]
_FIXED = "the plan and the moment it stops were fixed without looking at the data"
_ADAPTIVE = "every step kept its clip norm, sampling and noise; plan and stop may adapt to what was released"
_RESOLUTION = {"pld": "losses discretised, tilted and rounded up", "analytic-gaussian": "closed form, rounded up"}


class ClassicalAccountant:
    """The ε of the composed events, for any record.

    method "pld": privacy-loss distributions, never above the Rényi value, for plans fixed in advance. Gaussian
    and Laplace steps have one, unsampled Gaussian ones in closed form. With other events it reads Rényi divergences,
    and its certificate says so.
    method "rdp": Rényi divergences at real orders. With `order` λ (or `alpha` = λ + 1) the account is read at that one
    order, fixed before the first step, and is then valid for plans and stops that adapt to the releases (Feldman &
    Zrnic 2021).

    relation  add-remove. Replace-one, where one record is exchanged and moves a sum by twice the clip norm. Zero-out

    Guarantees: ε is 0 before any step, never negative, never below the true value up to the stated rounding.
    Raises InvalidArgument naming the argument, and leaves the accountant unchanged.

    >>> account = ClassicalAccountant(delta=1e-5)
    >>> account.step(noise_multiplier=1.1, sampling_rate=0.01, count=1000)
    >>> account
    ClassicalAccountant(delta=1e-05, method='pld', steps=1000, epsilon=1.515)
    >>> str(account.certificate().definition)
    'classical'
    >>> from accounting import LaplaceEvent
    >>> account.compose(LaplaceEvent(20.0))
    >>> account.certificate().composition, round(account.delta_for(2.0), 9)
    ('pld', 9.1e-08)
    """

    def __init__(
        self,
        *,
        delta: float,
        method: Method = "pld",
        order: float | None = None,
        alpha: float | None = None,
        relation: Relation = Relation.ADD_REMOVE,
        level: Level = Level.INSTANCE,
        observer: Observer = Observer.RELEASES,
    ) -> None:
        self.delta = check_delta(delta)
        self.method: str = check_choice("method", method, ("pld", "rdp"))
        self.order = order_or_alpha(order, alpha)
        if self.order is not None and self.method == "pld":
            raise InvalidArgument("order", 'belongs to method "rdp": a loss distribution has no order to fix')
        self.relation = check_word("relation", Relation, relation)
        self.level, self.observer = check_word("level", Level, level), check_word("observer", Observer, observer)
        self._orders = ORDERS if self.order is None else np.array([self.order])
        self._counts: Counter[Kind] = Counter()
        self._last_answer: tuple[dict[Kind, int], float, Used, int] = ({}, 0.0, "rdp", 0)

    def __repr__(self) -> str:
        order = "" if self.order is None else f", order={self.order!r}"
        relation = "" if self.relation is Relation.ADD_REMOVE else f", relation={str(self.relation)!r}"
        numbers = f"delta={self.delta!r}, method={self.method!r}{order}{relation}, steps={self.steps}"
        return f"ClassicalAccountant({numbers}, epsilon={self.epsilon():.4g})"

    def step(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> None:
        """Charge `count` steps with noise σ·C (noise_multiplier σ > 0) and Poisson rate q in [0, 1]."""
        self.compose(_step(noise_multiplier, sampling_rate), count)

    def compose(self, event: Event, count: int = 1) -> None:
        """Charge an event `count` times. InvalidArgument: it is not known, and is not charged."""
        # All of it first, for it may refuse.
        for kind, times in kinds_of(event, count).items():
            self._counts[kind] += times

    @property
    def steps(self) -> int:
        """Steps charged so far."""
        return sum(self._counts.values())

    def epsilon(self) -> float:
        """Return ε at this accountant's delta. It is cached until the next step."""
        return self._answer()[0]

    def epsilon_at(self, delta: float) -> float:
        """ε of the same steps at another delta. A claim made at one delta only, unless the deltas are split."""
        return self._epsilon(self._counts, check_delta(delta))[0]

    def delta_for(self, epsilon: float) -> float:
        """δ at a given ε ≥ 0: the other way to read the same account. 0 before anything was charged."""
        target = check_nonnegative("epsilon", epsilon)
        kinds = _charged(self._counts)
        if not kinds:
            return 0.0
        bound, _ = self._best(kinds, deltas_of, target)
        steps = self._losses(kinds)
        if steps is None or bound <= 0:
            return bound
        if all(step.is_closed for step in steps):
            return min(bound, unsampled_delta(steps, target))
        read = exchanged_delta if self._exchanges(steps) else composed_delta
        return min(bound, read(steps, target, bound))

    def epsilon_after(self, *, noise_multiplier: float, sampling_rate: float, count: int = 1) -> float:
        """ε if `count` such steps were charged now. The accountant is unchanged."""
        return self.epsilon_after_event(_step(noise_multiplier, sampling_rate), count)

    def epsilon_after_event(self, event: Event, count: int = 1) -> float:
        """ε if this event were charged `count` times now. The accountant is unchanged."""
        # In the order in which charging it would put them: sums then agree to the last bit.
        counts = Counter(self._counts)
        for kind, times in kinds_of(event, count).items():
            counts[kind] += times
        return self._epsilon(counts, self.delta)[0]

    def certificate(self) -> Guarantee:
        """Return ε together with everything needed to read it. `composition` names the method that gave it."""
        epsilon, used, target_order = self._answer()
        rates = [kind.rate for kind in self._counts]
        by_moments = used in ("rdp", "filter")
        return Guarantee(
            epsilon=epsilon,
            delta=self.delta,
            level=self.level,
            definition=Definition.CLASSICAL,
            relation=self.relation,
            observer=self.observer,
            assumption=_FIXED if self.order is None else _ADAPTIVE,
            steps=self.steps,
            orders=tuple(self._orders[:target_order].tolist()) if by_moments else (),
            order=self.order,
            sampling_rate=(min(rates), max(rates)) if rates else None,
            composition=used,
            adversary="path" if self.order is None else "adaptive",
            conversion="improved" if by_moments else None,
            resolution=_RESOLUTION.get(used, "rounded up"),
        )

    def state(self) -> dict[str, Any]:
        """JSON-safe. `restore` of it answers the same ε."""
        return {
            "delta": self.delta,
            "method": self.method,
            "order": self.order,
            "relation": str(self.relation),
            "level": str(self.level),
            "observer": str(self.observer),
            "events": [[*kind_to_json(kind), count] for kind, count in self._counts.items()],
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """The accountant whose `state` this was. Every value is checked again."""
        settings = ("delta", "method", "order", "relation", "level", "observer")
        out = cls(**{name: state[name] for name in settings})
        for *kind, count in state["events"]:
            charged = kind_from_json(kind)
            out.compose(PoissonSampledEvent(charged.rate, charged.atom), count)
        return out

    def _answer(self) -> tuple[float, Used, int]:
        if self._counts != self._last_answer[0]:
            self._last_answer = (dict(self._counts), *self._epsilon(self._counts, self.delta))
        nothing: Used = "filter" if self.order is not None else "pld" if self.method == "pld" else "rdp"
        return (
            self._last_answer[1],
            self._last_answer[2] if self._counts else nothing,
            self._last_answer[3] or self._common,
        )

    @property
    def _common(self) -> int:
        """How many of the orders, from the first, are asked in any case."""
        return min(self._orders.size, _COMMON_ORDERS.size)

    def _best(
        self, counts: dict[Kind, int], read: Callable[[FloatArray, FloatArray, float], FloatArray], at: float
    ) -> tuple[float, int]:
        """The least reading, an ε or a δ, over the orders, and how many of them were asked."""
        if all(isinstance(kind.atom, GaussianEvent) and kind.rate == 1 for kind in counts):
            # In closed form all orders cost less than a second round of questions.
            every = (count * _closed(kind, self.relation, self.order) for kind, count in counts.items())
            readings = read(self._orders, sum(every, np.zeros(self._orders.size)), at)
            return _best(lambda places: readings[places], self._common, self._orders.size, strides=(1,))
        curves = [(count, _curve(kind, self.relation, self.order)) for kind, count in counts.items()]

        def value(places: IntArray) -> FloatArray:
            # One product a kind: charged singly, at once or replayed, it reads the same to the last bit.
            moments = sum((count * curve.at(places) for count, curve in curves), np.zeros(places.size))
            return read(self._orders[places], moments, at)

        return _best(value, self._common, self._orders.size)

    def _losses(self, counts: dict[Kind, int]) -> list[Steps] | None:
        """Return the steps of which a loss distribution is computed, or None where Rényi divergences answer.

        A record that is exchanged moves a sum twice as far. If it is sampled it is removed and another one is added
        instead: the steps are then those of one record.
        """
        if self.method != "pld":
            return None
        twice = self.relation is Relation.REPLACE_ONE and all(kind.rate == 1 for kind in counts)
        times = 2.0 if twice else 1.0
        steps = [steps_of(kind, count, times) for kind, count in counts.items()]
        step_losses_known = [step for step in steps if step is not None]
        return step_losses_known if len(step_losses_known) == len(steps) else None

    def _exchanges(self, steps: list[Steps]) -> bool:
        return self.relation is Relation.REPLACE_ONE and any(step.sampling_rate < 1 for step in steps)

    def _epsilon(self, counts: dict[Kind, int], delta: float) -> tuple[float, Used, int]:
        kinds = _charged(counts)
        by_moments: Used = "rdp" if self.order is None else "filter"
        if not kinds:
            return 0.0, "pld" if self.method == "pld" else by_moments, 0
        min_epsilon, order = self._best(kinds, epsilons_of, delta)
        bound = max(0.0, min_epsilon)
        steps = self._losses(kinds)
        if steps is None or not 0 < bound <= PLD_LIMIT:
            return bound, by_moments, order
        by_losses, method = self._epsilon_of_losses(steps, delta, bound)
        # Both hold.
        return (by_losses, method, 0) if by_losses < bound else (bound, by_moments, order)

    def _epsilon_of_losses(self, steps: list[Steps], delta: float, bound: float) -> tuple[float, Used]:
        if all(step.is_closed for step in steps):
            return unsampled_epsilon(steps, delta, bound), "analytic-gaussian"
        if self._exchanges(steps):
            return exchanged_epsilon(steps, delta), "pld"
        return composed_epsilon(steps, delta, bound), "pld"


def _step(noise_multiplier: float, sampling_rate: float) -> Event:
    return PoissonSampledEvent(sampling_rate, GaussianEvent(noise_multiplier))


def _charged(counts: dict[Kind, int]) -> dict[Kind, int]:
    # Who samples nobody shows nothing. The loss would have no distribution.
    return {kind: count for kind, count in counts.items() if kind.rate > 0 and not isinstance(kind.atom, NothingEvent)}


class _Curve:
    """The cost of one run of a kind at the requested orders. The others are not computed."""

    def __init__(self, kind: Kind, relation: Relation, orders: FloatArray) -> None:
        self._kind, self._relation, self._orders = kind, relation, orders
        self._values = np.full(orders.size, np.nan)

    def at(self, places: IntArray) -> FloatArray:
        """λ·D_{λ+1} at the orders of these places."""
        missing = places[np.isnan(self._values[places])]
        if missing.size:
            self._values[missing] = self._compute(self._orders[missing])
        return self._values[places]

    def _compute(self, orders: FloatArray) -> FloatArray:
        kind = self._kind
        out = np.empty(orders.size)
        far = np.zeros(orders.size, dtype=np.bool_)
        if isinstance(kind.atom, GaussianEvent):
            # Where even the unsampled cost is this far out, it replaces the sampled one: no statement is read there.
            far = orders + 1 > 10 * PLD_LIMIT * kind.atom.noise_multiplier * kind.atom.noise_multiplier
        # ceil: a rate of 0 stays 0, any other becomes 1.
        for part, rate in ((~far, kind.rate), (far, min(1.0, math.ceil(kind.rate)))):
            if part.any():
                out[part] = kind_moments(Kind(kind.atom, rate), orders[part], self._relation)
        return out


@lru_cache(maxsize=256)
def _curve(kind: Kind, relation: Relation, order: float | None) -> _Curve:
    return _Curve(kind, relation, ORDERS if order is None else np.array([order]))


@lru_cache(maxsize=256)
def _closed(kind: Kind, relation: Relation, order: float | None) -> FloatArray:
    return kind_moments(kind, ORDERS if order is None else np.array([order]), relation)


def _best(
    value: Callable[[IntArray], FloatArray], common: int, size: int, strides: tuple[int, ...] = (24, 4, 1)
) -> tuple[float, int]:
    """The least value over `size` places, of a function that falls and then rises, and how many places stand for it.

    Nowhere below its true minimum. By strides, each around the best of the one before, a first answer costs 40 orders,
    not 430. The places after the common ones, with up to 2²⁰ terms each, are asked only where the last of these is the
    best.
    """
    min_value, place = _best_between(value, 0, common - 1, strides)
    if place < common - 1 or common == size:
        return min_value, common
    return min(min_value, _best_between(value, common, size - 1, strides)[0]), size


def _best_between(
    value: Callable[[IntArray], FloatArray], first: int, last: int, strides: tuple[int, ...]
) -> tuple[float, int]:
    low, high, best, values = first, last, first, np.array([math.inf])
    for stride in strides:
        places = np.array(sorted({*range(low, high + 1, stride), high}))
        values = value(places)
        best = int(places[int(np.argmin(values))])
        low, high = max(first, best - stride), min(last, best + stride)
    return float(values.min()), best
