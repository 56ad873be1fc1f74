"""The questions of a study's synthesis, of which each follows from the answers before.

The rule itself is `synthesis.rule`, by which every hospital computes the same question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from accounting.plan.queries import QueryCost
from study_protocol.study.queries import PublishedAnswer, QueryDocument
from study_protocol.study.synthesis import Synthesis
from synthesis.chain import follow


@dataclass(frozen=True)
class SynthesisChain:
    """The chain of all questions in the form of a section `synthesis`."""

    synthesis: Synthesis
    kind = "marginals"

    def step_of(self, document: QueryDocument) -> int | None:
        """Return the place of a question in the rule, from 1, or None for a question that the rule never asks."""
        return self.synthesis.stage_of(document)

    def kept_after(self, document: QueryDocument) -> tuple[QueryCost, ...]:
        """Return the costs that are kept for what the rule may ask after this question."""
        return self.synthesis.kept_after(document)

    def following(
        self, document: QueryDocument, earlier: Mapping[str, PublishedAnswer], newest: PublishedAnswer
    ) -> QueryDocument | None:
        """Return the question to which this newest answer leads, or None after the last one.

        Raises:
            ValueError: an answer is to no question of the rule.
        """
        chain = follow(self.synthesis, {**earlier, newest.sha256: newest}.get)
        # An answer to a question that only looks like one of the rule leads nowhere.
        return chain.document if chain.answers and chain.answers[-1] is newest else None
