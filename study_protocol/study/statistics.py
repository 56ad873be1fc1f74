"""Questions about the patients: the section `statistics` of a study's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accounting.plan.queries import MOST_CELLS, MOST_QUERIES, QueryPlan
from study_protocol.study.evaluation import EvaluationSettings
from study_protocol.wire.values import Message, Positive, Whole


class Statistics(Message):
    """The queries that the study allows. Each is a round of its own, charged to the same limits."""

    max_queries: Annotated[Whole, Field(ge=1, le=MOST_QUERIES)] = Field(
        description="the most queries that are charged over the study. A few hundred cost nothing by themselves"
    )
    max_cells: Annotated[Whole, Field(ge=1, le=MOST_CELLS)] = Field(
        description="the most numbers that one query sums, such as the cells of a table"
    )
    suppress_below: Annotated[Whole, Field(ge=0, le=1000)] = Field(
        default=0, description="published counts below this, noise included, are not shown"
    )
    allowance: Positive | None = Field(
        default=None,
        description="for a Bayesian limit with adversary path alone, which needs it or share: the most that queries "
        "may cost together, Σ 1 / noise_multiplier², which that limit counts from round 1 on",
    )

    share: Annotated[Positive, Field(lt=1)] | None = Field(
        default=None,
        exclude_if=lambda share: share is None,
        description="for a limit with enforcement fixed-plan: the part of it that questions on all patients may use, "
        "such as 0.2, while the steps of training have the rest. Also in place of allowance",
    )

    def plan(self, evaluation: EvaluationSettings | None = None) -> QueryPlan:
        """Return the plan as the accounts know it."""
        set_aside = None if evaluation is None else evaluation.plan()
        return QueryPlan(self.max_queries, self.max_cells, self.allowance, set_aside, self.share)
