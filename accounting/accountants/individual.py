"""Individual accounting: each record is charged for its own norms and leaves when its bound is reached."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, fields
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from accounting.accountants.individual_gaussian import GaussianFilterSpec
from accounting.errors import InvalidArgument
from accounting.mechanisms.conversion import (
    NOISE_AS_EXACT,
    Values,
    delta_from_moments,
    largest_moment,
    sampling_slack,
    spendable_delta,
    takes_noise_as_exact,
)
from accounting.mechanisms.divergence import log_moment
from accounting.units import Definition, Guarantee, Level, Observer, Relation
from accounting.values import (
    FloatArray,
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_nonnegative,
    check_positive,
    check_rate,
    check_word,
    fields_to_json,
    order_or_alpha,
)

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class FilterSpec:
    """The (limit_epsilon, delta) that no record passes, kept at one order fixed beforehand. Raises InvalidArgument.

    order     λ*, or alpha = λ* + 1 in its place
    releases  most noised sums: what the sampler's cut tails may add over them comes off delta before it is read, and
              no record takes part in more. 0: the noise is taken to be exact
    """

    rule: ClassVar[str] = "renyi"
    order: float = 0.0
    delta: float
    limit_epsilon: float
    level: Level = Level.INSTANCE
    observer: Observer = Observer.RELEASES
    releases: int = 0
    alpha: InitVar[float | None] = None

    def __post_init__(self, alpha: float | None) -> None:
        # 0 is no order: none was given.
        order = order_or_alpha(None if alpha is not None and self.order == 0 else self.order, alpha)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "level", check_word("level", Level, self.level))
        object.__setattr__(self, "observer", check_word("observer", Observer, self.observer))
        check_positive("limit_epsilon", self.limit_epsilon)
        check_count("releases", self.releases, minimum=0)
        if self.bound <= 0:
            raise InvalidArgument(
                "limit_epsilon", f"leaves no room for any step at order {self.order!r} and this delta"
            )

    @property
    def bound(self) -> float:
        """Nats that a record may spend: λε − ln c_λ + ln δ (Canonne, Kamath & Steinke 2020, Proposition 12)."""
        delta = spendable_delta(check_delta(self.delta), self.limit_epsilon, self.releases)
        return largest_moment(self.order, self.limit_epsilon, delta)

    @property
    def takes_noise_as_exact(self) -> bool:
        """Whether delta leaves no room for the sampler's error, at limits of 65 and more."""
        return takes_noise_as_exact(self.delta, self.limit_epsilon, self.releases)

    def costs(self, distances: Values, *, noise_std: float, sampling_rate: float) -> FloatArray:
        """Return the log-moments φ(λ, d) in nats, one for each distance. Raises InvalidArgument as `log_moment`."""
        return np.atleast_1d(log_moment(self.order, distances, noise_std=noise_std, sampling_rate=sampling_rate))

    def delta_at(self, epsilon: float) -> float:
        """Return δ at another ε of the same filter."""
        delta = delta_from_moments(self.order, self.bound, epsilon)[0]
        return min(1.0, delta + sampling_slack(epsilon, self.releases))

    @property
    def reading(self) -> dict[str, Any]:
        """Return the fields of a Guarantee that say how ε was read."""
        return {
            "orders": (self.order,),
            "order": self.order,
            "composition": "filter",
            "conversion": "improved",
            "resolution": "rounded up",
        }


AnyFilterSpec: TypeAlias = FilterSpec | GaussianFilterSpec
_SPECS: dict[str, type[AnyFilterSpec]] = {spec.rule: spec for spec in (FilterSpec, GaussianFilterSpec)}


