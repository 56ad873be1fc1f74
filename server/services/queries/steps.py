"""A question in several steps, such as a regression: each step is a query, and follows from the answer before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.plan.queries import QueryCost
from study_protocol.study.queries import PublishedAnswer, QueryDocument


@dataclass(frozen=True)
class StepChain:
    """The steps of one question.

    first  the document that people approve, which is its first step
    """

    first: QueryDocument

    @property
    def kind(self) -> str:
        return self.first.question.kind

    def step_of(self, document: QueryDocument) -> int | None:
        """Return which step a document is, from 1, or None for one of another question."""
        return document.step if document.first_step() == self.first else None

    def kept_after(self, document: QueryDocument) -> tuple[QueryCost, ...]:
        """Return the costs of the steps after this one."""
        return document.question.costs_after()

    def following(
        self, document: QueryDocument, earlier: Mapping[str, PublishedAnswer], newest: PublishedAnswer
    ) -> QueryDocument | None:
        """Return the step to which this newest answer leads, or None after the last one.

        Raises:
            ValueError: it is no answer to this step.
        """
        return document.next_step(newest.answer)
