"""The events of a run, as frozen values without accounting. `classical` interprets them (cf. dp_accounting).

One record is hidden under the accountant's neighbouring relation. `noise_multiplier` is the noise over the clip norm,
the most that one record adds. If records are exchanged (replace-one) the accountant itself counts twice that.

>>> event = PoissonSampledEvent(0.01, GaussianEvent(1.1))
>>> SelfComposedEvent(event, 100)
SelfComposedEvent(event=PoissonSampledEvent(sampling_rate=0.01, event=GaussianEvent(noise_multiplier=1.1)), count=100)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from accounting.errors import InvalidArgument
from accounting.mechanisms.divergence import MOST_TERMS, exact_moments, log_moment, sampled_bound, unsampled_moments
from accounting.mechanisms.finite_pairs import MOST_LOSSES, FinitePair, discrete_laplace_pair
from accounting.mechanisms.general import LaplacePair, OutcomePair, ZeroConcentrated, subsampled_moments, told_by
from accounting.units import Relation
from accounting.values import (
    FloatArray,
    check_count,
    check_instance,
    check_instances,
    check_nonnegative,
    check_positive,
    check_rate,
)

# Each term of a finite pair is a sum over its outcomes.
_MOST_FINITE_TERMS = 4096
# Every count up to it is a float.
MOST_RUNS = 2**52


class Event:
    """Something that was released, or several. A class of your own that no accountant knows is refused, never free."""


@dataclass(frozen=True)
class NothingEvent(Event):
    """No release that depends on the data.

    >>> from accounting import ClassicalAccountant
    >>> account = ClassicalAccountant(delta=1e-5)
    >>> account.compose(NothingEvent())
    >>> account.epsilon()
    0.0
    """


@dataclass(frozen=True)
class GaussianEvent(Event):
    """A sum with Gaussian noise: σ times the clip norm, continuous or on a grid of at least 2¹⁶ steps to its deviation.

    >>> GaussianEvent(1.1)
    GaussianEvent(noise_multiplier=1.1)
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", check_positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class DiscreteGaussianEvent(Event):
    """Integers with discrete Gaussian noise of standard deviation `noise_std`. One record moves them by `sensitivity`.

    sensitivity  L2 norm of an integer vector, on the same scale (Canonne, Kamath & Steinke 2020)

    >>> DiscreteGaussianEvent(10.0, sensitivity=1.0)
    DiscreteGaussianEvent(noise_std=10.0, sensitivity=1.0)
    """

    noise_std: float
    sensitivity: float

    def __post_init__(self) -> None:
        for name in ("noise_std", "sensitivity"):
            object.__setattr__(self, name, check_positive(name, getattr(self, name)))


