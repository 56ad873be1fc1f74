"""Classical differential privacy: the worst case over all records, from public parameters alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np

from accounting.accountants.profile import PrivacyProfile
from accounting.accountants.renyi import MAX_EPSILON, Reader, best_reading, common_orders, orders_of
from accounting.errors import InvalidArgument
from accounting.mechanisms.chains import chained_delta, chained_epsilon
from accounting.mechanisms.closed_forms import gdp_square, zcdp_rho
from accounting.mechanisms.conversion import deltas_of, epsilons_of
from accounting.mechanisms.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    Kind,
    NothingEvent,
    PoissonSampledEvent,
    SelfComposedEvent,
    kind_from_json,
    kind_to_json,
    kinds_of,
)
from accounting.mechanisms.gaussian_mixtures import MOST_RECORDS
from accounting.mechanisms.interchange import to_dp_accounting
from accounting.mechanisms.run_losses import grouped, run_losses
from accounting.units import Definition, Guarantee, Level, Observer, Relation
from accounting.values import (
    FloatArray,
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_nonnegative,
    check_word,
    order_or_alpha,
)

Method = Literal["pld", "rdp"]
# A function of one link's reading at a value, the value of the chain, and its links.
Chain = Callable[[Callable[[float], float], float, int], float]

# What was asked for, and what was used where the losses of some event have no distribution here.
Used = Literal["pld", "analytic-gaussian", "rdp", "filter"]
_FIXED = "the plan and the moment it stops were fixed without looking at the data"
_ADAPTIVE = "every step kept its clip norm, sampling and noise; plan and stop may adapt to what was released"
_RESOLUTION = {"pld": "losses discretised, tilted and rounded up", "analytic-gaussian": "closed form, rounded up"}


class ClassicalAccountant:
    """The ε of the composed events, for any record.

    method "pld": privacy-loss distributions, never above the Rényi value, for plans fixed in advance. Gaussian, Laplace
    and finite mechanisms have one, unsampled Gaussian ones in closed form. With other events it reads Rényi
    divergences, and its certificate says so.
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

    def epsilon_at(self, delta: float, *, group_size: int = 1) -> float:
        """ε of the same steps at another delta, or for a group of records. Valid at one delta, unless they are split.

        group_size  how many records are added together, removed together or exchanged together. Their cost is composed
                    as such: unsampled they move a sum together, and sampled ones are a mixture over how many are drawn
        """
        records = check_count("group_size", group_size, maximum=MOST_RECORDS)
        return self._epsilon(self._counts, check_delta(delta), records)[0]

    def delta_for(self, epsilon: float, *, group_size: int = 1) -> float:
        """δ at a given ε ≥ 0: the other way to read the same account. 0 before anything was charged."""
        target = check_nonnegative("epsilon", epsilon)
        records = check_count("group_size", group_size, maximum=MOST_RECORDS)
        kinds = _charged(self._counts)
        if not kinds:
            return 0.0
        bound, _ = self._bound(kinds, deltas_of, target, records, chained_delta)
        losses = run_losses(kinds, self.relation, records) if self.method == "pld" and bound > 0 else None
        return bound if losses is None else min(bound, losses.delta(target, bound))

    def profile(self, epsilons: Sequence[float] | FloatArray | None = None, *, group_size: int = 1) -> PrivacyProfile:
        """δ(ε) at many ε at once: for curves, for trade-offs of an attacker's errors, and for the μ of such a Gaussian.

        epsilons  (n,) ≥ 0, strictly increasing. Left out, 1000 of them from 0 to the ε at a thousandth of this delta

        >>> account = ClassicalAccountant(delta=1e-5)
        >>> account.step(noise_multiplier=2.0, sampling_rate=0.1, count=100)
        >>> account.profile([0.0, 1.0, 2.0]).deltas.round(6).tolist()
        [0.205861, 0.011498, 8.2e-05]
        """
        records = check_count("group_size", group_size, maximum=MOST_RECORDS)
        if epsilons is None:
            last = self._epsilon(self._counts, self.delta / 1000, records)[0]
            epsilons = np.linspace(0.0, min(last, MAX_EPSILON) or 1.0, 1000)
        points = check_array("epsilons", epsilons)
        kinds = _charged(self._counts)
        if not kinds:
            return PrivacyProfile(points, np.zeros(points.size))
        bounds = [self._bound(kinds, deltas_of, point, records, chained_delta)[0] for point in points.tolist()]
        losses = run_losses(kinds, self.relation, records) if self.method == "pld" and bounds[0] > 0 else None
        deltas = np.array(bounds) if losses is None else np.minimum(bounds, losses.deltas(points, bounds[0]))
        return PrivacyProfile(points, np.minimum.accumulate(deltas))

    def mu(self) -> float:
        """The μ of Gaussian differential privacy in closed form, without credit for sampling. inf: none is known.

        `profile().mu()` credits sampling, as far as the profile reaches.

        >>> account = ClassicalAccountant(delta=1e-5)
        >>> account.compose(GaussianEvent(4.0), 4)
        >>> round(account.mu(), 6), round(account.rho(), 6)
        (0.5, 0.125)
        """
        squares = (count * gdp_square(kind, self.relation) for kind, count in self._counts.items())
        return math.nextafter(math.sqrt(math.fsum(squares)), math.inf) if self._counts else 0.0

    def rho(self) -> float:
        """The ρ of zero-concentrated differential privacy, without credit for sampling. inf: none is known."""
        return math.fsum(count * zcdp_rho(kind, self.relation) for kind, count in self._counts.items())

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
        epsilon, used, order_count = self._answer()
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
            orders=tuple(orders_of(self.order)[:order_count].tolist()) if by_moments else (),
            order=self.order,
            sampling_rate=(min(rates), max(rates)) if rates else None,
            composition=used,
            adversary="path" if self.order is None else "adaptive",
            conversion="improved" if by_moments else None,
            resolution=_RESOLUTION.get(used, "rounded up"),
        )

    def events(self) -> ComposedEvent:
        """Return all that was charged, as one event: to be composed elsewhere, or given to `to_dp_accounting`."""
        runs = ((PoissonSampledEvent(kind.rate, kind.atom), count) for kind, count in self._counts.items())
        return ComposedEvent(tuple(SelfComposedEvent(event, count) for event, count in runs))

    def to_dp_accounting(self) -> Any:
        """Return all that was charged as a `dp_accounting.DpEvent`. Errors: as of the function of this name."""
        return to_dp_accounting(self.events())

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
            self._last_answer[3] or common_orders(self.order),
        )

    def _bound(
        self, counts: Mapping[Kind, int], read: Reader, at: float, records: int, chain: Chain
    ) -> tuple[float, int]:
        """The reading by Rényi divergences, and how many orders were asked. chain: from one record to several."""
        if records > 1:
            joint = {kind: grouped(kind, records) for kind in counts}
            if any(kind is None for kind in joint.values()):
                return chain(lambda value: self._bound(counts, read, value, 1, chain)[0], at, records), 0
            counts = {kind: counts[single] for single, kind in joint.items() if kind is not None}
        reading, order_count = best_reading(counts, self.relation, self.order, read, at)
        return max(0.0, reading), order_count

    def _epsilon(self, counts: Mapping[Kind, int], delta: float, records: int = 1) -> tuple[float, Used, int]:
        kinds = _charged(counts)
        by_moments: Used = "rdp" if self.order is None else "filter"
        if not kinds:
            return 0.0, "pld" if self.method == "pld" else by_moments, 0
        bound, order_count = self._bound(kinds, epsilons_of, delta, records, chained_epsilon)
        losses = run_losses(kinds, self.relation, records) if self.method == "pld" and bound > 0 else None
        # Otherwise a Rényi bound may be far above the loss distribution's, or infinite.
        if losses is None or (bound > MAX_EPSILON and losses.is_plain):
            return bound, by_moments, order_count
        epsilon = losses.epsilon(delta, min(bound, MAX_EPSILON))
        # Both hold.
        return (epsilon, losses.method, 0) if epsilon < bound else (bound, by_moments, order_count)


def _step(noise_multiplier: float, sampling_rate: float) -> Event:
    return PoissonSampledEvent(sampling_rate, GaussianEvent(noise_multiplier))


def _charged(counts: Mapping[Kind, int]) -> dict[Kind, int]:
    # Who samples nobody shows nothing. The loss would have no distribution.
    return {kind: count for kind, count in counts.items() if kind.rate > 0 and not isinstance(kind.atom, NothingEvent)}
