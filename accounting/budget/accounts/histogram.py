"""The Bayesian limit at client level: a histogram of the sampled clients' distances in every round."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import numpy as np

from accounting.accountants.bayesian import BayesianAccountant
from accounting.accountants.composition import Step
from accounting.budget.accounts.base import LimitAccount, growth_from_json, growth_to_json, read_at_the_best_order
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.report import DistanceHistogram, RoundReport, distance_edges, histogram_in
from accounting.units import Guarantee
from accounting.values import FloatArray


class HistogramLimit(LimitAccount):
    """Bayesian, client level: each round's sampled clients, counted by the distance their update covers.

    Composed by Hölder's inequality, because every round has its own sample of clients.

    Under disclosure `at-end` the limit is kept by an account that sees no round report. The other is read at the end.
    """

    def __init__(self, plan: Plan, limit: LimitPlan) -> None:
        super().__init__(plan, limit)
        self._edges: FloatArray = np.array(distance_edges(self.mechanism.clip_norm))
        self._revealed = self._open()
        self._complete = self._open() if plan.disclosure == "at-end" else self._revealed
        self._last_growth = math.inf

    @property
    def enforced_by(self) -> str:
        return f"Bayesian moment at order {self.bayesian.filter_order:g}"

    def epsilon(self) -> float:
        return self._complete.epsilon()

    def epsilon_after_worst_round(self, *, publishes: bool, stage: int = 0) -> float:
        if self.rounds >= self.plan.rounds:
            # No round is left. This is the only stop here: with published histograms the account has weights to spare.
            return math.inf
        # `project` looks ahead over steps of one kind. A published histogram is a second kind.
        after_round = copy.deepcopy(self._complete)
        self._charge(after_round, None, publishes)
        return after_round.epsilon()

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        step, release = self.mechanism, self.plan.release
        noised = Step(
            noise_std=step.noise_std,
            sampling_rate=step.sampling_rate,
            max_distance=step.clip_norm,
            relation=step.relation,
        )
        steps_ahead = [(noised, rounds * step.steps_per_round)]
        if release is not None:
            sensitivity = self.plan.rules.histogram_sensitivity
            histogram = dataclasses.replace(noised, noise_std=release.std, sampling_rate=1.0, max_distance=sensitivity)
            steps_ahead.append((histogram, published))
        return self._open().epsilon_after(*steps_ahead)

    def charge(self, report: RoundReport | None, *, publishes: bool, stage: int = 0) -> None:
        before = self._complete.filter_moment()
        # Under disclosure noised only what was published may be read, for only that was charged.
        reported = self._readable(report) if publishes or self.plan.release is None else None
        self._charge(self._revealed, reported, publishes)
        if self._complete is not self._revealed:
            self._charge(self._complete, None, publishes)
        self.rounds += 1
        self.published += publishes
        self._last_growth = self._complete.filter_moment() - before

    @property
    def growth(self) -> float:
        return self._last_growth / self.bayesian.filter_order

    def certificate(self, *, finished: bool) -> Guarantee:
        # The budget lets no round begin that might pass the limit: an adaptive certificate states it.
        return self.worded(
            (self._revealed if finished else self._complete).certificate(limit_epsilon=self.limit.epsilon)
        )

    def reports(self, *, finished: bool) -> list[tuple[str, Guarantee]]:
        if self.rounds == 0 or (self.plan.disclosure == "at-end" and not finished):
            return []
        return [read_at_the_best_order(self.worded(self._revealed.report()))]

    def state(self) -> dict[str, Any]:
        accounts = {"seen": self._revealed.state(), "kept": self._complete.state()}
        return {
            "rounds": self.rounds,
            "published": self.published,
            "last_growth": growth_to_json(self._last_growth),
            **accounts,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._revealed.restore(state["seen"])
        self._complete.restore(state["kept"])
        self.rounds, self.published = state["rounds"], state["published"]
        self._last_growth = growth_from_json(state["last_growth"])

    def _open(self) -> BayesianAccountant:
        # A published histogram is one more step. At most one a round.
        max_steps = self.plan.max_steps + (0 if self.plan.release is None else self.plan.rounds)
        # Records may be held out of training. Clients that are measured take part.
        spec = self.bayesian_spec(delta=self.delta, max_steps=max_steps, composition="holder", sample="members")
        return BayesianAccountant(spec)

    def _charge(self, account: BayesianAccountant, reported: DistanceHistogram | None, publishes: bool) -> None:
        step, release = self.mechanism, self.plan.release
        rates: dict[str, Any] = {"sampling_rate": step.sampling_rate, "max_distance": step.clip_norm}
        for number in range(step.steps_per_round):
            # A report tells of one noised step. Others in the round are charged in full.
            if reported is None or number > 0:
                account.step(noise_std=step.noise_std, **rates)
            elif release is None:
                account.step(self._edges, counts=reported.counts, noise_std=step.noise_std, **rates)
            else:
                account.step(
                    self._edges,
                    counts=reported.counts,
                    # A report that names too little noise must not lower the bound.
                    count_noise=max(reported.count_noise, release.std),
                    sample_size=reported.sample_size,
                    noise_std=step.noise_std,
                    **rates,
                )
        if publishes:
            self._charge_histogram(account)

    def _charge_histogram(self, account: BayesianAccountant) -> None:
        if self.plan.release is not None:
            sensitivity = self.plan.rules.histogram_sensitivity
            # One more Gaussian step: what a neighbour moves in the counts, under their noise, never sampled.
            account.step(noise_std=self.plan.release.std, sampling_rate=1.0, max_distance=sensitivity)

    def _readable(self, report: RoundReport | None) -> DistanceHistogram | None:
        """Return the histogram, if it is one of this plan. Any other report is charged at the worst case."""
        reported = histogram_in(report)
        if reported is None or len(reported.counts) != self._edges.size:
            return None
        if (reported.sample_size is None) != (self.plan.release is None):
            return None
        return reported if reported.sample_size is not None or sum(reported.counts) > 0 else None
