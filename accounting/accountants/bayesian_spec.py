"""The settings of an account that estimates, fixed before its first step and checked once, and its statement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from accounting.accountants.composition import HolderComposition, HolderWeights, Rows, RunningComposition
from accounting.errors import InvalidArgument
from accounting.estimation.upper_mean import DISTRIBUTION_FREE, ESTIMATORS
from accounting.mechanisms.conversion import Conversion
from accounting.mechanisms.divergence import Direction
from accounting.plan.limits import Estimator
from accounting.units import Definition, Guarantee, Level, Observer, Relation
from accounting.values import (
    FloatArray,
    check_choice,
    check_count,
    check_delta,
    check_order,
    check_orders,
    check_positive,
    check_word,
    fields_to_json,
    order_or_alpha,
    orders_or_alphas,
)

Composition = Literal["holder", "running"]
Adversary = Literal["path", "adaptive"]
Sample = Literal["members", "held-out", "public"]
_CHOICES: dict[str, tuple[str, ...]] = {
    "composition": ("holder", "running"),
    "adversary": ("path", "adaptive"),
    "conversion": ("improved", "chernoff"),
    "direction": ("forward", "printed"),
}
_SAMPLES = {
    "members": "the members' own records, though the run depends on them, are an independent sample",
    "held-out": "the held-out accounting sample, declared before the first round, is an independent sample",
    "public": "the public sample is an independent sample",
}
_ADVERSARIES = {
    "path": "no round depends on what earlier rounds said about that record",
    "adaptive": "every round may depend on all earlier ones",
}


@dataclass(frozen=True, kw_only=True)
class EstimateSpec:
    """A guarantee that is estimated from a sample: its δ, who is sampled, how, and for whom it speaks.

    delta      of the certificate. `estimator_failure_probability`, 0 < γ < delta, is its part that covers the
               estimates
    estimator  "betting", "band", "bernstein": distribution-free. "student-t": assumes a normal law
    sample     whose records are measured

    Raises InvalidArgument, which names the field that is wrong.
    """

    delta: float
    estimator_failure_probability: float
    estimator: Estimator = "betting"
    sample: Sample = "members"
    level: Level = Level.INSTANCE
    observer: Observer = Observer.RELEASES

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if check_delta(self.estimator_failure_probability, "estimator_failure_probability") >= self.delta:
            raise InvalidArgument(
                "estimator_failure_probability", f"must be below delta = {self.delta!r}, of which it is a part"
            )
        check_choice("estimator", self.estimator, ESTIMATORS)
        check_choice("sample", self.sample, ("members", "held-out", "public"))
        self._keep(level=check_word("level", Level, self.level))
        self._keep(observer=check_word("observer", Observer, self.observer))

    @property
    def beta(self) -> float:
        """Return the part of delta that is left for the privacy loss."""
        return self.delta - self.estimator_failure_probability

    def _keep(self, **values: object) -> None:
        """Keep the arguments in one form, so that equal specs compare equal for any sequence types."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class BayesianSpec(EstimateSpec):
    """Everything that a `BayesianAccountant` fixes beforehand.

    orders         conversion orders λ, increasing. Or alphas = λ + 1 in their place
    max_steps      the most noised steps. None: open-ended weights 1/(t(t+1)) (holder), no limit (running)
    composition    "holder": each step is bounded by itself. "running": each record's own sum is
    adversary      "path": the papers' claim. "adaptive": rounds may depend on what earlier ones said
    weights        Hölder weights fixed beforehand, instead of 1/max_steps
    checkpoints    running: steps at which estimates are read, or how many of them. None: every step, failure/(t(t+1))
    filter_order   λ* (or filter_alpha = λ* + 1) fixed before round 1: `epsilon` is read there alone, with the whole
                   failure probability
    limit_epsilon  steps that might pass it at λ* are refused
    cap            the log-moment never exceeds the classical one, Σ φ(λ, max_distance)

    >>> spec = BayesianSpec(orders=[2, 4, 8], delta=1e-5, estimator_failure_probability=1e-6, max_steps=100)
    >>> spec.orders, str(spec.definition)
    ((2.0, 4.0, 8.0), 'bayesian')
    """

    orders: Sequence[float] = ()
    max_steps: int | None = None
    composition: Composition = "holder"
    estimator: Estimator = "student-t"
    adversary: Adversary = "path"
    conversion: Conversion = "improved"
    filter_order: float | None = None
    limit_epsilon: float | None = None
    checkpoints: int | Sequence[int] | None = None
    cap: bool = True
    weights: Sequence[float] | None = None
    relation: Relation = Relation.ADD_REMOVE
    direction: Direction = "forward"
    alphas: InitVar[Sequence[float] | None] = None
    filter_alpha: InitVar[float | None] = None

    def __post_init__(self, alphas: Sequence[float] | None, filter_alpha: float | None) -> None:  # type: ignore[override]
        super().__post_init__()
        orders = None if alphas is not None and not len(self.orders) else self.orders
        self._keep(orders=tuple(orders_or_alphas(orders, alphas).tolist()) if alphas is not None else self.orders)
        self._keep(filter_order=order_or_alpha(self.filter_order, filter_alpha, ("filter_order", "filter_alpha")))
        points = tuple(self.checkpoints) if isinstance(self.checkpoints, Sequence) else self.checkpoints
        weights = None if self.weights is None else _numbers("weights", self.weights)
        self._keep(orders=_numbers("orders", self.orders), checkpoints=points, weights=weights)
        self._keep(cap=bool(self.cap), relation=check_word("relation", Relation, self.relation))
        check_orders(self.orders)
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        self._check_optional()
        # For its checks of weights and checkpoints.
        self.open_ledger()

    def _check_optional(self) -> None:
        if self.max_steps is not None:
            check_count("max_steps", self.max_steps)
        if self.filter_order is not None:
            check_order("filter_order", self.filter_order)
        if self.limit_epsilon is not None:
            check_positive("limit_epsilon", self.limit_epsilon)
            if self.filter_order is None:
                raise InvalidArgument("limit_epsilon", "is enforced at a filter_order fixed beforehand")
        if self.composition == "running" and self.weights is not None:
            raise InvalidArgument("weights", "belong to composition holder")
        if self.composition == "holder" and self.checkpoints is not None:
            raise InvalidArgument("checkpoints", "belong to composition running")

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
        """Return the definition. Certified: no assumption on the population, a run independent of the sample, rounds
        may adapt."""
        # Members' norms depend on the run. Held-out records were declared before it and kept out of it.
        certified = self.sample == "held-out" and self.adversary == "adaptive" and self.estimator in DISTRIBUTION_FREE
        return Definition.CERTIFIED if certified else Definition.BAYESIAN

    def open_ledger(self) -> HolderComposition | RunningComposition:
        """An empty ledger. With an adaptive adversary it is kept at order 2λ+1."""
        count, failure = len(self.orders), self.estimator_failure_probability
        orders = 2 * self.rows + 1 if self.adversary == "adaptive" else self.rows
        # What the filter keeps and what the statement says are two certificates: neither takes its γ from the other.
        once = np.arange(orders.size) >= count
        rows = Rows(orders, np.where(once, failure, failure / count), once, self.estimator)
        if self.composition == "holder":
            return HolderComposition(rows, HolderWeights(self.max_steps, self.weights), failure)
        return RunningComposition(rows, self.max_steps, _declared_checkpoints(self.checkpoints, self.max_steps))

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe. Equal settings give equal dictionaries."""
        return fields_to_json(self)


def _declared_checkpoints(checkpoints: int | Sequence[int] | None, max_steps: int | None) -> tuple[int, ...] | None:
    """Steps at which estimates may be read. n means n of them, spread evenly over max_steps steps."""
    if checkpoints is None:
        return None
    if isinstance(checkpoints, Sequence):
        steps = tuple(check_count("checkpoints", step) for step in checkpoints)
        if not steps or any(a >= b for a, b in pairwise(steps)):
            raise InvalidArgument("checkpoints", "must be one or more strictly increasing step numbers")
        return steps
    number = check_count("checkpoints", checkpoints)
    if max_steps is None or number > max_steps:
        raise InvalidArgument("checkpoints", "given as a number, needs a max_steps that is at least as large")
    return tuple(math.ceil(max_steps * (i + 1) / number) for i in range(number))


def _numbers(name: str, values: Sequence[float] | FloatArray) -> tuple[float, ...]:
    """A tuple of floats from any sequence of numbers. Refuses text and the like by name."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf" or array.ndim != 1:
        raise InvalidArgument(name, "must be a sequence of numbers")
    return tuple(array.astype(np.float64).tolist())