class IndividualFilter:
    """An individual filter by a rule that is fixed beforehand: (limit_epsilon, delta)-DP for all.

    FilterSpec          Σ φ(λ, d) ≤ λε − ln c_λ + ln δ at one Rényi order (Feldman & Zrnic 2021)
    GaussianFilterSpec  Σ d²/s² ≤ μ², tighter for steps that all records take part in (Koskela, Tobaben & Honkela 2023)

    Every record keeps the sum for its own clipped norms d. The step that would carry it past the bound finds it
    excluded, and it stays excluded: its signal is zero from then on, the noise stays. No distribution, sample size or
    max_steps is needed, and the plan may adapt to the releases.

    Two ways to treat sampling, by `sampling_rate` of each step:
      1       participation is visible or is not credited: the sampled are charged in full, the others not
      q < 1   the coins stay secret: all are charged at rate q, those whose norm was not computed at max_distance.
              FilterSpec alone has this credit

    The sums are secrets of the records and are never part of the certificate, nor are the excluded records.

    >>> spec = FilterSpec(order=8.0, delta=1e-5, limit_epsilon=2.0)
    >>> sums = IndividualFilter(spec, members=3)
    >>> for _ in range(4):
    ...     may = sums.admit([0.1, 0.5, 1.0], noise_std=4.0, sampling_rate=1.0, max_distance=1.0)
    >>> may.tolist(), sums.epsilon()
    ([True, True, False], 2.0)
    """

    def __init__(self, spec: AnyFilterSpec, *, members: int) -> None:
        if not isinstance(spec, AnyFilterSpec):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("spec", f"must be a FilterSpec or a GaussianFilterSpec, not {type(spec).__name__}")
        self.spec = spec
        self._spent: FloatArray = np.zeros(check_count("members", members))
        self._excluded: BoolArray = np.zeros(members, dtype=np.bool_)
        self._steps = 0
        self._rates: tuple[float, float] | None = None

    @property
    def members(self) -> int:
        """Records that are followed, excluded or not."""
        return self._spent.size

    def admit(
        self,
        distances: Values,
        *,
        noise_std: float,
        sampling_rate: float,
        max_distance: float | None = None,
        measured: BoolArray | None = None,
    ) -> BoolArray:
        """Charge one step, and return which of the measured records may contribute.

        distances     clipped norms of the measured records, in the order of the accounting sample
        max_distance  the clip norm, required when sampling_rate < 1 and a norm is missing
        measured      (members,) bool: whose norms these are, None for all. At sampling_rate 1 also who takes part

        Returns a bool array like `distances`. A False must contribute exactly zero.
        Raises InvalidArgument for shapes, NaN, negative numbers or a norm above max_distance, and then charges no step.
        """
        rate = check_rate("sampling_rate", sampling_rate)
        rows = self._measured_rows(measured)
        # A step that sampled nobody is a step. An empty array is otherwise an error.
        norms = check_array("distances", distances) if rows.any() else np.zeros(0)
        if norms.size != int(rows.sum()):
            raise InvalidArgument("distances", f"has {norms.size} entries for {int(rows.sum())} measured records")
        charges = np.zeros(self.members)
        # Also those that the coin passed by: a charge must not tell whom it chose.
        if rate < 1 and not rows.all():
            if max_distance is None:
                raise InvalidArgument("max_distance", "is required: a record whose norm was not computed counts as it")
            charges[:] = self._cost(check_positive("max_distance", max_distance), noise_std, rate)
        if max_distance is not None and bool((norms > check_positive("max_distance", max_distance)).any()):
            raise InvalidArgument("distances", "holds a norm above max_distance")
        if norms.size:
            charges[rows] = self.spec.costs(norms, noise_std=noise_std, sampling_rate=rate)
        total = self._spent + charges
        # For good: rate q < 1 is sound only if nobody comes back (docs/definitions/individual.md).
        self._excluded = self._excluded | ~(total <= self.spec.bound) | self._is_full
        # Whoever is excluded contributes zero, and is charged nothing for it.
        self._spent = np.where(self._excluded, self._spent, total)
        self._steps += 1
        low, high = self._rates or (rate, rate)
        self._rates = (min(low, rate), max(high, rate))
        return ~self._excluded[rows]

    def has_room(self, *, noise_std: float, sampling_rate: float, max_distance: float) -> BoolArray:
        """Return (members,) bool: the records that may take part in the next step for any norms.

        Taking only these, the choice needs no norm of the step it is made for. `admit` then refuses none of them. The
        others must be left out for good: tell `admit` that they measure max_distance.
        """
        rate = check_rate("sampling_rate", sampling_rate)
        max_cost = self._cost(check_positive("max_distance", max_distance), noise_std, rate)
        return ~self._excluded & (self._spent + max_cost <= self.spec.bound) & (not self._is_full)

    @property
    def _is_full(self) -> bool:
        """Whether delta has no room for the sampler's error of another step."""
        return 0 < self.spec.releases <= self._steps

    def epsilon(self) -> float:
        """The bound fixed in advance, or 0 before the first step."""
        return self.spec.limit_epsilon if self._steps else 0.0

    def delta_for(self, epsilon: float) -> float:
        """δ at another ε of the same filter: what every record's sum is kept below, read there. 0 before any step."""
        if self._steps == 0:
            return 0.0
        return self.spec.delta_at(check_nonnegative("epsilon", epsilon))

    def __repr__(self) -> str:
        # Neither sums nor exclusions: they are secret.
        return f"IndividualFilter({self.spec!r}, members={self.members}, steps={self._steps})"

    def certificate(self) -> Guarantee:
        """Return the certificate, the same for every reader and every path. It does not depend on a norm."""
        exact = f"; {NOISE_AS_EXACT}" if self.spec.takes_noise_as_exact else ""
        return Guarantee(
            epsilon=self.epsilon(),
            delta=self.spec.delta,
            level=self.spec.level,
            definition=Definition.INDIVIDUAL,
            relation=Relation.ADD_REMOVE,
            observer=self.spec.observer,
            assumption=f"nobody contributes after being excluded, and neither sums nor exclusions are shown{exact}",
            steps=self._steps,
            sampling_rate=self._rates,
            adversary="adaptive",
            **self.spec.reading,
        )

    def state(self) -> dict[str, Any]:
        """JSON-safe and secret: it holds every record's sum."""
        # States of earlier versions name no rule.
        rule = {} if isinstance(self.spec, FilterSpec) else {"rule": self.spec.rule}
        return (
            fields_to_json(self.spec)
            | rule
            | {
                "spent": self._spent.tolist(),
                "excluded": self._excluded.tolist(),
                "steps": self._steps,
                "rates": None if self._rates is None else list(self._rates),
            }
        )

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Self:
        """The filter whose `state` this was."""
        kind = _SPECS[check_choice("rule", state.get("rule", FilterSpec.rule), _SPECS)]
        spec = kind(**{field.name: state[field.name] for field in fields(kind)})
        # Of nobody yet, whom a hospital may have set aside for evaluation.
        spent = check_array("spent", state["spent"]) if len(state["spent"]) else np.zeros(0)
        out = cls(spec, members=max(1, spent.size))
        # No sum passes the bound: who would have passed it is excluded instead.
        if len(state["excluded"]) != spent.size or bool((spent > spec.bound).any()):
            raise InvalidArgument("state", "does not belong to one filter")
        out._spent, out._excluded = spent, np.array(state["excluded"], dtype=np.bool_)
        out._steps = check_count("steps", state["steps"], minimum=0)
        out._rates = None if state["rates"] is None else (state["rates"][0], state["rates"][1])
        return out

    def _measured_rows(self, measured: BoolArray | None) -> BoolArray:
        if measured is None:
            return np.ones(self.members, dtype=np.bool_)
        rows = np.asarray(measured)
        if rows.dtype != np.bool_ or rows.shape != (self.members,):
            raise InvalidArgument("measured", f"must be {self.members} booleans")
        return rows

    def _cost(self, distance: float, noise_std: float, rate: float) -> float:
        return float(self.spec.costs(distance, noise_std=noise_std, sampling_rate=rate)[0])
