"""A classical limit kept by a sum of squares: all records are in every round, so that every release is Gaussian."""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import ClassVar

from accounting.budget.accounts.base import LEAST_EPSILON, RUNNING, RUNNING_WITH_QUESTIONS
from accounting.budget.accounts.losses import (
    epsilon_of_releases,
    most_histograms,
    rounding_slack,
    squares_within,
    steps_of_histograms,
    steps_of_rounds,
    steps_of_squares,
)
from accounting.budget.accounts.progress import Progress, UsedPart
from accounting.budget.accounts.worst_case import Charged, WorstCaseLimit, squares
from accounting.mechanisms.guessing import guess_chance
from accounting.mechanisms.unsampled import Steps
from accounting.plan.queries import QueryCost
from accounting.units import PRIVACY_LOSS_DISTRIBUTION, Guarantee

_ASSUMES = (
    "every step kept its clip norm and noise; steps, questions and the moment the study stops may depend on what was "
    "released, so that the limit is stated from the first charge on"
)
_CLOSED = "closed form, rounded up"
# Covers the roundings of sums and quotients.
_UP = 1 + 2.0**-48


class GaussianRoundsLimit(WorstCaseLimit):
    """A filter on Σ Δ²/s² ≤ μ² over rounds and questions, as `GaussianLimit` over questions alone.

    Gaussian releases that are chosen one after the other are together μ-GDP if Σ Δ²/s² ≤ μ² on every path (Smith &
    Thakurta 2022; Koskela, Tobaben & Honkela 2023). No horizon is needed. Published histograms have discrete noise: as
    many as the plan may publish are taken out of the limit beforehand.
    """

    keeps_order: ClassVar[bool] = False

    @property
    def enforced_by(self) -> str:
        return "Gaussian differential privacy, which holds for rounds and questions that depend on releases"

    @property
    def delta(self) -> float:
        """The limit's δ, less what the rounding of the noise and its sampler may add to it over the whole study."""
        return math.nextafter(super().delta - rounding_slack(self.plan, self.limit.epsilon), 0.0)

    @cached_property
    def _histograms(self) -> tuple[Steps, ...]:
        return tuple(steps_of_histograms(self.plan, most_histograms(self.plan, self.plan.rounds)))

    @cached_property
    def max_squares(self) -> float:
        """μ²: the most that `used` may become, beside all histograms that the plan may publish."""
        return squares_within(self.limit.epsilon, self.delta, self._histograms)

    @property
    def used(self) -> float:
        """Σ Δ²/s² of all rounds and questions so far, for the patients who have lost more, rounded up."""
        return self._used(self.charged)

    def _used(self, charged: Charged) -> float:
        steps = steps_of_rounds(self.mechanisms, charged.rounds)
        rounds = math.fsum(step.count / (step.noise_multiplier * step.noise_multiplier) for step in steps) * _UP
        trained, evaluated = rounds + squares(charged, "all"), squares(charged, "all", "evaluated")
        return max(trained * _UP, evaluated)

    def epsilon_of(self, charged: Charged) -> float:
        if not charged:
            return 0.0
        used = self._used(charged)
        # Written so that NaN is beyond it. The same comparison for all parties, not one of an ε.
        if not (used <= self.max_squares and charged.published <= most_histograms(self.plan, self.plan.rounds)):
            return math.inf
        return max(LEAST_EPSILON, min(self.limit.epsilon, epsilon_of_releases(used, self.delta, self._histograms)))

    def stated(self, epsilon: float) -> float:
        return max(epsilon, self.limit.epsilon) if epsilon > 0 else 0.0

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        if not rounds:
            return 0.0
        charged = Charged(self.plan.first_rounds(rounds), 0, self.queries)
        histograms = steps_of_histograms(self.plan, most_histograms(self.plan, rounds))
        return max(LEAST_EPSILON, epsilon_of_releases(self._used(charged), self.delta, histograms))

    @property
    def growth(self) -> float:
        once = self.charged.with_round(self.plan.stage_of(self.rounds + 1), publishes=False)
        return self._used(once) - self.used

    def rounds_left(self) -> int:
        spare, growth = self.max_squares - self.used, self.growth
        return int(max(0.0, spare) / growth) if spare < growth * self.plan.max_steps else self.plan.max_steps

    def guess_chance(self) -> float | None:
        steps = [*self._histograms, *steps_of_squares(self.max_squares)]
        return guess_chance(steps, releases=self._releases, lattice=rounding_slack(self.plan, 0.0) / 2)

    def progress(self, *, stage: int | None, query: QueryCost | None) -> Progress:
        after = self._used(self.with_pending(stage, query))
        return Progress("gaussian-filter", None, UsedPart.between(self.used, after, self.max_squares))

    def certificate(self, *, finished: bool) -> Guarantee:
        stated = self.guarantee(self.stated(self.epsilon()), _ASSUMES, "gaussian-filter", _CLOSED)
        return self.worded(dataclasses.replace(stated, adversary="adaptive", used=self.used, allowed=self.max_squares))

    def reports_of(self, charged: Charged) -> list[tuple[str, Guarantee]]:
        histograms = steps_of_histograms(self.plan, charged.published)
        running = epsilon_of_releases(self._used(charged), self.delta, histograms)
        assumption = RUNNING_WITH_QUESTIONS if charged.queries else RUNNING
        return [(PRIVACY_LOSS_DISTRIBUTION, self.worded(self.guarantee(running, assumption, "gaussian", _CLOSED)))]
