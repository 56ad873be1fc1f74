"""Events to dp_accounting and back, so that an independent accountant reads the same run.

dp_accounting is no dependency: it is imported where a function is called. Noise multipliers mean the same on both
sides, the noise over the norm of one record, under every neighbouring relation. For records that are exchanged use its
`PLDAccountant`: its `RdpAccountant` reads the noise of Gaussian events over their sensitivity.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from accounting.errors import InvalidArgument
from accounting.mechanisms.events import (
    ComposedEvent,
    DiscreteGaussianEvent,
    DiscreteLaplaceEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NothingEvent,
    PairEvent,
    PoissonSampledEvent,
    SelfComposedEvent,
    ZCDPEvent,
)
from accounting.mechanisms.general import LaplacePair, RandomisedResponse


def to_dp_accounting(event: Event) -> Any:
    """The same event as a `dp_accounting.DpEvent`.

    A discrete Gaussian becomes a continuous one of the same noise multiplier: dp_accounting has no event for it. Its
    δ(ε) is larger by the excess that `ClassicalAccountant` adds.

    Raises:
        InvalidArgument: dp_accounting has no such event, such as for a pair of laws of your own.
        ModuleNotFoundError: dp_accounting is not installed.

    >>> to_dp_accounting(PoissonSampledEvent(0.01, GaussianEvent(1.1)))
    PoissonSampledDpEvent(sampling_probability=0.01, event=GaussianDpEvent(noise_multiplier=1.1))
    """
    peer = _peer()
    match event:
        case PoissonSampledEvent(rate, inner):
            sampled = to_dp_accounting(inner)
            return sampled if rate == 1 else peer.PoissonSampledDpEvent(rate, sampled)
        case SelfComposedEvent(inner, count):
            return peer.SelfComposedDpEvent(to_dp_accounting(inner), count)
        case ComposedEvent(events):
            return peer.ComposedDpEvent([to_dp_accounting(inner) for inner in events])
        case _:
            return _mechanism(event, peer)


def _mechanism(event: Event, peer: Any) -> Any:
    match event:
        case NothingEvent():
            return peer.NoOpDpEvent()
        case GaussianEvent(noise_multiplier):
            return peer.GaussianDpEvent(noise_multiplier)
        case DiscreteGaussianEvent(noise_std, sensitivity):
            return peer.GaussianDpEvent(noise_std / sensitivity)
        case LaplaceEvent(noise_multiplier):
            return peer.LaplaceDpEvent(noise_multiplier)
        case DiscreteLaplaceEvent(scale, sensitivity):
            return peer.DiscreteLaplaceDpEvent(1 / scale, sensitivity)
        case ZCDPEvent(rho, xi):
            return peer.ZCDpEvent(rho, xi)
        case PairEvent(LaplacePair(shift, scale)) if shift:
            return peer.LaplaceDpEvent(scale / abs(shift))
        case PairEvent(RandomisedResponse(truth)):
            return peer.RandomizedResponseDpEvent(2 * (1 - truth), 2)
        case _:
            raise InvalidArgument("event", f"{event!r} has no counterpart in dp_accounting")


def from_dp_accounting(event: Any) -> Event:
    """The same `dp_accounting.DpEvent` as an event of this package. Compose it with `ClassicalAccountant.compose`.

    Raises:
        InvalidArgument: this package has no such event, such as for sampling without replacement or without noise.
        ModuleNotFoundError: dp_accounting is not installed.

    >>> import dp_accounting
    >>> from_dp_accounting(dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1)))
    PoissonSampledEvent(sampling_rate=0.01, event=GaussianEvent(noise_multiplier=1.1))
    """
    fields = {name: getattr(event, name) for name in _FIELDS.get(type(event).__name__, ())}
    if not isinstance(event, _peer().DpEvent) or type(event).__name__ not in _FIELDS:
        raise InvalidArgument("event", f"{event!r} has no counterpart here")
    match type(event).__name__:
        case "SelfComposedDpEvent":
            return SelfComposedEvent(from_dp_accounting(fields["event"]), fields["count"])
        case "ComposedDpEvent":
            return ComposedEvent(tuple(from_dp_accounting(inner) for inner in fields["events"]))
        case "PoissonSampledDpEvent":
            return PoissonSampledEvent(fields["sampling_probability"], from_dp_accounting(fields["event"]))
        case name:
            return _atom(name, fields)


_FIELDS: dict[str, tuple[str, ...]] = {
    "NoOpDpEvent": (),
    "GaussianDpEvent": ("noise_multiplier",),
    "LaplaceDpEvent": ("noise_multiplier",),
    "DiscreteLaplaceDpEvent": ("noise_parameter", "sensitivity"),
    "ZCDpEvent": ("rho", "xi"),
    "RandomizedResponseDpEvent": ("noise_parameter", "num_buckets"),
    "PoissonSampledDpEvent": ("sampling_probability", "event"),
    "SelfComposedDpEvent": ("event", "count"),
    "ComposedDpEvent": ("events",),
}


def _atom(name: str, fields: dict[str, Any]) -> Event:
    match name:
        case "GaussianDpEvent":
            return GaussianEvent(**fields)
        case "LaplaceDpEvent":
            return LaplaceEvent(**fields)
        case "DiscreteLaplaceDpEvent" if fields["noise_parameter"] > 0:
            return DiscreteLaplaceEvent(1 / fields["noise_parameter"], fields["sensitivity"])
        case "ZCDpEvent":
            return ZCDPEvent(**fields)
        case "RandomizedResponseDpEvent" if fields["num_buckets"] == 2:
            return PairEvent(RandomisedResponse(1 - fields["noise_parameter"] / 2))
        case "NoOpDpEvent":
            return NothingEvent()
        case _:
            raise InvalidArgument("event", f"{name} with {fields} has no counterpart here")


def _peer() -> Any:
    try:
        return import_module("dp_accounting.dp_event")
    except ImportError as error:
        raise ModuleNotFoundError("dp_accounting is not installed: pip install dp-accounting") from error
