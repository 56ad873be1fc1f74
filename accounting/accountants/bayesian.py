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

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accounting.accountants.bayesian_settings import Adversary, BayesianSpec, Composition, Sample, plain_numbers
from accounting.accountants.costs import Measurement, Step
from accounting.accountants.reservation import Desk, Reservation
from accounting.accountants.running import RunningComposition
from accounting.accountants.statement import bayesian_guarantee, capped_by
from accounting.encoding import array_from_json, array_to_json
from accounting.errors import InvalidArgument, LimitExceeded, ReservationClosed
from accounting.estimation.upper_mean import MONOTONE, Estimator
from accounting.mechanisms.conversion import Conversion, delta_from_moments, epsilon_from_moments, largest_moment
from accounting.mechanisms.divergence import Direction, Values
from accounting.units import (
    FloatArray,
    Guarantee,
    Level,
    Observer,
    Relation,
    check_array,
    check_count,
    check_nonnegative,
    check_positive,
)


class BayesianAccountant:
    """Reserve a step at its worst case, settle it at what a sample of distances shows.

    orders         conversion orders λ > 0
    delta          of the certificate; `estimator_failure_probability`, 0 < γ < delta, is its part that covers the
                   estimates
    max_steps      the most noised steps; None: open-ended weights 1/(t(t+1)) (holder), no limit (running)
    weights        Hölder weights fixed beforehand, instead of 1/max_steps
    checkpoints    running: steps at which estimates are read, or how many of them; None: every step, failure/(t(t+1))
    filter_order   λ* fixed before round 1: `epsilon` is read there alone, with the whole failure probability
    limit_epsilon  steps that might pass it at λ* are refused
    cap            the log-moment never exceeds the classical one, Σ φ(λ, max_distance)
    """

    def __init__(
        self,
        *,
        orders: Sequence[float] | FloatArray,
        delta: float,
        estimator_failure_probability: float,
        max_steps: int | None = None,
        composition: Composition = "holder",
        estimator: Estimator = "student-t",
        adversary: Adversary = "path",
        conversion: Conversion = "improved",
        sample: Sample = "members",
        filter_order: float | None = None,
        limit_epsilon: float | None = None,
        checkpoints: int | Sequence[int] | None = None,
        cap: bool = True,
        weights: Sequence[float] | None = None,
        level: Level = Level.INSTANCE,
        observer: Observer = Observer.RELEASES,
        relation: Relation = Relation.ADD_REMOVE,
        direction: Direction = "forward",
    ) -> None:
        self._settings = BayesianSpec(
            orders=plain_numbers(orders, "orders") or (),
            delta=delta,
            estimator_failure_probability=estimator_failure_probability,
            max_steps=max_steps,
            composition=composition,
            estimator=estimator,
            adversary=adversary,
            conversion=conversion,
            sample=sample,
            filter_order=filter_order,
            limit_epsilon=limit_epsilon,
            checkpoints=tuple(checkpoints) if isinstance(checkpoints, Sequence) else checkpoints,
            cap=bool(cap),
            weights=plain_numbers(weights, "weights"),
            level=Level(level),
            observer=Observer(observer),
            relation=Relation(relation),
            direction=direction,
        )
        self._ledger = self._settings.open_ledger()
        self._classical = np.zeros(self._settings.rows.size)
        self._steps = 0
        self._rates: tuple[float, float] | None = None
        self._resolution: set[str] = set()
        self._pending: Reservation | None = None

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

        distances     (m,) distances of the sample, the same m records each step for running sums; with `counts` the
                      upper bin edges; None charges every record at max_distance
        noise_std     standard deviation of the noise on the scale of the distances
        max_distance  the clip norm; may be missing only for student-t with cap=False
        count_noise   standard deviation of the discrete Gaussian noise on each count; then sample_size is required

        A sample that the estimator refuses is charged at max_distance; without one EstimatorRefused is raised.
        Every other error leaves the accountant as it was.
        """
        self._check_free()
        step = self._step(noise_std, sampling_rate, max_distance)
        measured = self._measurement(distances, counts, count_noise, sample_size, step)
        if measured is None and max_distance is None:
            raise InvalidArgument("distances", "are required where max_distance is not given")
        self._check_limit(step)
        self._charge(step, measured, reserved=False)

    def reserve(self, *, noise_std: float, sampling_rate: float, max_distance: float, steps: int = 1) -> Reservation:
        """Set aside the worst case of the next step(s); LimitExceeded or MaxStepsExceeded refuse it."""
        self._check_free()
        step = self._step(noise_std, sampling_rate, check_nonnegative("max_distance", max_distance))
        number = check_count("steps", steps)
        self._check_limit(step, number)
        self._ledger.check(number)
        self._pending = Reservation(self._desk(), step, number)
        return self._pending

    @property
    def pending(self) -> Reservation | None:
        """The open reservation, also after `restore`."""
        return self._pending

    def project(self, *, noise_std: float, sampling_rate: float, max_distance: float, steps: int = 1) -> float:
        """ε if the next `steps` steps all cost their worst case; nothing changes."""
        step = self._step(noise_std, sampling_rate, check_nonnegative("max_distance", max_distance))
        return self._projected(step, check_count("steps", steps))

    def observe(self, log_values: Values, *, counts: Values | None = None, log_max: float, order: float) -> None:
        """Clients' own running sums G up to this step, at one conversion order (adaptive: taken at 2·order + 1).

        log_values  (m,) sums, or with `counts` the upper bin edges; log_max bounds all of them
        """
        self._check_free()
        if not isinstance(self._ledger, RunningComposition):
            raise InvalidArgument("log_values", "belong to composition running")
        rows = self._settings.rows == check_positive("order", order)
        if not rows.any():
            raise InvalidArgument("order", f"{order!r} is none of the orders of this account")
        values = check_array("log_values", log_values)
        weights = None if counts is None else check_array("counts", counts)
        self._ledger.observe(rows, values, weights, check_nonnegative("log_max", log_max))
        self._resolution.add("clients' own sums")

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def steps(self) -> int:
        return self._steps

    @property
    def orders(self) -> FloatArray:
        return np.array(self._settings.orders)

    def log_moments(self) -> FloatArray:
        """C(λ), shape (orders,): the present bound at every reported order."""
        return self._moments()[: len(self._settings.orders)]

    def filter_moment(self) -> float:
        """C(λ*) with the whole failure probability."""
        if self._settings.filter_order is None:
            raise InvalidArgument("filter_order", "was not set")
        return float(self._moments()[-1])

    def epsilon(self) -> float:
        """ε spent: at filter_order where there is one, else the least over the orders. 0 before any charge."""
        return self._epsilon_of(self._moments())

    def delta_for(self, epsilon: float) -> float:
        """δ at a given ε, the estimates' failure probability included."""
        fixed = self._settings
        moments = self._moments()[fixed.enforced]
        beta = delta_from_moments(fixed.rows[fixed.enforced], moments, epsilon, conversion=fixed.conversion)[0]
        return 0.0 if self._steps == 0 else min(1.0, beta + fixed.estimator_failure_probability)

    def certificate(self, *, classical: Guarantee | None = None, limit_epsilon: float | None = None) -> Guarantee:
        """What is promised. `classical` of the same level, relation, observer and δ caps it.

        With a limit, running sums and adaptive accounts state the limit: that is what the filter keeps at every step
        and on every path; what is spent on this path is no such promise. `limit_epsilon` is a limit at filter_order
        that the caller kept before every step, where this account itself enforced none.
        """
        fixed, order = self._settings, self._settings.filter_order
        if order is None:
            return self.report(classical=classical)
        if limit_epsilon is not None and fixed.limit_epsilon is None:
            fixed = replace(fixed, limit_epsilon=limit_epsilon)
        epsilon = self.epsilon()
        if fixed.limit_epsilon is not None and (fixed.composition == "running" or fixed.adversary == "adaptive"):
            epsilon = max(epsilon, fixed.limit_epsilon)
        return self._guarantee(fixed, epsilon, (order,), order, classical)

    def report(self, *, classical: Guarantee | None = None) -> Guarantee:
        """The least ε over all orders; valid when the stop does not depend on the data."""
        fixed = self._settings
        epsilon, order = epsilon_from_moments(fixed.orders, self.log_moments(), fixed.beta, conversion=fixed.conversion)
        return self._guarantee(fixed, epsilon, fixed.orders, order, classical)

    def state(self) -> dict[str, Any]:
        """Everything that changes, JSON-safe and exact; `restore` on an accountant of the same settings undoes it."""
        return {
            "settings": self._settings.to_dict(),
            "steps": self._steps,
            "rates": None if self._rates is None else list(self._rates),
            "classical": array_to_json(self._classical),
            "resolution": sorted(self._resolution),
            "ledger": self._ledger.state(),
            "pending": None if self._pending is None else self._pending.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("settings") != self._settings.to_dict():
            raise InvalidArgument("state", "belongs to an accountant with other settings")
        classical = array_from_json(state["classical"])
        pending = None if state["pending"] is None else Reservation.restored(self._desk(), state["pending"])
        self._ledger.restore(state["ledger"])
        self._classical, self._steps = classical, int(state["steps"])
        self._rates = None if state["rates"] is None else (state["rates"][0], state["rates"][1])
        self._resolution, self._pending = set(state["resolution"]), pending

    # -- inside ------------------------------------------------------------------------------------------------

    def _step(self, noise_std: float, sampling_rate: float, max_distance: float | None) -> Step:
        fixed = self._settings
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

    def _measurement(
        self, distances: Values | None, counts: Values | None, count_noise: float, sample_size: int | None, step: Step
    ) -> Measurement | None:
        if distances is None:
            for name, value in (("counts", counts), ("sample_size", sample_size), ("count_noise", count_noise or None)):
                if value is not None:
                    raise InvalidArgument(name, "means nothing without distances")
            return None
        if self._settings.composition == "running" and counts is not None:
            raise InvalidArgument("counts", "running sums need each record's own distance; see observe")
        found = Measurement.of(distances, counts, count_noise, sample_size, step.max_distance)
        if found.count_noise > 0 and self._settings.estimator not in MONOTONE:
            raise InvalidArgument("count_noise", f"{self._settings.estimator} may fall when a count moves up")
        return found

    def _desk(self) -> Desk:
        return Desk(self._open_reservation, self._release, self._projected, self._measurement, self._charge)

    def _open_reservation(self) -> Reservation | None:
        return self._pending

    def _release(self) -> None:
        self._pending = None

    def _check_free(self) -> None:
        if self._pending is not None:
            raise ReservationClosed("a reservation is open: settle it, charge it in full or cancel it first")

    def _check_limit(self, step: Step, steps: int = 1) -> None:
        order, limit = self._settings.filter_order, self._settings.limit_epsilon
        if limit is None or order is None:
            return
        allowed = largest_moment(order, limit, self._settings.beta, conversion=self._settings.conversion)
        if float(self._ahead(step, steps)[-1]) > allowed:
            raise LimitExceeded(f"the step might pass epsilon = {limit!r} at order {order!r}")

    def _charge(self, step: Step, measured: Measurement | None, *, reserved: bool, steps: int = 1) -> bool:
        classical = np.full_like(self._classical, np.inf)
        if step.max_distance is not None:
            classical = self._classical + steps * step.ceiling(self._settings.rows)
        self._ledger.check(steps)
        estimated = True
        for _ in range(steps):
            estimated = self._ledger.charge(step, measured, reserved=reserved, cap=self._settings.cap) and estimated
        self._classical = classical
        self._steps += steps
        low, high = self._rates or (step.sampling_rate, step.sampling_rate)
        self._rates = (min(low, step.sampling_rate), max(high, step.sampling_rate))
        if measured is not None and measured.counts is not None:
            noise = f" with noise {measured.count_noise!r} on the counts" if measured.count_noise > 0 else ""
            self._resolution.add(f"histogram of {measured.counts.size} bins rounded up{noise}")
        return estimated

    def _combine(self, rows: FloatArray, classical: FloatArray) -> FloatArray:
        moments = rows / 2 if self._settings.adversary == "adaptive" else rows
        return np.minimum(moments, classical) if self._settings.cap else moments

    def _moments(self) -> FloatArray:
        return self._combine(self._ledger.moments(), self._classical)

    def _ahead(self, step: Step, steps: int) -> FloatArray:
        classical = self._classical + steps * step.ceiling(self._settings.rows)
        return self._combine(self._ledger.worst(step, steps), classical)

    def _projected(self, step: Step, steps: int) -> float:
        return self._epsilon_of(self._ahead(step, steps))

    def _epsilon_of(self, moments: FloatArray) -> float:
        fixed = self._settings
        orders = fixed.rows[fixed.enforced]
        return epsilon_from_moments(orders, moments[fixed.enforced], fixed.beta, conversion=fixed.conversion)[0]

    def _guarantee(
        self,
        fixed: BayesianSpec,
        epsilon: float,
        orders: tuple[float, ...],
        order: float,
        classical: Guarantee | None,
    ) -> Guarantee:
        resolution = "; ".join(sorted(self._resolution)) or "exact"
        found = bayesian_guarantee(
            fixed, epsilon, orders, order, steps=self._steps, rates=self._rates, resolution=resolution
        )
        return found if classical is None else capped_by(found, classical)
