"""The words of a guarantee: whom it protects, in which sense, against whom, and what it assumes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any, Literal

from accounting.errors import InvalidArgument
from accounting.values import check_delta, check_instance, check_word, fields_to_json, short_repr

# The name of the ε of a loss distribution beside a classical limit.
PRIVACY_LOSS_DISTRIBUTION = "privacy-loss distribution"
# Of an ε so far where the guarantee is that of a whole plan, or the limit.
RUNNING_CONDITION = "if the study ended here for reasons that do not depend on its results"


class Level(StrEnum):
    """The unit that is hidden: everything one client did, or one record."""

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


GuessFrom = Literal["loss-distribution", "epsilon"]


class Relation(StrEnum):
    """Neighbouring data sets. zero-out: the client takes part with its noise, its signal is 0."""

    ADD_REMOVE = "add-remove"
    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"


_ENUMS = {"level": Level, "definition": Definition, "relation": Relation, "observer": Observer}


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A certificate: an (epsilon, delta) and everything needed to read it.

    epsilon        ≥ 0, infinite where there is no promise
    orders, order  conversion orders λ of the ledger, and the one epsilon was read at
    sampling_rate  Poisson rates credited (smallest, largest over the steps). (1, 1): no credit
    max_steps        most noised steps. None: open-ended weights or an account that needs none
    steps          noised steps accounted so far
    beta, gamma    delta = beta + gamma: privacy failure and estimation failure
    resolution     in words, how values were rounded before the estimate
    assumption     one sentence: what the number rests on
    used, allowed  composition gaussian-filter: Σ Δ²/s² so far, and μ², the most that it may become. fixed-plan: the
                   same of questions alone
    guess_from     what a statement's chance of a right guess is computed from: the loss distribution of all that the
                   study may release, or ε and δ alone

    Raises InvalidArgument.

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
    used: float | None = None
    allowed: float | None = None
    guess_from: GuessFrom | None = None

    def __post_init__(self) -> None:
        # NaN is above no limit: an account that held it would never say no.
        if isinstance(self.epsilon, bool) or not isinstance(self.epsilon, Real) or not self.epsilon >= 0:
            raise InvalidArgument("epsilon", f"must be ≥ 0, possibly infinite, not {self.epsilon!r}")
        check_delta(self.delta)
        for name, kind in _ENUMS.items():
            object.__setattr__(self, name, check_word(name, kind, getattr(self, name)))
        if not check_instance("assumption", str, self.assumption).strip():
            raise InvalidArgument("assumption", "a certificate says what it assumes")

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def state(self) -> Literal["finite", "unbounded", "overspent"]:
        """Return the state. unbounded: there was never a promise. overspent: steps were charged that no finite ε
        covers."""
        if math.isfinite(self.epsilon):
            return "finite"
        return "overspent" if self.steps > 0 else "unbounded"

    def to_dict(self) -> dict[str, Any]:
        """JSON-safe: an infinite epsilon becomes null beside its state."""
        finite = self.epsilon if math.isfinite(self.epsilon) else None
        return fields_to_json(self) | {"epsilon": finite, "state": self.state}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Guarantee:
        """Inverse of to_dict. KeyError, ValueError: it is none."""
        values = {name: value for name, value in data.items() if name != "state"}
        values |= {name: kind(data[name]) for name, kind in _ENUMS.items()}
        values["epsilon"] = data["epsilon"] if data["state"] == "finite" else math.inf
        values["orders"] = tuple(data["orders"])
        values["sampling_rate"] = None if data["sampling_rate"] is None else tuple(data["sampling_rate"])
        return cls(**values)
