"""What is fixed before the first step of a Bayesian account, checked once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np

from accounting.accountants.holder import HolderComposition, Weights
from accounting.accountants.running import RunningComposition, declared_checkpoints
from accounting.errors import InvalidArgument
from accounting.estimation.upper_mean import DISTRIBUTION_FREE, ESTIMATORS, Estimator
from accounting.mechanisms.conversion import Conversion
from accounting.mechanisms.divergence import Direction
from accounting.units import (
    Definition,
    FloatArray,
    Level,
    Observer,
    Relation,
    check_choice,
    check_count,
    check_delta,
    check_orders,
    check_positive,
)

Composition = Literal["holder", "running"]
Adversary = Literal["path", "adaptive"]
Sample = Literal["members", "held-out", "public"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "composition": ("holder", "running"),
    "estimator": ESTIMATORS,
    "adversary": ("path", "adaptive"),
    "conversion": ("improved", "chernoff"),
    "sample": ("members", "held-out", "public"),
    "direction": ("forward", "printed"),
}


@dataclass(frozen=True, kw_only=True)
class BayesianSpec:
    """The arguments of BayesianAccountant; InvalidArgument names the one that is wrong."""

    orders: tuple[float, ...]
    delta: float
    estimator_failure_probability: float
    max_steps: int | None
    composition: Composition
    estimator: Estimator
    adversary: Adversary
    conversion: Conversion
    sample: Sample
    filter_order: float | None
    limit_epsilon: float | None
    checkpoints: tuple[int, ...] | int | None
    cap: bool
    weights: tuple[float, ...] | None
    level: Level
    observer: Observer
    relation: Relation
    direction: Direction

    def __post_init__(self) -> None:
        check_orders(self.orders)
        check_delta(self.delta)
        if check_delta(self.estimator_failure_probability, "estimator_failure_probability") >= self.delta:
            raise InvalidArgument(
                "estimator_failure_probability", f"must be below delta = {self.delta!r}, of which it is a part"
            )
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)
        if self.filter_order is not None:
            check_positive("filter_order", self.filter_order)
        if self.limit_epsilon is not None:
            check_positive("limit_epsilon", self.limit_epsilon)
            if self.filter_order is None:
                raise InvalidArgument("limit_epsilon", "is enforced at a filter_order fixed beforehand")
        if self.composition == "running" and self.weights is not None:
            raise InvalidArgument("weights", "belong to composition holder")
        if self.composition == "holder" and self.checkpoints is not None:
            raise InvalidArgument("checkpoints", "belong to composition running")
        self.open_ledger()

    @property
    def beta(self) -> float:
        """What is left of delta for the privacy loss."""
        return self.delta - self.estimator_failure_probability

    @cached_property
    def rows(self) -> FloatArray:
        """Conversion orders: the statement's, which share the failure probability, then the filter's with all of it."""
        return np.array([*self.orders, *([] if self.filter_order is None else [self.filter_order])])

    @property
    def enforced(self) -> slice:
        """The rows `epsilon` is read from."""
        return slice(len(self.orders) if self.filter_order is not None else 0, None)

    @property
    def definition(self) -> Definition:
        return definition_of(self.estimator, self.sample, self.adversary)

    def open_ledger(self) -> HolderComposition | RunningComposition:
        """An empty ledger; with an adaptive adversary it is kept at order 2λ+1."""
        count = len(self.orders)
        orders = 2 * self.rows + 1 if self.adversary == "adaptive" else self.rows
        once = np.arange(orders.size) >= count
        shares = np.where(once, self.estimator_failure_probability, self.estimator_failure_probability / count)
        if self.composition == "holder":
            weights = Weights(self.max_steps, self.weights)
            return HolderComposition(
                orders,
                shares,
                weights,
                self.estimator,
                estimator_failure_probability=self.estimator_failure_probability,
            )
        checkpoints = declared_checkpoints(self.checkpoints, self.max_steps)
        return RunningComposition(
            orders, shares, once, self.estimator, max_steps=self.max_steps, checkpoints=checkpoints
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe; equal settings give equal dictionaries."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = list(value)  # pyright: ignore[reportUnknownArgumentType]
            elif isinstance(value, Level | Observer | Relation):
                values[name] = str(value)
        return values


def definition_of(estimator: Estimator, sample: Sample, adversary: Adversary) -> Definition:
    """Certified: nothing is assumed of the population, the run did not depend on the sample, and rounds may adapt."""
    certified = estimator in DISTRIBUTION_FREE and sample == "held-out" and adversary == "adaptive"
    return Definition.CERTIFIED if certified else Definition.BAYESIAN


def plain_numbers(values: Sequence[float] | FloatArray | None, name: str) -> tuple[float, ...] | None:
    """A tuple of floats from any sequence of numbers; refuses text and the like by name."""
    if values is None:
        return None
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise InvalidArgument(name, "must be a sequence of numbers")
    return tuple(array.astype(np.float64).tolist())
