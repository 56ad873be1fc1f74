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
from typing import Any, Literal

import numpy as np

from accounting.conversion import Conversion, delta_from_moments, epsilon_from_moments, largest_moment
from accounting.costs import Measurement, Step
from accounting.divergence import Direction, Values
from accounting.encoding import array_from_json, array_to_json
from accounting.errors import InvalidArgument, LimitExceeded, ReservationClosed
from accounting.estimation import DISTRIBUTION_FREE, ESTIMATORS, Estimator
from accounting.holder import HolderLedger, Weights
from accounting.reservation import Reservation
from accounting.running import RunningLedger, declared_checkpoints
from accounting.statement import assumption_of
from accounting.units import (
    FloatArray,
    Guarantee,
    Level,
    Notion,
    Observer,
    Relation,
    check_array,
    check_choice,
    check_count,
    check_delta,
    check_nonnegative,
    check_orders,
    check_positive,
)


class BayesianAccountant:
    """Reserve a step at its worst case, settle it at what a sample of distances shows.

    orders         conversion orders λ > 0
    delta          of the certificate; `failure` is the part of it that covers the estimates, 0 < failure < delta
    horizon        most noised steps; None: open-ended weights 1/(t(t+1)) (holder), no limit (running)
    weights        Hölder weights fixed beforehand, instead of 1/horizon
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
        failure: float,
        horizon: int | None = None,
        composition: Literal["holder", "running"] = "holder",
        estimator: Estimator = "student-t",
        adversary: Literal["path", "adaptive"] = "path",
        conversion: Conversion = "improved",
        sample: Literal["members", "held-out", "public"] = "members",
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
        self._orders = check_orders(orders)
        self._delta = check_delta(delta)
        self._failure = check_delta(failure, "failure")
        if self._failure >= self._delta:
            raise InvalidArgument("failure", f"must be below delta = {delta!r}, of which it is a part")
        self._horizon = None if horizon is None else check_count("horizon", horizon)
        check_choice("composition", composition, ("holder", "running"))
        check_choice("estimator", estimator, ESTIMATORS)
        check_choice("adversary", adversary, ("path", "adaptive"))
        check_choice("conversion", conversion, ("improved", "chernoff"))
        check_choice("sample", sample, ("members", "held-out", "public"))
        self._filter = None if filter_order is None else check_positive("filter_order", filter_order)
        self._limit = None if limit_epsilon is None else check_positive("limit_epsilon", limit_epsilon)
        if self._limit is not None and self._filter is None:
            raise InvalidArgument("limit_epsilon", "is enforced at a filter_order fixed beforehand")
        if composition == "running" and weights is not None:
            raise InvalidArgument("weights", "belong to composition holder")
        if composition == "holder" and checkpoints is not None:
            raise InvalidArgument("checkpoints", "belong to composition running")
        self._composition, self._estimator, self._cap = composition, estimator, bool(cap)
        self._adversary: Literal["path", "adaptive"] = adversary
        self._conversion: Conversion = conversion
        self._sample: Literal["members", "held-out", "public"] = sample
        self._level, self._observer, self._relation = Level(level), Observer(observer), Relation(relation)
        self._direction: Direction = direction
        # One row per reported order, sharing the failure probability, and one for the filter with all of it.
        filters = [] if self._filter is None else [self._filter]
        self._rows = np.concatenate([self._orders, filters])
        shares = np.array([self._failure / self._orders.size] * self._orders.size + [self._failure] * len(filters))
        self._ledger_orders = 2 * self._rows + 1 if adversary == "adaptive" else self._rows
        self._ledger: HolderLedger | RunningLedger
        if composition == "holder":
            horizon_weights = Weights(self._horizon, weights)
            self._ledger = HolderLedger(self._ledger_orders, shares, horizon_weights, estimator, failure=self._failure)
        else:
            once = np.arange(self._rows.size) >= self._orders.size
            points = declared_checkpoints(checkpoints, self._horizon)
            self._ledger = RunningLedger(
                self._ledger_orders, shares, once, estimator, horizon=self._horizon, checkpoints=points
            )
        self._settings: dict[str, Any] = {
            "orders": self._orders.tolist(),
            "delta": self._delta,
            "failure": self._failure,
            "horizon": self._horizon,
            "composition": composition,
            "estimator": estimator,
            "adversary": adversary,
            "filter_order": self._filter,
            "checkpoints": list(checkpoints) if isinstance(checkpoints, Sequence) else checkpoints,
            "weights": None if weights is None else [float(w) for w in weights],
            "cap": self._cap,
            "relation": str(self._relation),
            "direction": direction,
        }
        self._classical = np.zeros(self._rows.size)
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
        self._charge(step, measured, bounded=self._cap)

    def reserve(self, *, noise_std: float, sampling_rate: float, max_distance: float, steps: int = 1) -> Reservation:
        """Set aside the worst case of the next step(s); LimitExceeded or HorizonExceeded refuse it."""
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
        """ε if the next `steps` steps all cost their worst case; nothing changes."""
        step = self._step(noise_std, sampling_rate, check_nonnegative("max_distance", max_distance))
        return self._epsilon_of(self._ahead(step, check_count("steps", steps)))

    def observe(self, log_values: Values, *, counts: Values | None = None, log_max: float, order: float) -> None:
        """Clients' own running sums G up to this step, at one conversion order (adaptive: taken at 2·order + 1).

        log_values  (m,) sums, or with `counts` the upper bin edges; log_max bounds all of them
        """
        self._check_free()
        if not isinstance(self._ledger, RunningLedger):
            raise InvalidArgument("log_values", "belong to composition running")
        rows = self._rows == check_positive("order", order)
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
        return self._orders.copy()

    def log_moments(self) -> FloatArray:
        """C(λ), shape (orders,): the present bound at every reported order."""
        return self._moments()[: self._orders.size]

    def filter_moment(self) -> float:
        """C(λ*) with the whole failure probability."""
        if self._filter is None:
            raise InvalidArgument("filter_order", "was not set")
        return float(self._moments()[-1])

    def epsilon(self) -> float:
        """ε spent: at filter_order where there is one, else the least over the orders. 0 before any charge."""
        return self._epsilon_of(self._moments())

    def delta_for(self, epsilon: float) -> float:
        """δ at a given ε, the estimates' failure probability included."""
        rows = slice(None, self._orders.size) if self._filter is None else slice(self._orders.size, None)
        moments = self._moments()[rows]
        beta = delta_from_moments(self._rows[rows], moments, epsilon, conversion=self._conversion)[0]
        return 0.0 if self._steps == 0 else min(1.0, beta + self._failure)

    def certificate(self, *, classical: Guarantee | None = None) -> Guarantee:
        """What is promised. `classical` of the same level, relation, observer and δ caps it.

        With running sums and a limit it states the limit: the filter keeps that, its running value is not simultaneous.
        """
        if self._filter is None:
            return self.report(classical=classical)
        epsilon = self.epsilon()
        if self._limit is not None and self._composition == "running":
            epsilon = self._limit
        return self._guarantee(epsilon, (self._filter,), self._filter, classical)

    def report(self, *, classical: Guarantee | None = None) -> Guarantee:
        """The least ε over all orders; valid when the stop does not depend on the data."""
        moments = self.log_moments()
        epsilon, order = epsilon_from_moments(self._orders, moments, self._beta, conversion=self._conversion)
        return self._guarantee(epsilon, tuple(self._orders.tolist()), order, classical)

    def state(self) -> dict[str, Any]:
        """Everything that changes, JSON-safe and exact; `restore` on an accountant of the same settings undoes it."""
        return {
            "settings": self._settings,
            "steps": self._steps,
            "rates": None if self._rates is None else list(self._rates),
            "classical": array_to_json(self._classical),
            "resolution": sorted(self._resolution),
            "ledger": self._ledger.state(),
            "pending": None if self._pending is None else self._pending.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("settings") != self._settings:
            raise InvalidArgument("state", "belongs to an accountant with other settings")
        classical = array_from_json(state["classical"])
        pending = None if state["pending"] is None else Reservation.restored(self, state["pending"])
        self._ledger.restore(state["ledger"])
        self._classical, self._steps = classical, int(state["steps"])
        self._rates = None if state["rates"] is None else (state["rates"][0], state["rates"][1])
        self._resolution, self._pending = set(state["resolution"]), pending

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _beta(self) -> float:
        return self._delta - self._failure

    def _step(self, noise_std: float, sampling_rate: float, max_distance: float | None) -> Step:
        if max_distance is None and (self._estimator != "student-t" or self._cap or self._limit is not None):
            raise InvalidArgument("max_distance", "is required, except for student-t with cap=False and no limit")
        return Step(
            noise_std=noise_std,
            sampling_rate=sampling_rate,
            max_distance=max_distance,
            relation=self._relation,
            direction=self._direction,
        )

    def _measurement(
        self, distances: Values | None, counts: Values | None, count_noise: float, sample_size: int | None, step: Step
    ) -> Measurement | None:
        if distances is None:
            for name, value in (("counts", counts), ("sample_size", sample_size), ("count_noise", count_noise or None)):
                if value is not None:
                    raise InvalidArgument(name, "means nothing without distances")
            return None
        if self._composition == "running" and counts is not None:
            raise InvalidArgument("counts", "running sums need each record's own distance; see observe")
        found = Measurement.of(distances, counts, count_noise, sample_size, step.max_distance)
        if found.count_noise > 0 and self._estimator not in ("betting", "band"):
            raise InvalidArgument("count_noise", f"{self._estimator} may fall when a count moves up: betting or band")
        return found

    def _check_free(self) -> None:
        if self._pending is not None:
            raise ReservationClosed("a reservation is open: settle it, let it stand or void it first")

    def _check_limit(self, step: Step, steps: int = 1) -> None:
        if self._limit is None or self._filter is None:
            return
        allowed = largest_moment(self._filter, self._limit, self._beta, conversion=self._conversion)
        if float(self._ahead(step, steps)[-1]) > allowed:
            raise LimitExceeded(f"the step might pass epsilon = {self._limit!r} at order {self._filter!r}")

    def _charge(self, step: Step, measured: Measurement | None, *, bounded: bool, steps: int = 1) -> bool:
        if step.max_distance is None:
            classical = np.full_like(self._classical, np.inf)
        else:
            classical = self._classical + steps * step.ceiling(self._rows)
        self._ledger.check(steps)
        estimated = True
        for _ in range(steps):
            estimated = self._ledger.charge(step, measured, bounded=bounded) and estimated
        self._classical = classical
        self._steps += steps
        low, high = self._rates or (step.sampling_rate, step.sampling_rate)
        self._rates = (min(low, step.sampling_rate), max(high, step.sampling_rate))
        if measured is not None and measured.counts is not None:
            noise = f" with noise {measured.count_noise!r} on the counts" if measured.count_noise > 0 else ""
            self._resolution.add(f"histogram of {measured.counts.size} bins rounded up{noise}")
        return estimated

    def _combine(self, rows: FloatArray, classical: FloatArray) -> FloatArray:
        moments = rows / 2 if self._adversary == "adaptive" else rows
        return np.minimum(moments, classical) if self._cap else moments

    def _moments(self) -> FloatArray:
        return self._combine(self._ledger.moments(), self._classical)

    def _ahead(self, step: Step, steps: int) -> FloatArray:
        return self._combine(self._ledger.worst(step, steps), self._classical + steps * step.ceiling(self._rows))

    def _epsilon_of(self, moments: FloatArray) -> float:
        rows = slice(None, self._orders.size) if self._filter is None else slice(self._orders.size, None)
        return epsilon_from_moments(self._rows[rows], moments[rows], self._beta, conversion=self._conversion)[0]

    def _guarantee(
        self, epsilon: float, orders: tuple[float, ...], order: float, classical: Guarantee | None
    ) -> Guarantee:
        certified = (
            self._sample == "held-out" and self._adversary == "adaptive" and self._estimator in DISTRIBUTION_FREE
        )
        capped = False
        if classical is not None:
            self._check_same_claim(classical)
            capped, epsilon = classical.epsilon < epsilon, min(epsilon, classical.epsilon)
        return Guarantee(
            epsilon=epsilon,
            delta=self._delta,
            level=self._level,
            notion=Notion.CERTIFIED if certified else Notion.BAYESIAN,
            relation=self._relation,
            observer=self._observer,
            assumption=assumption_of(self._estimator, self._sample, self._adversary, self._direction),
            steps=self._steps,
            orders=orders,
            order=order,
            sampling_rate=self._rates,
            horizon=self._horizon,
            estimator=self._estimator,
            composition=self._composition,
            beta=self._beta,
            gamma=self._failure,
            adversary=self._adversary,
            sample=self._sample,
            conversion=self._conversion,
            resolution="; ".join(sorted(self._resolution)) or "exact",
            capped=capped,
        )

    def _check_same_claim(self, classical: Guarantee) -> None:
        for name in ("level", "relation", "observer", "delta"):
            if getattr(classical, name) != getattr(self, f"_{name}"):
                raise InvalidArgument("classical", f"has another {name} than this account")
        if classical.notion is not Notion.CLASSICAL:
            raise InvalidArgument("classical", f"is a guarantee of notion {classical.notion}")
