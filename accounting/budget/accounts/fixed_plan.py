"""A classical limit kept by a plan that is fixed as a whole: its loss is computed once, and its steps are counted.

Theorem A: for any stop that looks at releases, the transcript up to there is a function of that of all T steps, so that
it has their (ε, δ). Theorem B: questions that adapt, with Σ Δ²/s² ≤ μ² on every path, together with these steps are
dominated by T steps and one Gaussian release of μ². Proofs: docs/decisions/fixed-order.md.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import ClassVar

from accounting.budget.accounts.base import LEAST_EPSILON, RUNNING, RUNNING_WITH_QUESTIONS
from accounting.budget.accounts.losses import (
    epsilon_of_losses,
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
from accounting.values import rounded_up

# The name of the algorithm and its grid. A change that moves a number by more than rounding gets another one.
ALGORITHM = "loss distributions 1: connect-the-dots, tilted, Fourier, rounded up"
# A plan is opened with so much room: each hospital computes its loss anew, perhaps on another processor.
OPENING_MARGIN = 1e-6
_ASSUMES = (
    "every step kept its clip norm, sampling and noise, and no more steps than the plan's were taken; questions and "
    "the moment the study stops may depend on what was released"
)


class FixedPlanLimit(WorstCaseLimit):
    """ε is that of the whole plan, from the first charge on. A step, histogram or question beyond it is refused."""

    keeps_order: ClassVar[bool] = False

    @property
    def enforced_by(self) -> str:
        return f"a fixed plan of {self.planned_steps} steps"

    @property
    def planned_steps(self) -> int:
        """Noised steps of the whole plan."""
        return self.plan.rounds * self.mechanism.steps_per_round

    @property
    def asks(self) -> bool:
        """Whether questions on all patients have a share of the plan."""
        return self.plan.queries is not None and self.plan.queries.share is not None

    @property
    def delta(self) -> float:
        """The limit's δ, less what the rounding of the noise and its sampler may add to it over the whole plan."""
        return math.nextafter(super().delta - rounding_slack(self.plan, self.limit.epsilon), 0.0)

    @cached_property
    def question_squares(self) -> float:
        """μ²: the most Σ Δ²/s² of questions on all patients over the study."""
        queries = self.plan.queries
        return 0.0 if queries is None or queries.share is None else queries.share * self.limit_squares

    @cached_property
    def limit_squares(self) -> float:
        """The most Σ Δ²/s² for patients who bear no step: they are set aside for evaluation."""
        return squares_within(self.limit.epsilon, self.delta)

    @cached_property
    def trained(self) -> float:
        """ε of a patient who is trained on, of the whole plan."""
        return self._epsilon_of_rounds(tuple(stage.rounds for stage in self.plan.stages))

    @cached_property
    def whole(self) -> float:
        """ε of the whole plan, for any patient."""
        # Who is set aside may lose as much as the limit allows: their evaluations are no plan.
        return max(self.trained, self.limit.epsilon) if self.sets_aside else self.trained

    @property
    def sets_aside(self) -> bool:
        """Whether patients are set aside for evaluation."""
        return self.plan.queries is not None and self.plan.queries.evaluation is not None

    @property
    def is_feasible(self) -> bool:
        """Whether the whole plan is within the limit."""
        return self.trained <= self.limit.epsilon

    @property
    def opens(self) -> bool:
        """Whether the plan may be opened: it is within the limit, with room for other processors' last bits."""
        return self.trained * (1 + OPENING_MARGIN) <= self.limit.epsilon

    def epsilon_of(self, charged: Charged) -> float:
        if not charged:
            return 0.0
        return self.whole if self._is_planned(charged) else math.inf

    def _is_planned(self, charged: Charged) -> bool:
        planned = zip(charged.rounds, self.plan.stages, strict=True)
        if any(count > stage.rounds for count, stage in planned):
            return False
        # Written so that NaN is beyond it.
        return (
            charged.published <= most_histograms(self.plan, self.plan.rounds)
            and squares(charged, "all") <= self.question_squares
            and squares(charged, "all", "evaluated") <= self.limit_squares
        )

    def stated(self, epsilon: float) -> float:
        return max(epsilon, self.whole) if epsilon > 0 else 0.0

    def epsilon_at_worst(self, rounds: int, published: int) -> float:
        # Of a plan of so many rounds, with all histograms that these may publish.
        return max(LEAST_EPSILON, self._epsilon_of_rounds(self.plan.first_rounds(rounds))) if rounds else 0.0

    def epsilon_of_evaluations(self, cost: QueryCost, count: int) -> float:
        return epsilon_of_releases(squares(self.nothing.with_query(cost, count), "all", "evaluated"), self.delta)

    @property
    def growth(self) -> float:
        # A further step of the plan costs nothing that was not stated from its first one on.
        return 0.0

    def rounds_left(self) -> int:
        return self.plan.rounds - self.rounds if self.is_feasible else 0

    @property
    def used(self) -> float:
        """Σ Δ²/s² of the questions so far on all patients, rounded up."""
        return squares(self.charged, "all")

    def guess_chance(self) -> float | None:
        planned = tuple(stage.rounds for stage in self.plan.stages)
        # The rounding is a total variation here: for equal odds it counts once in each law.
        lattice = rounding_slack(self.plan, 0.0) / 2
        evaluated = steps_of_squares(self.limit_squares if self.sets_aside else 0.0)
        sides = (self._steps_of_rounds(planned), evaluated)
        return max(guess_chance(steps, releases=self._releases, lattice=lattice) for steps in sides)

    def progress(self, *, stage: int | None, query: QueryCost | None) -> Progress:
        per_round, after = self.mechanism.steps_per_round, self.with_pending(stage, query)
        steps = UsedPart(self.rounds * per_round, (sum(after.rounds) - self.rounds) * per_round, self.planned_steps)
        squared = UsedPart.between(self.used, squares(after, "all"), self.question_squares) if self.asks else None
        return Progress("fixed-plan", steps, squared)

    def certificate(self, *, finished: bool) -> Guarantee:
        stated = dataclasses.replace(
            self.guarantee(self.epsilon(), _ASSUMES, "fixed-plan", ALGORITHM),
            adversary="adaptive",
            steps=self.rounds * self.mechanism.steps_per_round,
            max_steps=self.planned_steps,
            used=self.used if self.asks else None,
            allowed=self.question_squares if self.asks else None,
        )
        return self.worded(stated)

    def reports_of(self, charged: Charged) -> list[tuple[str, Guarantee]]:
        steps = steps_of_rounds(self.mechanisms, charged.rounds)
        steps += steps_of_histograms(self.plan, charged.published)
        trained = epsilon_of_losses((*steps, *steps_of_squares(squares(charged, "all"))), self.delta)
        evaluated = epsilon_of_releases(squares(charged, "all", "evaluated"), self.delta)
        # Both are bounds of the same steps: what is within the plan is never stated above it.
        running = min(max(trained, evaluated), self.epsilon_of(charged))
        assumption = RUNNING_WITH_QUESTIONS if charged.queries else RUNNING
        return [(PRIVACY_LOSS_DISTRIBUTION, self.worded(self.guarantee(running, assumption, "pld", ALGORITHM)))]

    def _epsilon_of_rounds(self, rounds: tuple[int, ...]) -> float:
        # Nine digits: processors differ in the last bits of a Fourier transform, and name one number.
        return rounded_up(epsilon_of_losses(tuple(self._steps_of_rounds(rounds)), self.delta), 9)

    def _steps_of_rounds(self, rounds: tuple[int, ...]) -> list[Steps]:
        histograms = steps_of_histograms(self.plan, most_histograms(self.plan, sum(rounds)))
        return [*steps_of_rounds(self.mechanisms, rounds), *histograms, *steps_of_squares(self.question_squares)]
