"""All that a study may charge a hospital, from its settings alone: known before round 1."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import partial

from accounting.budget.accounts import FixedPlanLimit
from accounting.budget.accounts.cumulative import path_allowance
from accounting.budget.accounts.losses import (
    epsilon_of_losses,
    epsilon_of_squares,
    most_histograms,
    squares_within,
    steps_of_squares,
)
from accounting.budget.accounts.worst_case import WorstCaseLimit
from accounting.budget.enforcement import account_of
from accounting.mechanisms.gaussian_squares import release_slack
from accounting.mechanisms.guessing import rounded_steps
from accounting.mechanisms.unsampled import LEAST_GRID_STD, Steps
from accounting.plan.plan import Plan
from accounting.units import Definition, Level
from accounting.values import rounded_up
from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings


@dataclass(frozen=True)
class PlannedStudy:
    """The most that a study that trains may take of this hospital, with the hospital's own noise alone.

    settings  of the study
    plan      of its budget
    """

    settings: StudySettings
    plan: Plan

    @classmethod
    def of(cls, settings: StudySettings) -> PlannedStudy:
        """Return the study with its plan."""
        return cls(settings, plan_of(settings))

    @property
    def accounts(self) -> list[WorstCaseLimit]:
        """The accounts of the study's own classical limits."""
        limits = (limit for limit in self.plan.limits if limit.definition is Definition.CLASSICAL)
        accounts = (account_of(self.plan, limit) for limit in limits)
        return [account for account in accounts if isinstance(account, WorstCaseLimit)]

    def require_feasible(self) -> None:
        """Whether this hospital finds the same number for a fixed plan as its limit says.

        Raises:
            OwnBudgetExceeded: by this hospital's own calculation the plan spends more.
        """
        for account in self.accounts:
            if isinstance(account, FixedPlanLimit) and not account.is_feasible:
                raise OwnBudgetExceeded(
                    "study-limit-exceeded",
                    f"the study plans {self.steps} steps, which spend epsilon {account.trained:.6g} at level "
                    f"{account.limit.level}, above its own limit {account.limit.epsilon:g}: ask its lead for fewer "
                    "steps (privacy.max_steps) or more noise",
                )

    @property
    def steps(self) -> int:
        """Noised steps of the whole plan."""
        return self.plan.rounds * self.plan.steps_per_round

    @property
    def rounds(self) -> int:
        """The most rounds that the study's own limits let begin, if each costs its most and none is abandoned."""
        fitting = range(1, self.plan.rounds + 1)
        # A fixed plan has all of its rounds: `require_feasible`.
        limits = [account for account in self.accounts if not isinstance(account, FixedPlanLimit)]
        round_counts = [
            bisect_right(fitting, account.limit.epsilon, key=partial(account.epsilon_at_worst, published=0))
            for account in limits
        ]
        return min([self.plan.rounds, *round_counts])

    @property
    def has_open_questions(self) -> bool:
        """Whether questions may come for which nothing is set aside, so that no number of them is known."""
        queries = self.plan.queries
        return queries is not None and queries.share is None and queries.allowance is None

    def charges(self, rounds: int) -> list[Charge]:
        """Return the charges of the first rounds, with the evaluations and questions that the settings plan."""
        stages, per_round = self.plan.first_rounds(rounds), Charge.of(self.settings)
        training = [
            replace(per_round, noise_multiplier=self.plan.noise_of(stage), steps=per_round.steps * count)
            for stage, count in enumerate(stages)
            if count
        ]
        histogram_count = most_histograms(self.plan, rounds)
        if histogram_count:
            # The first round that publishes says what a histogram costs.
            due = next(number for number in range(1, self.plan.rounds + 2) if self.plan.publishes(number))
            training.append(replace(Charge.of(self.settings, [due]), steps=0, histograms=histogram_count))
        return training + self._evaluations(rounds) + _of_squares(self.question_squares)

    @property
    def question_squares(self) -> float:
        """The most Σ Δ²/s² of questions on all patients that the settings set aside, or 0."""
        squares_of_limits = [
            account.question_squares for account in self.accounts if isinstance(account, FixedPlanLimit)
        ]
        return max([path_allowance(self.plan, Level.INSTANCE) or 0.0, *squares_of_limits])

    def _evaluations(self, rounds: int) -> list[Charge]:
        evaluation = None if self.plan.queries is None else self.plan.queries.evaluation
        if evaluation is None or evaluation.cost is None:
            return []
        per_round = Charge.of_query(evaluation.cost)
        return [replace(per_round, steps=evaluation.due_by(rounds))] if evaluation.due_by(rounds) else []

    def fixed_limit(self, level: Level) -> FixedPlanLimit | None:
        """Return the account of the study's limit at this level if it is kept by a fixed plan."""
        fixed_accounts = (account for account in self.accounts if isinstance(account, FixedPlanLimit))
        return next((account for account in fixed_accounts if account.limit.level is level), None)

    def whole_epsilon(self, account: FixedPlanLimit, delta: float, max_epsilon: float) -> float:
        """Return ε of the whole plan at this δ, with this hospital's own noise alone, rounded up.

        Args:
            account: of the study's own limit.
            delta: of the statement.
            max_epsilon: the largest ε that is of use. A larger one may be returned as infinite.
        """
        releases = 2 * self.plan.max_steps + (0 if self.plan.queries is None else self.plan.queries.max_queries)
        # Discrete histograms keep their own lattice in their loss.
        delta_left = delta - release_slack(max_epsilon, releases)
        if not delta_left > 0:
            return math.inf
        steps: list[Steps] = []
        for charge in self.charges(self.plan.rounds):
            if charge.steps and charge.bears not in ("evaluated", "monitored") and not charge.asks:
                steps.append(rounded_steps(charge.noise_multiplier, charge.sampling_rate, charge.steps))
            if charge.histograms:
                if charge.histogram_noise < LEAST_GRID_STD:
                    return math.inf
                steps.append(Steps(charge.histogram_noise, 1.0, charge.histograms, charge.histogram_noise))
        trained = epsilon_of_losses((*steps, *steps_of_squares(self.question_squares)), delta_left)
        epsilon = max(trained, self._evaluated(account, delta_left))
        return rounded_up(epsilon, 9) if epsilon <= max_epsilon else math.inf

    def _evaluated(self, account: FixedPlanLimit, delta: float) -> float:
        """Return ε of those who are set aside for evaluation. Their questions may use all of the study's limit."""
        if self.plan.queries is None or self.plan.queries.evaluation is None:
            return 0.0
        return epsilon_of_squares(squares_within(account.limit.epsilon, account.delta), delta)


def _of_squares(total: float) -> list[Charge]:
    # Towards less noise than there is.
    noise = math.nextafter(1 / math.sqrt(total), 0.0) if total > 0 else math.inf
    return [Charge("instance", noise, 1.0, 1, asks=True)] if total > 0 else []
