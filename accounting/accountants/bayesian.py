"""The Bayesian accountant: what a run has cost a record (or client) drawn from the population.

It bounds log E_{x'} E e^{λL} by C(λ) and promises E_{x'} sup_S [P_{x'}(S) − e^ε Q(S)] ≤ δ in both directions
(Triastcyn & Faltings 2020, Theorem 2, with the conversion of Canonne, Kamath & Steinke 2020).

adversary="path"      the papers' claim, for queries that do not depend on what earlier rounds said about x'
adversary="adaptive"  C(λ) = ½ · ledger at order 2λ+1: with Q the law where outputs do not depend on x',
                      E_P e^{λL} = E_Q e^{(λ+1)L} ≤ (E_Q e^{(2λ+2)L − M})^{1/2} (E_Q e^{M})^{1/2} by Cauchy and Schwarz,
                      M the summed log-moments at 2λ+1: the first factor is at most 1, and in the second x' is
                      independent of the path, so that Hölder's inequality holds on every path
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from accounting.accountants.bayesian_spec import BayesianSpec, bayesian_guarantee, capped_by
from accounting.accountants.composition import Measurement, RunningComposition, Step, ceilings
from accounting.errors import InvalidArgument, LimitExceeded, ReservationClosed
from accounting.mechanisms.conversion import delta_from_moments, epsilon_from_moments, largest_moment
from accounting.mechanisms.divergence import Values
from accounting.plan.limits import MONOTONE
from accounting.units import Guarantee, Relation
from accounting.values import (
    FloatArray,
    array_from_json,
    array_to_json,
    check_array,
    check_count,
    check_instance,
    check_nonnegative,
    check_order,
    fields_to_json,
)


class BayesianAccountant:
    """Reserve a step at its worst case, settle it at what a sample of distances shows.

    >>> spec = BayesianSpec(orders=[4, 8, 16], delta=1e-5, estimator_failure_probability=1e-6, max_steps=100,
    ...                     composition="running", estimator="betting")
    >>> account = BayesianAccountant(spec)
    >>> for _ in range(100):
    ...     account.step([0.1, 0.2, 0.1, 0.3] * 100, noise_std=2.0, sampling_rate=0.1, max_distance=1.0)
    >>> round(account.epsilon(), 3)
    2.315
    """

    def __init__(self, spec: BayesianSpec) -> None:
        self.spec = check_instance("spec", BayesianSpec, spec)
        self._ledger = spec.open_ledger()
        self._classical = np.zeros(self.spec.rows.size)
        self._steps = 0
        self._rates: tuple[float, float] | None = None
        self._resolution: set[str] = set()
        self._pending: Reservation | None = None

    def __repr__(self) -> str:
        fixed = f"{self.spec.definition}, {self.spec.composition}, {self.spec.estimator}, {self.spec.adversary}"
        numbers = f"delta={self.spec.delta!r}, steps={self._steps}, epsilon={self.epsilon():.4g}"
        return f"BayesianAccountant({fixed}, {numbers})"

    # -- taking steps ------------------------------------------------------------------------------------------

    def step(
        self,
        distances: Values | None = None,
        *,
        noise_std: float,
        sampling_rate: float,
        max_distance: float | None = None,
        counts: Values | None = None,
        count_noise: float = 0.0,
        sample_size: int | None = None,
    ) -> None:
        """Charge one noised step.

        distances     (m,) distances of the sample, the same m records each step for running sums. With `counts` the
                      upper bin edges. None charges every record at max_distance
        noise_std     standard deviation of the noise on the scale of the distances
        max_distance  the clip norm. May be missing only for student-t with cap=False
        count_noise   standard deviation of the discrete Gaussian noise on each count. Then sample_size is required

        A sample that the estimator refuses is charged at max_distance. Without one EstimatorRefused is raised.
        Every other error leaves the accountant as it was.
        """
        self._check_free()
        step, measured = self._step(noise_std, sampling_rate, max_distance), None
        if distances is not None:
            measured = Measurement.of(distances, counts, count_noise, sample_size, max_distance=max_distance)
            self._check_measured(measured)
        elif max_distance is None:
            raise InvalidArgument("distances", "are required where max_distance is not given")
        # 0.0 is count_noise's default: it was not given.
        for name, value in (("counts", counts), ("sample_size", sample_size), ("count_noise", count_noise or None)):
            if measured is None and value is not None:
                raise InvalidArgument(name, "means nothing without distances")
        self._check_limit(step)
        self._charge(step, measured, reserved=False)

    def reserve(self, *, noise_std: float, sampling_rate: float, max_distance: float, steps: int = 1) -> Reservation:
        """Set aside the worst case of the next step(s). LimitExceeded or MaxStepsExceeded refuse it."""
        self._check_free()
        step = self._step(noise_std, sampling_rate, check_nonnegative("max_distance", max_distance))
        number = check_count("steps", steps)
        self._check_limit(step, number)
        self._ledger.check(number)
        self._pending = Reservation(self, step, number)
        return self._pending

    @property
    def pending(self) -> Reservation | None:
        """The open reservation, also after `restore`."""
        return self._pending

    def project(self, *, noise_std: float, sampling_rate: float, max_distance: float, steps: int = 1) -> float:
        """Return ε if the next `steps` steps all cost their worst case, without a change."""
        step = self._step(noise_std, sampling_rate, check_nonnegative("max_distance", max_distance))
        return self.epsilon_after((step, check_count("steps", steps)))

    def epsilon_after(self, *future: tuple[Step, int]) -> float:
        """Return ε if these kinds of steps, each so many times, cost their worst case, without a change."""
        return self._epsilon_of(self._worst_moments(*future))

    def close(self, reservation: Reservation, measured: Measurement | None, *, charge: bool) -> bool:
        """End the open reservation: charge it at what was measured or in full, or cancel it.

        Returns False when it was charged in full. ReservationClosed: it is not the open one. Raises before any change.
        """
        if self._pending is not reservation:
            raise ReservationClosed("this reservation is closed")
        if measured is not None:
            self._check_measured(measured)
        estimated = charge and self._charge(reservation.step, measured, reserved=True, steps=reservation.steps)
        self._pending = None
        return estimated

    def observe(self, log_values: Values, *, counts: Values | None = None, log_max: float, order: float) -> None:
        """Clients' own running sums G up to this step, at one conversion order (adaptive: taken at 2·order + 1).

        log_values  (m,) sums in nats, or with `counts` the upper bin edges. log_max bounds all of them, and is at least
                    what the steps charged here may have cost a record at this order

        Raises InvalidArgument, EstimatorRefused. The accountant is then as it was.
        """
        self._check_free()
        if not isinstance(self._ledger, RunningComposition):
            raise InvalidArgument("log_values", "belong to composition running")
        rows = self.spec.rows == check_order("order", order)
        if not rows.any():
            raise InvalidArgument("order", f"{order!r} is none of the orders of this account")
        values = check_array("log_values", log_values)
        weights = None if counts is None else check_array("counts", counts)
        self._ledger.observe(rows, values, weights, check_nonnegative("log_max", log_max))
        self._resolution.add("clients' own sums")

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        """Noised steps charged so far."""
        return self._steps

    @property
    def orders(self) -> FloatArray:
        """λ of the statement, shape (orders,)."""
        return np.array(self.spec.orders)

    def log_moments(self) -> FloatArray:
        """C(λ) in nats, shape (orders,): the present bound at every reported order."""
        return self._moments()[: len(self.spec.orders)]

    def filter_shares(self) -> FloatArray | None:
        """Return each record's running sum at the filter order over the most it can be, (records,). None: no sums."""
        state = self._ledger.state()
        if state.get("sums") is None:
            return None
        # The filter's row is the last one.
        return array_from_json(state["sums"])[-1] / array_from_json(state["ceiling"])[-1]

    def filter_moment(self) -> float:
        """C(λ*) with the whole failure probability."""
        if self.spec.filter_order is None:
            raise InvalidArgument("filter_order", "was not set")
        return float(self._moments()[-1])

    def epsilon(self) -> float:
        """ε spent: at filter_order where there is one, else the least over the orders. 0 before any charge."""
        return self._epsilon_of(self._moments())

    def delta_for(self, epsilon: float) -> float:
        """δ at a given ε, the estimates' failure probability included."""
        fixed = self.spec
        moments = self._moments()[fixed.enforced]
        beta = delta_from_moments(fixed.rows[fixed.enforced], moments, epsilon, conversion=fixed.conversion)[0]
        return 0.0 if self._steps == 0 else min(1.0, beta + fixed.estimator_failure_probability)

    def certificate(self, *, classical: Guarantee | None = None, limit_epsilon: float | None = None) -> Guarantee:
        """Return the certificate. `classical` of the same level, relation, observer and δ caps it.

        With a limit, running sums and adaptive accounts state the limit: that is what the filter keeps at every step
        and on every path. The ε spent on this path is no such promise. `limit_epsilon` is a limit at filter_order
        that the caller kept before every step, where this account itself enforced none.
        """
        fixed, order = self.spec, self.spec.filter_order
        if order is None:
            return self.report(classical=classical)
        if limit_epsilon is not None and fixed.limit_epsilon is None:
            fixed = replace(fixed, limit_epsilon=limit_epsilon)
        epsilon = self.epsilon()
        if fixed.limit_epsilon is not None and (fixed.composition == "running" or fixed.adversary == "adaptive"):
            epsilon = max(epsilon, fixed.limit_epsilon)
        return self._guarantee(fixed, epsilon, (order,), order, classical)

    def report(self, *, classical: Guarantee | None = None) -> Guarantee:
        """The least ε over all orders. Valid when the stop does not depend on the data."""
        fixed = self.spec
        epsilon, order = epsilon_from_moments(fixed.orders, self.log_moments(), fixed.beta, conversion=fixed.conversion)
        return self._guarantee(fixed, epsilon, tuple(fixed.orders), order, classical)

    def state(self) -> dict[str, Any]:
        """Return all state that changes, JSON-safe and exact. `restore` on an accountant of the same settings undoes
        it."""
        return {
            "settings": self.spec.to_dict(),
            "steps": self._steps,
            "rates": None if self._rates is None else list(self._rates),
            "classical": array_to_json(self._classical),
            "resolution": sorted(self._resolution),
            "ledger": self._ledger.state(),
            "pending": None if self._pending is None else self._pending.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Undo `state`. InvalidArgument: it belongs to other settings."""
        if state.get("settings") != self.spec.to_dict():
            raise InvalidArgument("state", "belongs to an accountant with other settings")
        classical = array_from_json(state["classical"])
        pending = None if state["pending"] is None else Reservation.restored(self, state["pending"])
        self._ledger.restore(state["ledger"])
        self._classical, self._steps = classical, int(state["steps"])
        self._rates = None if state["rates"] is None else (state["rates"][0], state["rates"][1])
        self._resolution, self._pending = set(state["resolution"]), pending

    # -- inside ------------------------------------------------------------------------------------------------

    def _step(self, noise_std: float, sampling_rate: float, max_distance: float | None) -> Step:
        fixed = self.spec
        bounded = fixed.cap or fixed.limit_epsilon is not None or fixed.estimator != "student-t"
        if max_distance is None and bounded:
            raise InvalidArgument("max_distance", "is required, except for student-t with cap=False and no limit")
        return Step(
            noise_std=noise_std,
            sampling_rate=sampling_rate,
            max_distance=max_distance,
            relation=fixed.relation,
            direction=fixed.direction,
        )

    def _check_measured(self, measured: Measurement) -> None:
        if self.spec.composition == "running" and measured.counts is not None:
            raise InvalidArgument("counts", "running sums need each record's own distance, see observe")
        if measured.count_noise > 0 and self.spec.estimator not in MONOTONE:
            raise InvalidArgument("count_noise", f"{self.spec.estimator} may fall when a count moves up")

    def _check_free(self) -> None:
        if self._pending is not None:
            raise ReservationClosed("a reservation is open: settle it, charge it in full or cancel it first")

    def _check_limit(self, step: Step, steps: int = 1) -> None:
        order, limit = self.spec.filter_order, self.spec.limit_epsilon
        if limit is None or order is None:
            return
        allowed_moment = largest_moment(order, limit, self.spec.beta, conversion=self.spec.conversion)
        # The filter's row is the last one.
        if float(self._worst_moments((step, steps))[-1]) > allowed_moment:
            raise LimitExceeded(f"the step might pass epsilon = {limit!r} at order {order!r}")

    def _charge(self, step: Step, measured: Measurement | None, *, reserved: bool, steps: int = 1) -> bool:
        # After a step without a clip norm nothing caps the moments any more.
        classical = np.full_like(self._classical, np.inf)
        if step.max_distance is not None:
            classical = self._classical + steps * step.ceiling(self.spec.rows)
        # All of them beforehand: a refusal half-way would leave some charged.
        self._ledger.check(steps)
        estimated = True
        for _ in range(steps):
            # The charge stands first, or `and` would leave it out.
            estimated = self._ledger.charge(step, measured, reserved=reserved, cap=self.spec.cap) and estimated
        self._classical = classical
        self._steps += steps
        low, high = self._rates or (step.sampling_rate, step.sampling_rate)
        self._rates = (min(low, step.sampling_rate), max(high, step.sampling_rate))
        if measured is not None and measured.counts is not None:
            noise = f" with noise {measured.count_noise!r} on the counts" if measured.count_noise > 0 else ""
            self._resolution.add(f"histogram of {measured.counts.size} bins rounded up{noise}")
        return estimated

    def _combine(self, rows: FloatArray, classical: FloatArray) -> FloatArray:
        moments = rows / 2 if self.spec.adversary == "adaptive" else rows
        return np.minimum(moments, classical) if self.spec.cap else moments

    def _moments(self) -> FloatArray:
        return self._combine(self._ledger.moments(), self._classical)

    def _worst_moments(self, *future: tuple[Step, int]) -> FloatArray:
        classical = self._classical + ceilings(self.spec.rows, future)
        return self._combine(self._ledger.worst(*future), classical)

    def _epsilon_of(self, moments: FloatArray) -> float:
        fixed = self.spec
        orders = fixed.rows[fixed.enforced]
        return epsilon_from_moments(orders, moments[fixed.enforced], fixed.beta, conversion=fixed.conversion)[0]

    def _guarantee(
        self, fixed: BayesianSpec, epsilon: float, orders: tuple[float, ...], order: float, classical: Guarantee | None
    ) -> Guarantee:
        resolution = "; ".join(sorted(self._resolution)) or "exact"
        guarantee = bayesian_guarantee(
            fixed, epsilon, orders, order, steps=self._steps, rates=self._rates, resolution=resolution
        )
        return guarantee if classical is None else capped_by(guarantee, classical)


# By identity: two reservations of equal steps are two.
@dataclass(frozen=True, eq=False)
class Reservation:
    """Used once: `settle` with what was measured, `charge_in_full` at the worst case, or `cancel`.

    steps  how many such steps are set aside

    Raises ReservationClosed when it is used again.

    >>> from accounting import BayesianAccountant, BayesianSpec
    >>> spec = BayesianSpec(orders=[4, 8], delta=1e-5, estimator_failure_probability=1e-6, max_steps=10,
    ...                     estimator="betting")
    >>> account = BayesianAccountant(spec)
    >>> reservation = account.reserve(noise_std=4.0, sampling_rate=0.1, max_distance=1.0)
    >>> worst = reservation.epsilon()
    >>> reservation.settle([0.1, 0.2, 0.4] * 50)
    True
    >>> account.epsilon() <= worst
    True
    """

    accountant: BayesianAccountant
    step: Step
    steps: int

    def epsilon(self) -> float:
        """ε of the accountant if this reservation is charged in full."""
        return self.accountant.epsilon_after((self.step, self.steps))

    def settle(
        self,
        distances: Values,
        *,
        counts: Values | None = None,
        count_noise: float = 0.0,
        sample_size: int | None = None,
    ) -> bool:
        """Charge what the sample shows, never more than was reserved. Arguments as in `BayesianAccountant.step`.

        Returns False when the estimator refused, and all was charged. On bad input the reservation stays open.
        """
        if self.steps != 1:
            raise InvalidArgument("steps", "a reservation of several steps is charged in full, or settled by observe")
        top = self.step.max_distance
        measured = Measurement.of(distances, counts, count_noise, sample_size, max_distance=top)
        return self.accountant.close(self, measured, charge=True)

    def charge_in_full(self) -> None:
        """Charge the whole reservation."""
        self.accountant.close(self, None, charge=True)

    def cancel(self) -> None:
        """Cancel the charge. This is right only when no part of the step was seen."""
        self.accountant.close(self, None, charge=False)

    def state(self) -> dict[str, Any]:
        """JSON-safe."""
        return {"step": fields_to_json(self.step), "steps": self.steps}

    @classmethod
    def restored(cls, accountant: BayesianAccountant, state: dict[str, Any]) -> Reservation:
        """The reservation whose `state` this was, on the accountant restored with it."""
        step = Step(**state["step"] | {"relation": Relation(state["step"]["relation"])})
        return cls(accountant, step, int(state["steps"]))
