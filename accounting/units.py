"""The words of a guarantee: whom it protects, in which sense, against whom, and what it assumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from accounting.encoding import FloatArray, fields_to_json
from accounting.errors import InvalidArgument


class Level(StrEnum):
    """Whose presence is hidden: everything one client did, or one record."""

    CLIENT = "client"
    INSTANCE = "instance"


class Definition(StrEnum):
    """classical: any record. bayesian, certified: one drawn from the population. individual: each by its own norms."""

    CLASSICAL = "classical"
    BAYESIAN = "bayesian"
    CERTIFIED = "certified"
    INDIVIDUAL = "individual"


class Observer(StrEnum):
    """releases: sees only what is published. coordinator: sees who takes part and what they send."""

    RELEASES = "releases"
    COORDINATOR = "coordinator"


class Relation(StrEnum):
    """Neighbouring data sets. zero-out: the client takes part with its noise, its signal is 0."""

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"


_ENUMS = {"level": Level, "definition": Definition, "relation": Relation, "observer": Observer}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A certificate: an (epsilon, delta) and everything needed to read it.

    epsilon        ≥ 0; infinite where nothing is promised
    orders, order  conversion orders λ of the ledger, and the one epsilon was read at
    sampling_rate  Poisson rates credited (smallest, largest over the steps); (1, 1): no credit
    max_steps        most noised steps; None: open-ended weights or an account that needs none
    steps          noised steps accounted so far
    beta, gamma    delta = beta + gamma: privacy failure and estimation failure
    resolution     in words, how values were rounded before the estimate
    assumption     one sentence: what the number rests on

    >>> from accounting import ClassicalAccountant
    >>> certificate = ClassicalAccountant(delta=1e-5).certificate()
    >>> certificate.epsilon, str(certificate.level), certificate.state
    (0.0, 'instance', 'finite')
    >>> Guarantee.from_dict(certificate.to_dict()) == certificate
    True
    """

    epsilon: float
    delta: float
    level: Level
    definition: Definition
    relation: Relation
    observer: Observer
    assumption: str
    steps: int = 0
    orders: tuple[float, ...] = ()
    order: float | None = None
    sampling_rate: tuple[float, float] | None = None
    max_steps: int | None = None
    estimator: str | None = None
    composition: str | None = None
    beta: float | None = None
    gamma: float | None = None
    adversary: Literal["path", "adaptive"] | None = None
    sample: Literal["members", "held-out", "public"] | None = None
    conversion: str | None = None
    resolution: str = "exact"
    capped: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.epsilon, bool) or math.isnan(self.epsilon) or self.epsilon < 0:
            raise InvalidArgument("epsilon", f"must be ≥ 0, possibly infinite, not {self.epsilon!r}")
        check_delta(self.delta)
        if not self.assumption.strip():
            raise InvalidArgument("assumption", "a certificate says what it assumes")

    @property
    def state(self) -> Literal["finite", "unbounded", "overspent"]:
        """unbounded: nothing was ever promised. overspent: steps were charged that no finite ε covers."""
        if math.isfinite(self.epsilon):
            return "finite"
        return "overspent" if self.steps > 0 else "unbounded"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: an infinite epsilon becomes null beside its state."""
        finite = self.epsilon if math.isfinite(self.epsilon) else None
        return fields_to_json(self) | {"epsilon": finite, "state": self.state}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Guarantee:
        """Inverse of to_dict."""
        values = {name: value for name, value in data.items() if name != "state"}
        values |= {name: kind(data[name]) for name, kind in _ENUMS.items()}
        values["epsilon"] = data["epsilon"] if data["state"] == "finite" else math.inf
        values["orders"] = tuple(data["orders"])
        values["sampling_rate"] = None if data["sampling_rate"] is None else tuple(data["sampling_rate"])
        return cls(**values)


def check_number(name: str, value: object, *, finite: bool = True) -> float:
    """A real number: no bool, text, NaN, negative zero, and no infinity unless allowed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(name, f"must be a number, not {type(value).__name__}")
    number = float(value)
    if math.isnan(number):
        raise InvalidArgument(name, "is NaN")
    if finite and math.isinf(number):
        raise InvalidArgument(name, "is infinite")
    if number == 0 and math.copysign(1.0, number) < 0:
        raise InvalidArgument(name, "is negative zero")
    return number


def check_positive(name: str, value: object) -> float:
    number = check_number(name, value)
    if number <= 0:
        raise InvalidArgument(name, f"must be > 0, not {number!r}")
    return number


def check_nonnegative(name: str, value: object) -> float:
    number = check_number(name, value)
    if number < 0:
        raise InvalidArgument(name, f"must be ≥ 0, not {number!r}")
    return number


def check_rate(name: str, value: object) -> float:
    """A Poisson sampling rate in [0, 1]."""
    number = check_nonnegative(name, value)
    if number > 1:
        raise InvalidArgument(name, f"must be ≤ 1, not {number!r}")
    return number


def check_delta(value: object, name: str = "delta") -> float:
    """A failure probability in (0, 1)."""
    number = check_positive(name, value)
    if number >= 1:
        raise InvalidArgument(name, f"must be < 1, not {number!r}")
    return number


def check_count(name: str, value: object, *, least: int = 1) -> int:
    """An integer ≥ least; a float is refused even when it is whole."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(name, f"must be an integer, not {type(value).__name__}")
    number = int(value)
    if number < least:
        raise InvalidArgument(name, f"must be ≥ {least}, not {number}")
    return number


def check_array(name: str, values: object, *, low: float = 0.0, shape: int | None = 1) -> FloatArray:
    """Finite float64 array, every entry ≥ low, not empty, no negative zero; `shape` is its number of axes."""
    raw = np.asarray(values)
    if raw.dtype.kind not in "iuf":
        raise InvalidArgument(name, f"must hold real numbers, not {raw.dtype}")
    array = raw.astype(np.float64)
    if shape is not None and array.ndim != shape:
        raise InvalidArgument(name, f"must have {shape} axis, not {array.ndim}")
    if array.size == 0:
        raise InvalidArgument(name, "is empty")
    if not np.isfinite(array).all():
        raise InvalidArgument(name, "holds NaN or infinity")
    if bool(((array == 0) & np.signbit(array)).any()):
        raise InvalidArgument(name, "holds negative zero")
    if bool((array < low).any()):
        raise InvalidArgument(name, f"holds a value below {low!r}")
    return array


def check_orders(orders: Sequence[float] | FloatArray, name: str = "orders") -> FloatArray:
    """Moment orders λ > 0, strictly increasing."""
    array = check_array(name, orders)
    if bool((array <= 0).any()):
        raise InvalidArgument(name, "every order must be > 0")
    if bool((np.diff(array) <= 0).any()):
        raise InvalidArgument(name, "must be strictly increasing")
    return array


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidArgument(name, f"must be one of {', '.join(choices)}, not {value!r}")
    return str(value)