@dataclass(frozen=True)
class LaplaceEvent(Event):
    """A sum with Laplace noise: its scale over the L1 norm that one record adds at most.

    >>> LaplaceEvent(2.0)
    LaplaceEvent(noise_multiplier=2.0)
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "noise_multiplier", check_positive("noise_multiplier", self.noise_multiplier))


@dataclass(frozen=True)
class DiscreteLaplaceEvent(Event):
    """Integers with discrete Laplace noise, P(k) ∝ e^{−|k|/scale}. One record moves them by `sensitivity`.

    sensitivity  L1 norm of an integer vector, 1 to 32,768

    >>> DiscreteLaplaceEvent(2.0, sensitivity=1)
    DiscreteLaplaceEvent(scale=2.0, sensitivity=1)
    """

    scale: float
    sensitivity: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", check_positive("scale", self.scale))
        # A record that is exchanged moves it twice as far.
        check_count("sensitivity", self.sensitivity, maximum=MOST_LOSSES // 2)


@dataclass(frozen=True)
class ZCDPEvent(Event):
    """A mechanism that is (ξ, ρ)-zCDP under the accountant's relation: D_α ≤ ξ + ρα for all α > 1 (Bun & Steinke 2016).

    >>> ZCDPEvent(0.5)
    ZCDPEvent(rho=0.5, xi=0.0)
    """

    rho: float
    xi: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rho", "xi"):
            object.__setattr__(self, name, check_nonnegative(name, getattr(self, name)))


@dataclass(frozen=True)
class PairEvent(Event):
    """Any mechanism whose two outcome laws under the accountant's relation are a pair of known Rényi divergence.

    >>> from accounting import RandomisedResponse
    >>> PairEvent(RandomisedResponse(0.75))
    PairEvent(pair=RandomisedResponse(truth=0.75))
    """

    pair: OutcomePair

    def __post_init__(self) -> None:
        check_instance("pair", OutcomePair, self.pair)


@dataclass(frozen=True)
class PoissonSampledEvent(Event):
    """`event` on a Poisson sample: every record by a coin of its own, unseen. Each step of several has its own sample.

    >>> PoissonSampledEvent(0.01, GaussianEvent(1.1)).sampling_rate
    0.01
    """

    sampling_rate: float
    event: Event

    def __post_init__(self) -> None:
        object.__setattr__(self, "sampling_rate", check_rate("sampling_rate", self.sampling_rate))
        check_instance("event", Event, self.event)


@dataclass(frozen=True)
class SelfComposedEvent(Event):
    """`event`, `count` times.

    >>> SelfComposedEvent(GaussianEvent(1.1), 10).count
    10
    """

    event: Event
    count: int

    def __post_init__(self) -> None:
        check_instance("event", Event, self.event)
        object.__setattr__(self, "count", check_count("count", self.count))


@dataclass(frozen=True)
class ComposedEvent(Event):
    """Several events, one after another. Any sequence.

    >>> ComposedEvent([GaussianEvent(1.1), LaplaceEvent(2.0)]).events[1]
    LaplaceEvent(noise_multiplier=2.0)
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", check_instances("events", Event, self.events))


Atom = (
    NothingEvent | GaussianEvent | DiscreteGaussianEvent | LaplaceEvent | DiscreteLaplaceEvent | ZCDPEvent | PairEvent
)


@dataclass(frozen=True)
class Kind:
    """One mechanism at one sampling rate: what an accountant counts."""

    atom: Atom
    rate: float


def kinds_of(event: Event, count: int = 1) -> Counter[Kind]:
    """How often each mechanism was run. InvalidArgument: an event that is not known, or sampled as a whole.

    >>> kinds_of(SelfComposedEvent(PoissonSampledEvent(0.5, GaussianEvent(2.0)), 3))
    Counter({Kind(atom=GaussianEvent(noise_multiplier=2.0), rate=0.5): 3})
    """
    kinds: Counter[Kind] = Counter()
    try:
        # Walk all of it first: a refusal changes nothing.
        for kind, times in _walk(event, 1.0, check_count("count", count)):
            kinds[kind] += check_count("count", times, maximum=MOST_RUNS)
    except RecursionError as error:
        raise InvalidArgument("event", "is nested too deeply") from error
    return kinds


def _walk(event: object, rate: float, count: int) -> Iterator[tuple[Kind, int]]:
    if isinstance(event, Atom):
        yield Kind(event, rate), count
        return
    match event:
        case PoissonSampledEvent(sampling_rate, inner):
            if isinstance(inner, SelfComposedEvent | ComposedEvent):
                raise InvalidArgument("event", "samples once for several steps. Give each step its own sample")
            yield from _walk(inner, rate * sampling_rate, count)
        case SelfComposedEvent(inner, times):
            yield from _walk(inner, rate, count * times)
        case ComposedEvent(events):
            for inner in events:
                yield from _walk(inner, rate, count)
        case _:
            raise InvalidArgument("event", f"is {type(event).__name__}, which no accountant knows")


