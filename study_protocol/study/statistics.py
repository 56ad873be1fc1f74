"""Questions about the patients: the section `statistics` of a study's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accounting.plan.queries import MOST_CELLS, MOST_QUERIES, EvaluationPlan, QueryPlan
from study_protocol.study.evaluation import EvaluationSettings
from study_protocol.wire.values import Finite, Message, Positive, Whole

# Of a study that names none: a day.
DECISION_DEADLINE_SECONDS = 86_400.0


class Statistics(Message):
    """The queries that the study allows. Each is a round of its own, charged to the same limits."""

    max_queries: Annotated[Whole, Field(ge=1, le=MOST_QUERIES)] = Field(
        description="the most charged queries. A few hundred cost no ε by themselves"
    )
    max_cells: Annotated[Whole, Field(ge=1, le=MOST_CELLS)] = Field(
        description="the most numbers of one query, such as cells of a table"
    )
    suppress_below: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=0, description="counts below this, noise included, are not shown"
    )
    allowance: Positive | None = Field(
        default=None,
        description="a Bayesian limit with adversary path needs it or share: the most that queries cost together, Σ 1 "
        "/ noise_multiplier², counted from round 1 on",
    )

    share: Annotated[Positive, Field(lt=1)] | None = Field(
        default=None,
        exclude_if=lambda share: share is None,
        description="of a fixed-plan limit: the share for questions on all patients, such as 0.2. Training has the "
        "rest. Also in place of allowance",
    )
    decision_deadline_seconds: Annotated[Finite, Field(gt=0, le=90 * 86_400)] | None = Field(
        default=None,
        exclude_if=lambda seconds: seconds is None,
        description="how long a question waits for enough hospitals, with its cost kept. Left out: a day",
    )

    @property
    def decision_seconds(self) -> float:
        """How long a question keeps its cost while hospitals decide."""
        seconds = self.decision_deadline_seconds
        return DECISION_DEADLINE_SECONDS if seconds is None else seconds

    def plan(self, evaluation: EvaluationSettings | None = None, *, later: bool = False) -> QueryPlan:
        """Return the plan as the accounts know it. later: later patients are asked about, who are never trained on."""
        unscheduled = EvaluationPlan() if later else None
        set_aside = unscheduled if evaluation is None else evaluation.plan()
        return QueryPlan(self.max_queries, self.max_cells, self.allowance, set_aside, self.share)