def bayesian_guarantee(
    settings: BayesianSpec,
    epsilon: float,
    orders: tuple[float, ...],
    order: float,
    *,
    steps: int,
    rates: tuple[float, float] | None,
    resolution: str,
) -> Guarantee:
    """The certificate of a Bayesian account."""
    return Guarantee(
        epsilon=epsilon,
        delta=settings.delta,
        level=settings.level,
        definition=settings.definition,
        relation=settings.relation,
        observer=settings.observer,
        assumption=assumption_of(settings),
        steps=steps,
        orders=orders,
        order=order,
        sampling_rate=rates,
        max_steps=settings.max_steps,
        estimator=settings.estimator,
        composition=settings.composition,
        beta=settings.beta,
        gamma=settings.estimator_failure_probability,
        adversary=settings.adversary,
        sample=settings.sample,
        conversion=settings.conversion,
        resolution=resolution,
    )


def assumption_of(settings: BayesianSpec) -> str:
    """The sentence."""
    model = "; e^{TλD} is normal" if settings.estimator == "student-t" else ""
    path = ""
    if settings.adversary == "adaptive" and settings.limit_epsilon is None:
        path = "; no other course of the run would have cost more (this account enforced no limit)"
    printed = "; costs are the larger of the two printed directions" if settings.direction == "printed" else ""
    return (
        f"Assumes that the record is drawn from the population of which {_SAMPLES[settings.sample]}{model}; "
        f"{_ADVERSARIES[settings.adversary]}{path}{printed}."
    )


def capped_by(bayesian: Guarantee, classical: Guarantee) -> Guarantee:
    """Return the smaller ε of two certificates that make the same claim. A claim for all records holds on average."""
    if classical.definition is not Definition.CLASSICAL:
        raise InvalidArgument("classical", f"is a guarantee of definition {classical.definition}")
    # A smaller ε of another claim would be no bound on this one.
    for name in ("level", "relation", "observer", "delta"):
        if getattr(classical, name) != getattr(bayesian, name):
            raise InvalidArgument("classical", f"has another {name}")
    if classical.steps < bayesian.steps:
        raise InvalidArgument("classical", f"is of {classical.steps} steps, fewer than the {bayesian.steps} to cap")
    if classical.epsilon >= bayesian.epsilon:
        return bayesian
    return replace(bayesian, epsilon=classical.epsilon, capped=True)
