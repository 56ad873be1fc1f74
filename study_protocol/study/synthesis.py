"""Synthetic records from noised questions: the section `synthesis` of a study's settings."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from accounting.plan.limits import LimitPlan
from accounting.plan.queries import MOST_CELLS, QueryCost
from accounting.units import Definition
from study_protocol.queries.kinds.marginals import MAX_WEIGHT, Clique, Groups, Marginals
from study_protocol.queries.question import MAX_NOISE, MIN_NOISE
from study_protocol.queries.variables import ColumnName, Variable
from study_protocol.study.queries import DataVersion, QueryDocument
from study_protocol.study.statistics import Statistics
from study_protocol.wire.values import Message, Positive, Whole

STAGES = 3
# Noise multipliers are whole multiples of 1/_PARTS, so that each machine finds the same ones.
_PARTS = 10_000
_WHOLE = 100
# Grid steps of a cost that is kept for a question before its grid is known: only Δ/s counts.
_KEPT_STD = 2.0**30
_Percent = Annotated[Whole, Field(ge=1, le=_WHOLE - 2)]


class Synthesis(Message):
    """Three questions to the hospitals, from whose noised answers synthetic records are made.

    The questions follow by a public rule from this section and from the signed answers. No hospital trains anything.
    """

    columns: Annotated[tuple[Variable, ...], Field(min_length=2, max_length=128)] = Field(
        description="columns of the records, each with public edges, categories or presence"
    )
    outcome: ColumnName = Field(description="the column that each other one is crossed with")
    allowance: Positive = Field(
        description="the most that its questions cost together, Σ 1 / noise_multiplier². Kept from the first one on"
    )
    shares: tuple[_Percent, _Percent, _Percent] = Field(
        default=(20, 45, 35), description="percent of the allowance of each question"
    )
    rows: Annotated[Whole, Field(ge=1, le=10_000_000)] = Field(
        default=100_000, description="how many synthetic records are written"
    )
    patients: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None, description="how many patients there are, from public knowledge. Left out: by the first answer"
    )
    least_patients: Annotated[Whole, Field(ge=0)] = Field(
        default=2000, description="with fewer, the first question is asked again in place of the other two"
    )
    max_cells: Annotated[Whole, Field(ge=1, le=MOST_CELLS)] | None = Field(
        default=None,
        exclude_if=lambda cells: cells is None,
        description="the most numbers of one of its questions, by coarser groups and fewer pairs. Left out: as many as "
        "any may have",
    )
    of_several: Literal["first", "last", "mean", "any"] = Field(
        default="first", description="which row counts of a patient with several, as `rows` of a question"
    )
    seed: Annotated[Whole, Field(ge=0, lt=1 << 63)] = Field(
        default=0, description="public: the same answers give the same records"
    )
    data_version: DataVersion = Field(default="1", description="the records, as hospitals name them")
    rule: Literal[1] = Field(
        default=1,
        description="number of the rule by which questions follow. A program that does not know it joins no such study",
    )

    @model_validator(mode="after")
    def _is_a_plan_of_questions(self) -> Self:
        names = [variable.column for variable in self.columns]
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise ValueError(f"synthesis.columns: {twice[0]} stands twice")
        if self.outcome not in names:
            raise ValueError(f"synthesis.outcome: {self.outcome} is none of synthesis.columns")
        if sum(self.shares) > _WHOLE:
            raise ValueError(f"synthesis.shares: they are percent, and add up to {sum(self.shares)}")
        if not MIN_NOISE <= self.noise_multiplier(_WHOLE) <= self.noise_multiplier(min(self.shares)) <= MAX_NOISE:
            raise ValueError(f"synthesis.allowance: {self.allowance:g} gives noise that cannot be drawn")
        return self

    @model_validator(mode="after")
    def _has_questions_that_fit(self) -> Self:
        cells = self.least_cells()
        if cells > MOST_CELLS:
            raise ValueError(
                f"synthesis.columns: a question would have {cells} numbers, and at most {MOST_CELLS} can be asked. "
                "Leave out columns, or join bins or categories"
            )
        if self.max_cells is not None and cells > self.max_cells:
            raise ValueError(f"synthesis.max_cells must be at least {cells}, as its first two questions have")
        return self

    @property
    def outcome_number(self) -> int:
        """Return the number of the outcome among the columns."""
        return [variable.column for variable in self.columns].index(self.outcome)

    def noise_multiplier(self, percent: int) -> float:
        """Return the least multiple of 1/10,000 with 1 / noise_multiplier² within this part of the allowance."""
        square = Fraction(_WHOLE * _PARTS**2, percent) / Fraction(self.allowance)
        parts = math.isqrt(math.floor(square))
        while Fraction(parts / _PARTS) ** 2 * _PARTS**2 < square:
            parts += 1
        return parts / _PARTS

    def document(
        self,
        percent: int,
        cliques: Sequence[Clique],
        *,
        title: str,
        stage: int,
        groups: Sequence[Groups] = (),
    ) -> QueryDocument:
        """Return the question of one stage, which takes this part of the allowance.

        A table of d cells gets a weight near ∛d. That makes the sum of all cells' standard errors least.

        Raises:
            ValidationError: cliques or groups that no question has.
        """
        sizes = [
            max(groups[number]) + 1 if groups and groups[number] else len(variable.labels)
            for number, variable in enumerate(self.columns)
        ]
        question = Marginals(
            kind="marginals",
            title=title,
            noise_multiplier=self.noise_multiplier(percent),
            rows=self.of_several,
            variables=self.columns,
            cliques=tuple(cliques),
            groups=tuple(groups),
            weights=tuple(_weight(math.prod(sizes[number] for number in clique)) for clique in cliques),
            stage=stage,
        )
        return QueryDocument(question=question, data_version=self.data_version)

    def first_question(self) -> QueryDocument:
        """Return the first question: each column crossed with the outcome."""
        cliques = self._by_outcome(1)
        return self.document(self.shares[0], cliques, title="Synthesis 1: columns by outcome", stage=1)

    def least_noised_question(self) -> QueryDocument:
        """Return the first question with as little noise as any that the rule may ask.

        With `most_cells`, what a hospital's rules say to it holds for all of them.
        """
        percent = max(self.shares[0], sum(self.shares[1:]))
        return self.document(percent, self._by_outcome(1), title="", stage=STAGES)

    def _by_outcome(self, count: int) -> list[Clique]:
        """Return every choice of so many columns, each with the outcome."""
        outcome = self.outcome_number
        inputs = (number for number in range(len(self.columns)) if number != outcome)
        return [tuple(sorted((*numbers, outcome))) for numbers in itertools.combinations(inputs, count)]

    def stage_of(self, document: QueryDocument) -> int | None:
        """Return the place of this question in the rule, from 1, or None for a question that the rule never asks.

        Groups and cliques are not looked at, because they depend on answers.
        """
        question = document.question
        if not isinstance(question, Marginals) or question.stage > STAGES:
            return None
        repeat_shares = (sum(self.shares[1:]),) if question.stage == STAGES - 1 else ()
        noises = {self.noise_multiplier(percent) for percent in (self.shares[question.stage - 1], *repeat_shares)}
        form = (question.variables, question.rows, question.where, document.data_version)
        is_ours = form == (self.columns, self.of_several, (), self.data_version) and question.noise_multiplier in noises
        return question.stage if is_ours else None

    def kept_after(self, document: QueryDocument) -> tuple[QueryCost, ...]:
        """Return the costs that are kept for what the rule may ask after this question, and none after its last one."""
        stage, question = self.stage_of(document), document.question
        if stage is None or not isinstance(question, Marginals):
            return ()
        if stage > 1 and all(len(clique) <= 2 for clique in question.cliques):
            # Columns by outcome again, with few patients: nothing follows.
            return ()
        multipliers = [self.noise_multiplier(percent) for percent in self.shares[:stage]]
        remainder = Fraction(self.allowance) - sum(1 / Fraction(multiplier) ** 2 for multiplier in multipliers)
        count = STAGES - stage
        if not count:
            return ()
        # Δ/s, up by more than all roundings of a question's own cost.
        ratio = math.sqrt(remainder / count) * (1 + 1e-12)
        return (QueryCost(_KEPT_STD, _KEPT_STD * ratio, self.most_cells()),) * count

    @property
    def room(self) -> int:
        """Return the most numbers of one question: `max_cells`, or as many as any question may have."""
        return MOST_CELLS if self.max_cells is None else self.max_cells

    @property
    def most_groups(self) -> int:
        """Return the most groups of each column in a pair: 8, or as many as there is room for, at least 2."""
        fitting = (
            groups for groups in range(MAX_GROUPS, LEAST_GROUPS, -1) if self._cells_of_pairs(groups) <= self.room
        )
        return next(fitting, LEAST_GROUPS)

    def least_cells(self) -> int:
        """Return the numbers of the larger of the first two questions, with groups as coarse as they may be."""
        return max(self._cells_of_columns(), self._cells_of_pairs(LEAST_GROUPS))

    def most_cells(self) -> int:
        """Return the most numbers of any question of the rule.

        Every column of a forest but its root has one edge to a parent, so no forest has more cells than the star
        around the column of the most cells.
        """
        sizes, outcome = self._sizes()
        forest = max(sizes) * (sum(sizes) - max(sizes)) * outcome
        return max(self._cells_of_columns(), self._cells_of_pairs(self.most_groups), min(forest, self.room))

    def _sizes(self) -> tuple[list[int], int]:
        """Return the cells of each other column, and those of the outcome."""
        sizes = [len(variable.labels) for variable in self.columns]
        outcome = sizes.pop(self.outcome_number)
        return sizes, outcome

    def _cells_of_columns(self) -> int:
        sizes, outcome = self._sizes()
        return sum(sizes) * outcome

    def _cells_of_pairs(self, groups: int) -> int:
        sizes, outcome = self._sizes()
        grouped = [min(size, groups) for size in sizes]
        return (sum(grouped) ** 2 - sum(size**2 for size in grouped)) // 2 * outcome


# Of each column in a pair.
MAX_GROUPS, LEAST_GROUPS = 8, 2


def names_in(synthesis: Synthesis | None) -> list[str]:
    """Return the columns of the synthetic records. None: without the section."""
    return [] if synthesis is None else [variable.column for variable in synthesis.columns]


def _weight(cells: int) -> int:
    """Return the largest whole number of which the cube is at most 64 times these cells: nearly 4·∛cells."""
    weight = 1
    while weight < MAX_WEIGHT and (weight + 1) ** 3 <= 64 * cells:
        weight += 1
    return weight


def require_synthesis(
    synthesis: Synthesis, statistics: Statistics | None, limits: Sequence[LimitPlan], *, trains: bool
) -> None:
    """Check that a study can ask the questions of this section, and that a filter counts what depends on answers.

    Raises:
        ValueError: it cannot. The text names the setting to change.
    """
    if statistics is None:
        raise ValueError("synthesis needs the section statistics, which says how many questions there may be")
    if any(limit.definition is not Definition.CLASSICAL for limit in limits):
        raise ValueError("synthesis asks what depends on answers, and no Bayesian limit counts that: remove that limit")
    if trains and any(limit.enforcement not in ("fixed-plan", "gaussian-filter") for limit in limits):
        raise ValueError(
            'synthesis asks what depends on answers: set enforcement = "fixed-plan" with statistics.share, or '
            '"gaussian-filter"'
        )
    if statistics.max_queries < STAGES:
        raise ValueError(f"statistics.max_queries must be at least {STAGES}, the questions of synthesis")
    if statistics.suppress_below:
        raise ValueError("statistics.suppress_below must be 0 with synthesis, which is made of all noised counts")
    _require_room(synthesis, statistics)


def _require_room(synthesis: Synthesis, statistics: Statistics) -> None:
    if (min_cells := synthesis.least_cells()) > statistics.max_cells:
        raise ValueError(f"statistics.max_cells must be at least {min_cells}, as the first questions of synthesis have")
    if (cells := synthesis.most_cells()) > statistics.max_cells:
        raise ValueError(
            f"statistics.max_cells is {statistics.max_cells}, and a question of synthesis may have {cells} numbers: "
            f"raise it, or set synthesis.max_cells to {statistics.max_cells}, for coarser groups and fewer pairs"
        )