def kind_moments(kind: Kind, orders: FloatArray, relation: Relation) -> FloatArray:
    """λ·D_{λ+1} of one run at every order, both directions, rounded up. An inf drops the order."""
    lams, rate = orders, kind.rate
    if rate == 0 or isinstance(kind.atom, NothingEvent):
        return np.zeros_like(lams)
    if relation is Relation.REPLACE_ONE:
        # Joint convexity. In both data sets the record is sampled with the same coin.
        return sampled_bound(_moments(kind.atom, 1.0, lams, 2.0), rate)
    return _moments(kind.atom, rate, lams, 1.0)


def _moments(atom: Atom, rate: float, lams: FloatArray, times: float) -> FloatArray:
    match atom:
        case GaussianEvent(noise_multiplier):
            # Not `log_moment`: what it checks, orders and events were checked for when they were made.
            with np.errstate(over="ignore", under="ignore"):
                ratio = np.float64(times) / noise_multiplier
                if rate == 1:
                    return unsampled_moments(lams, ratio)
                return exact_moments(lams, np.array([ratio]), rate)[:, 0]
        case DiscreteGaussianEvent(noise_std, sensitivity):
            # Between integer orders the lattice sums differ from the continuous integrals (equal at integers).
            moved = times * sensitivity
            return _convex(lams, rate, lambda whole: log_moment(whole, moved, noise_std=noise_std, sampling_rate=rate))
        case LaplaceEvent(noise_multiplier):
            return _of_pair(LaplacePair(times, noise_multiplier), rate, lams)
        case DiscreteLaplaceEvent(scale, sensitivity):
            return _of_pair(discrete_laplace_pair(scale, int(times) * sensitivity), rate, lams)
        case ZCDPEvent(rho, xi):
            return _of_pair(ZeroConcentrated(rho, xi), rate, lams)
        case PairEvent(pair):
            return _of_pair(pair, rate, lams)
        case NothingEvent():
            return np.zeros_like(lams)


def _of_pair(pair: OutcomePair, rate: float, lams: FloatArray) -> FloatArray:
    # Far out a sum has too many terms, and without sampling it costs more. The loss distribution answers there.
    if rate == 1 or lams.max() > (_MOST_FINITE_TERMS if isinstance(pair, FinitePair) else MOST_TERMS):
        return np.array([lam * max(told_by(pair, lam + 1), told_by(pair, lam + 1, reverse=True)) for lam in lams]) * (
            1 + 1e-9
        )
    return _convex(lams, rate, lambda whole: subsampled_moments(whole, pair, sampling_rate=rate))


def _convex(lams: FloatArray, rate: float, at_integers: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Read between integer orders by chords: λ·D_{λ+1} is convex in λ, as a logarithm of moments, and 0 at 0."""
    if rate == 1:
        return at_integers(lams)
    low, high = np.floor(lams), np.ceil(lams)
    whole = np.union1d(low, high)
    whole = whole[whole > 0]
    values = np.concatenate([[0.0], at_integers(whole)])
    places = np.concatenate([[0.0], whole])
    ends = values[np.searchsorted(places, low)], values[np.searchsorted(places, high)]
    share = lams - low
    with np.errstate(invalid="ignore"):
        between = (1 - share) * ends[0] + share * ends[1]
    return np.where(share == 0, ends[0], between * (1 + 1e-12))


_ATOMS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (NothingEvent, GaussianEvent, DiscreteGaussianEvent, LaplaceEvent, DiscreteLaplaceEvent, ZCDPEvent)
}


def kind_to_json(kind: Kind) -> list[Any]:
    """JSON-safe. InvalidArgument: a pair of laws of your own has no form to be written in."""
    if isinstance(kind.atom, PairEvent):
        raise InvalidArgument("event", "a pair of outcome laws cannot be written as JSON. Keep the events themselves")
    return [type(kind.atom).__name__, vars(kind.atom), kind.rate]


def kind_from_json(value: list[Any]) -> Kind:
    """Inverse of `kind_to_json`. Every value is checked again."""
    name, fields, rate = value
    if name not in _ATOMS:
        raise InvalidArgument("state", f"names an event {name!r}, which no accountant knows")
    return Kind(_ATOMS[name](**fields), check_rate("sampling_rate", rate))
