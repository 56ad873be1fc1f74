"""The Bayesian limit at instance level: the largest of the clients' own cumulative bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from accounting.accountants.bayesian_spec import bayesian_guarantee
from accounting.budget.accounts.base import LimitAccount, growth_from_json, growth_to_json, read_at_the_best_order
from accounting.budget.accounts.charged import ChargedQueries
from accounting.budget.accounts.losses import squares_within
from accounting.errors import InvalidArgument
from accounting.estimation.histograms import IntArray, release_charge
from accounting.estimation.upper_mean import DISTRIBUTION_FREE, upper_mean
from accounting.mechanisms.conversion import epsilon_from_moments
from accounting.mechanisms.divergence import log_moment
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.queries import QueryCost
from accounting.plan.report import CumulativeMoments, RoundReport, moments_in
from accounting.units import Definition, Guarantee, Level, Relation
from accounting.values import FloatArray

_RESTS_ON = {
    "student-t": "model-based: e to the log-moment is normal over the population",
    "members": "distribution-free: the members' records are a random sample of their population",
    "held-out": "distribution-free: the held-out accounting samples, drawn before round 1 and never trained on, are "
    "random samples of their populations",
}


_AS_IN_PAPERS = (
    "as in the papers: who takes part is secret and independent, sizes are equal, and the noise of the sum does not "
    "depend on who takes part; none of it holds against the coordinator or the peers"
)


def path_allowance(plan: Plan, level: Level) -> float | None:
    """The most Σ (Δ/s)² that queries may have on a path. None: there is no such number, as against an adaptive
    adversary."""
    queries, classical = plan.queries, plan.limit(level, Definition.CLASSICAL)
    if queries is None or classical is None or plan.bayesian is None or plan.bayesian.adversary == "adaptive":
        return None
    if queries.share is None:
        return queries.allowance
    return queries.share * squares_within(classical.epsilon, classical.delta)


class CumulativeLimit(LimitAccount):
    """Bayesian, instance level: the largest of the clients' own cumulative log-moment bounds.

    After a round the bound U(λ) is the maximum of the reports, and of what it was before unless every client reported.
    It never passes what it was before plus the round's worst case, because every client's sum grows by at most that.
    So settling stays below the reservation by construction. Under disclosure `at-end` the filter counts worst cases.
    The reports are shown at the end.
    """

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        # Row 0 is the filter order, the rest the orders of the statement.
        self._growth, self._cap = self._worst_step()
        self._release_growth, self._release_cap = self._release()
        self._reported: FloatArray = np.zeros_like(self._cap)
        summed = plan.rules.sums_costs_as_in_papers
        self._papers: FloatArray | None = np.zeros(len(self.bayesian.orders)) if summed else None
        self._last_growth = math.inf

    @property
    def enforced_by(self) -> str:
        return f"Bayesian moment at order {self.bayesian.filter_order:g}"

    def epsilon(self) -> float:
        return self._read(self._enforced(), self.rounds, self.queries)

    def epsilon_after_worst_round(self, *, publishes: bool, stage: int = 0) -> float:
        after = self._at_worst(self.rounds + 1, self.published + publishes)
        if self.plan.disclosure != "at-end":
            after = self._reserved(publishes)
        return self._read(float(after[0]), self.rounds + 1, self.queries)

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        return self._read(float(self._at_worst(rounds, published)[0]), rounds, self.queries)

    def epsilon_after_query(self, cost: QueryCost) -> float:
        after, allowance = self.queries.plus(cost), self._allowance
        precision = self._unscheduled(after, self.rounds).precision("all", "evaluated")
        # Written so that NaN is beyond it.
        if allowance is not None and not precision <= allowance:
            return math.inf
        return self._read(self._enforced(), self.rounds, after)

    def epsilon_of_evaluations(self, cost: QueryCost, count: int) -> float:
        # With so many rounds that all of them are scheduled. Nobody who is set aside takes part in one.
        return self._read(0.0, self.plan.rounds, ChargedQueries().plus(cost, count))

    def charge_query(self, cost: QueryCost) -> None:
        self.queries = self.queries.plus(cost)

    def charge(self, report: RoundReport | None, *, publishes: bool, stage: int = 0) -> None:
        reported, reserved, before = moments_in(report), self._reserved(publishes), self._reported
        settled = reserved
        if reported is not None and len(reported.moments) == len(self.bayesian.orders):
            # Whoever does not report may still hold the largest bound.
            floor = np.zeros_like(before) if reported.complete else before
            settled = np.minimum(np.maximum(floor, [reported.filter, *reported.moments]), reserved)
        self._papers = self._as_in_papers(reported)
        self._reported, self.rounds = settled, self.rounds + 1
        self.published += publishes
        # A complete report may lower the bound.
        self._last_growth = max(0.0, float(settled[0] - before[0]))

    @property
    def failure(self) -> float:
        """Failure probability of the estimates of this limit."""
        return self._failure

    def epsilon_of_shares(
        self, edges: Sequence[float], counts: IntArray, failure: float, *, unmeasured: int, beyond: int = 0
    ) -> float:
        """Return ε at the filter order, of a patient drawn from a sample of losses. Guaranteed for any distribution.

        Args:
            edges: (bins,) upper ends of the bins of a patient's loss, as a share of the most it could be.
            counts: (bins,) how many patients lie in each, noise on counts already allowed for.
            failure: probability over drawing the sample with which the bound may fail.
            unmeasured: rounds that the losses do not count. Each counts at its worst for every patient.
            beyond: how many rounds at most the losses are shares of besides, which are charged to nobody here.
        """
        values, max_loss = self._losses_of_shares(edges, unmeasured, beyond)
        moment = upper_mean(values, failure, method="betting", log_max=max_loss, counts=counts.astype(np.float64))
        return self._epsilon_of_sums(moment)

    def estimate_of_shares(
        self, edges: Sequence[float], mean: Callable[[FloatArray], float], *, unmeasured: int, beyond: int = 0
    ) -> float:
        """Return ε at the filter order for a mean of e^loss that was estimated: no guarantee.

        Args:
            edges: (bins,) one value of each bin of a patient's loss, as a share of the most it could be.
            mean: from (bins,) e^(loss - max_loss), within [0, 1], to their mean over patients.
            unmeasured, beyond: as `epsilon_of_shares`.
        """
        values, max_loss = self._losses_of_shares(edges, unmeasured, beyond)
        estimate = mean(np.exp(values - max_loss))
        # Nobody who is trained on loses nothing: the part of ε that the order fixes is always there.
        min_sum = math.ulp(0.0) if self.rounds else 0.0
        return self._epsilon_of_sums(max(max_loss + math.log(estimate), min_sum) if estimate > 0 else min_sum)

    def _losses_of_shares(self, edges: Sequence[float], unmeasured: int, beyond: int) -> tuple[FloatArray, float]:
        """Return the running sums that these shares are of, and the most that such a sum can be, in nats."""
        step = self._halves * self.mechanism.steps_per_round * float(self._growth[0]) * (1 + 1e-12)
        max_loss, later = step * self.rounds, step * min(unmeasured, self.rounds)
        return np.minimum(np.asarray(edges) * (max_loss - later + step * beyond) + later, max_loss), max_loss

    def _epsilon_of_sums(self, moment: float) -> float:
        worst = float(self._at_worst(self.rounds, self.published)[0])
        return self._read(min(moment / self._halves, worst), self.rounds, self.queries)

    @property
    def _halves(self) -> int:
        return 2 if self.bayesian.adversary == "adaptive" else 1

    def charge_histogram(self) -> None:
        self.published += 1
        grown = np.nextafter(self._reported + self._release_growth, np.inf)
        self._reported = np.minimum(grown, self._at_worst(self.rounds, self.published))

    @property
    def growth(self) -> float:
        steps = self.mechanism.steps_per_round
        # Elsewhere a round counts at its worst, until a checkpoint or the end.
        nats = steps * float(self._cap[0]) if self.plan.disclosure != "plain" else self._last_growth
        return nats / self.bayesian.filter_order

    def certificate(self, *, finished: bool) -> Guarantee:
        revealed = self.plan.disclosure != "at-end" or finished
        moment = float(self._reported[0]) if revealed else self._enforced()
        epsilon = self._read(moment, self.rounds, self.queries)
        return self._guarantee(epsilon, self.bayesian.filter_order, revealed)

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if self.rounds == 0 or (self.plan.disclosure == "at-end" and not finished):
            return []
        combined = self._with_queries(self._reported, self.queries, self.rounds)
        best = read_at_the_best_order(self._best(np.maximum(*combined)[1:]))
        if self._papers is None:
            return [best]
        combined = self._with_queries(np.concatenate([self._reported[:1], self._papers]), self.queries, self.rounds)
        papers = dataclasses.replace(
            self._best(np.maximum(*combined)[1:]), assumption=_AS_IN_PAPERS, composition="holder"
        )
        return [best, ("sequential, as in the papers", papers)]

    def state(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "published": self.published,
            "reported": self._reported.tolist(),
            "last_growth": growth_to_json(self._last_growth),
            "papers": None if self._papers is None else self._papers.tolist(),
        } | ({} if self.plan.queries is None else {"queries": self.queries.state()})

    def restore(self, state: dict[str, Any]) -> None:
        reported = np.array(state["reported"], dtype=np.float64)
        if reported.shape != self._cap.shape:
            raise InvalidArgument("state", "was saved with other orders")
        self._reported, self.rounds, self.published = reported, state["rounds"], state["published"]
        self._last_growth = growth_from_json(state["last_growth"])
        self.queries = ChargedQueries.restore(state.get("queries", []))
        papers: list[float] | None = state["papers"]
        self._papers = None if papers is None else np.array(papers, dtype=np.float64)

    def _worst_step(self) -> tuple[FloatArray, FloatArray]:
        """Nats one noised step adds to the bound at most, and to its classical cap, at every order."""
        step = self.mechanism

        def cost(orders: FloatArray) -> FloatArray:
            return log_moment(orders, step.clip_norm, noise_std=step.noise_std, sampling_rate=step.sampling_rate)

        return self._growth_and_cap(cost)

    def _release(self) -> tuple[FloatArray, FloatArray]:
        """The same of one published histogram."""
        release = self.plan.release
        if release is None:
            return np.zeros_like(self._cap), np.zeros_like(self._cap)
        # A record of an accounting sample takes one count from a bin and adds it to another.
        return self._growth_and_cap(
            lambda orders: release_charge(orders, noise_std=release.std, relation=Relation.REPLACE_ONE)
        )

    def _growth_and_cap(self, cost: Callable[[FloatArray], FloatArray]) -> tuple[FloatArray, FloatArray]:
        rows = [np.array([self.bayesian.filter_order]), np.array(self.bayesian.orders)]
        cap = np.concatenate([cost(row) for row in rows])
        if self.bayesian.adversary == "path":
            return cap, cap
        # Adaptive: the ledger is kept at 2λ+1 and halved.
        return np.concatenate([cost(2 * row + 1) for row in rows]) / 2, cap

    def _reserved(self, publishes: bool) -> FloatArray:
        steps = self.mechanism.steps_per_round
        grown = np.nextafter(self._reported + (steps * self._growth + publishes * self._release_growth), np.inf)
        return np.minimum(grown, self._at_worst(self.rounds + 1, self.published + publishes))

    def _at_worst(self, rounds: int, published: int) -> FloatArray:
        """The classical moments after that many rounds and published histograms: the cap of any bound."""
        steps = rounds * self.mechanism.steps_per_round
        # One product, as in the classical account: live and restored agree to the last bit.
        return np.nextafter(steps * self._cap + published * self._release_cap, np.inf)

    def _as_in_papers(self, reported: CumulativeMoments | None) -> FloatArray | None:
        """The papers' running sum, given up for good once a round does not report its part."""
        part = None if reported is None else reported.papers
        if self._papers is None or part is None or len(part) != self._papers.size:
            return None
        return np.nextafter(self._papers + np.array(part), np.inf)

    def _best(self, moments: FloatArray) -> Guarantee:
        """Return the guarantee of these moments at the best of the statement's orders."""
        bayesian = self.bayesian
        epsilon, order = epsilon_from_moments(bayesian.orders, moments, self.beta, conversion=bayesian.conversion)
        return self._guarantee(epsilon, order, revealed=True)

    def _enforced(self) -> float:
        if self.plan.disclosure == "at-end":
            return float(self._at_worst(self.rounds, self.published)[0]) if self.rounds else 0.0
        return float(self._reported[0])

    def _read(self, moment: float, rounds: int, queries: ChargedQueries) -> float:
        """Return ε at the filter order, of the patients who have lost more: trained on, or set aside for evaluation."""
        if rounds == 0 and self.published == 0 and not queries:
            return 0.0
        row = np.full_like(self._cap, moment)
        order, conversion = self.bayesian.filter_order, self.bayesian.conversion
        largest = max(float(total[0]) for total in self._with_queries(row, queries, rounds))
        return epsilon_from_moments([order], [largest], self.beta, conversion=conversion)[0]

    @cached_property
    def _allowance(self) -> float | None:
        return path_allowance(self.plan, self.limit.level)

    def _unscheduled(self, queries: ChargedQueries, rounds: int) -> ChargedQueries:
        """Those that the schedule does not explain, after so many rounds."""
        evaluation = None if self.plan.queries is None else self.plan.queries.evaluation
        if evaluation is None or evaluation.cost is None:
            return queries
        return queries.beyond(evaluation.cost, evaluation.due_by(rounds))

    def _scheduled(self, queries: ChargedQueries, rounds: int) -> float:
        """Σ Δ²/s² of the scheduled evaluations among them, rounded up."""
        evaluation = None if self.plan.queries is None else self.plan.queries.evaluation
        if evaluation is None or evaluation.cost is None:
            return 0.0
        count = len(queries) - len(self._unscheduled(queries, rounds))
        return ChargedQueries().plus(evaluation.cost, count).precision("evaluated")

    def _with_queries(self, moments: FloatArray, queries: ChargedQueries, rounds: int) -> tuple[FloatArray, FloatArray]:
        """Return the losses of the patients who are trained on, and of those who are set aside for evaluation.

        A query moves every record alike: its cost is a constant in both definitions, takes no weight and no step.
        """
        allowance = 0.0 if self.plan.queries is None else self._allowance
        if not queries and not allowance:
            return moments, np.zeros_like(moments)
        # Against a path the questions may not depend on answers: what they may cost at most counts from round 1.
        of_all = queries.precision("all") if allowance is None else allowance
        # Of evaluations the schedule stands in the settings. Others are within the allowance.
        rest = queries.precision("evaluated") if allowance is None else self._scheduled(queries, rounds)
        constants = self._constant(of_all), self._constant(rest)
        return np.nextafter(moments + constants[0], np.inf), np.nextafter(constants[0] + constants[1], np.inf)

    def _constant(self, precision: float) -> FloatArray:
        """λ(λ + 1)·Σ Δ²/2s² at every order. Against an adaptive adversary at 2λ + 1, halved."""
        orders = np.array([self.bayesian.filter_order, *self.bayesian.orders])
        if self.bayesian.adversary == "adaptive":
            return (2 * orders + 1) * (2 * orders + 2) / 4 * precision * (1 + 1e-15)
        return orders * (orders + 1) / 2 * precision * (1 + 1e-15)

    def _guarantee(self, epsilon: float, order: float, revealed: bool) -> Guarantee:
        plan, bayesian = self.plan, self.bayesian
        sentence = _RESTS_ON[bayesian.sample if bayesian.estimator in DISTRIBUTION_FREE else bayesian.estimator]
        if not revealed:
            sentence = "worst case over all records; the log-moments are read when the study has finished"
        promise = "; the promise is the limit, kept on every path" if bayesian.adversary == "adaptive" else ""
        spec = self.bayesian_spec(
            delta=self.limit.delta, max_steps=plan.max_steps, composition=bayesian.composition, sample=bayesian.sample
        )
        rate, steps = self.mechanism.sampling_rate, self.rounds * self.mechanism.steps_per_round
        guarantee = bayesian_guarantee(
            spec, epsilon, bayesian.orders, order, steps=steps, rates=(rate, rate), resolution=self._resolution()
        )
        assumption = sentence + ", each client's estimate for its own population" + promise
        guarantee = dataclasses.replace(guarantee, assumption=assumption, beta=self.beta, capped=True)
        return self.worded(guarantee)

    def _resolution(self) -> str:
        release = self.plan.release
        if release is None:
            return "each hospital rounds its own bound up"
        return (
            f"each hospital's accounting sample is read from histograms with noise {release.std!r} on the counts, "
            f"at most every {release.every} rounds; the worst case in between"
        )
