"""What a study keeps of its limits for windows of later patients. It is known before the study opens."""

from __future__ import annotations

from dataclasses import dataclass

from accounting.budget.budget import Budget
from accounting.budget.enforcement import account_of
from accounting.plan.limits import PlanError
from accounting.units import Definition, Level
from study_protocol.study.any_settings import AnySettings
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.rounded import number


@dataclass(frozen=True)
class KeptForWindows:
    """ε of a later patient by one limit, at the worst.

    each   after one window
    every  after all windows of the settings. They are added up, because corrected dates may move a patient
    """

    level: Level
    definition: Definition
    each: float
    every: float

    @property
    def in_words(self) -> str:
        """Both numbers, rounded up."""
        return f"ε {number(self.each)} for one, {number(self.every)} for all ({self.level} {self.definition})"


def require_windows(settings: AnySettings, budget: Budget) -> None:
    """Check that all windows of later patients fit, with every scheduled evaluation. Raises PlanError: they do not."""
    if (monitoring := settings.monitoring) is None:
        return
    cost, costs = monitoring.cost(), [monitoring.cost()] * (monitoring.windows - 1)
    if settings.evaluation is not None:
        plan = settings.evaluation.plan()
        costs += [] if plan.cost is None else [plan.cost] * plan.due_by(settings.rounds)
    # All but one are charged on a copy, and the last one is asked for: the budget's own rule decides.
    supposed = budget.supposing(costs)
    if not supposed.authorise_query(cost).is_allowed:
        raise PlanError(
            "monitoring",
            f"the {monitoring.windows} windows could together pass a limit of the study: raise "
            "question.noise_multiplier, or ask for fewer windows",
        )


def kept_for_windows(settings: AnySettings) -> list[KeptForWindows]:
    """Return what each limit keeps for the windows, or an empty list for a study without them."""
    if not isinstance(settings, StudySettings) or (monitoring := settings.monitoring) is None:
        return []
    plan, cost = plan_of(settings), monitoring.cost()
    return [
        KeptForWindows(
            level=limit.level,
            definition=limit.definition,
            each=account_of(plan, limit).epsilon_of_evaluations(cost, 1),
            every=account_of(plan, limit).epsilon_of_evaluations(cost, monitoring.windows),
        )
        for limit in plan.limits
    ]


def kept_in_words(settings: AnySettings) -> list[str]:
    """Return the sentences of a plan or a card about what is kept for the windows."""
    if (monitoring := settings.monitoring) is None:
        return []
    sums = "; ".join(loss.in_words for loss in kept_for_windows(settings))
    return [
        f"Kept for {monitoring.windows} windows of later patients, due from {monitoring.due_on(1)} to "
        f"{monitoring.due_on(monitoring.windows)}: {sums}. No other question takes it."
    ]
