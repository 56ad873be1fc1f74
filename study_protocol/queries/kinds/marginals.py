"""Many crossed tables of the same columns in one question: what synthetic records are made from.

Columns are declared once, and a clique names those that one table crosses by their numbers. The answer holds noised
whole numbers, one array for each clique, because an object for each of many thousand cells would be large.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from study_protocol.queries.answer import ERRORS, ESTIMATE, RAW, Answer, AnswerArray, AnswerTable, NoisedSum, rows_of
from study_protocol.queries.counting import counts
from study_protocol.queries.kinds.tables import root_up
from study_protocol.queries.phrases import listed
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.variables import Patients, Variable, require_columns_once
from study_protocol.versions import MARGINALS
from study_protocol.wire.values import Whole

MAX_COLUMNS, MAX_CLIQUES, MAX_WEIGHT = 256, 1 << 14, 1 << 12
# Larger whole numbers are not exact as floats. No honest sum reaches them.
_LARGEST = 2.0**53
Clique = Annotated[tuple[Annotated[Whole, Field(ge=0, lt=MAX_COLUMNS)], ...], Field(min_length=1, max_length=8)]
Groups = Annotated[tuple[Annotated[Whole, Field(ge=0, lt=1 << 12)], ...], Field(max_length=1 << 13)]


class Marginals(BaseQuestion):
    """Every patient is counted in one cell of each clique's table, k_i times in that of clique i.

    One patient's vector holds the whole numbers k_i, one in the table of each clique, and Δ = √Σ k_i². Divided by Δ,
    the weights w_i = k_i / Δ have Σ w_i² = 1. So one clique's count has the noise multiplier · Δ / k_i.
    """

    kind: Literal["marginals"] = Field(description="what is asked")
    variables: Annotated[tuple[Variable, ...], Field(min_length=1, max_length=MAX_COLUMNS)] = Field(
        description="the columns, each once. Their numbers count from 0"
    )
    cliques: Annotated[tuple[Clique, ...], Field(min_length=1, max_length=MAX_CLIQUES)] = Field(
        description="of each table, the rising numbers of the columns that it crosses"
    )
    groups: Annotated[tuple[Groups, ...], Field(max_length=MAX_COLUMNS)] = Field(
        default=(), description="of each column, the group of each of its cells, from 0. []: every cell by itself"
    )
    weights: Annotated[tuple[Annotated[Whole, Field(ge=1, le=MAX_WEIGHT)], ...], Field(max_length=MAX_CLIQUES)] = Field(
        default=(), description="how often a patient counts in each table: more, less noise there. []: once"
    )
    stage: Annotated[Whole, Field(ge=1, le=100)] = Field(
        default=1, description="the same question at another stage is another question, with its own cost"
    )

    @field_validator("variables")
    @classmethod
    def _have_each_column_once(cls, variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        require_columns_once(variables)
        return variables

    @field_validator("cliques")
    @classmethod
    def _name_columns(cls, cliques: tuple[Clique, ...], info: ValidationInfo) -> tuple[Clique, ...]:
        columns = len(info.data.get("variables", ()))
        for clique in cliques:
            if list(clique) != sorted(set(clique)) or (columns and clique[-1] >= columns):
                raise ValueError(
                    f"clique {list(clique)}: numbers of columns rise from one to the next and are below {columns}"
                )
        if len(set(cliques)) < len(cliques):
            raise ValueError("cliques: one stands twice")
        return cliques

    @field_validator("groups")
    @classmethod
    def _are_partitions(cls, groups: tuple[Groups, ...], info: ValidationInfo) -> tuple[Groups, ...]:
        variables: tuple[Variable, ...] = info.data.get("variables", ())
        if not variables or not groups:
            return groups
        if len(groups) != len(variables):
            raise ValueError(f"groups: there are {len(variables)} columns, and groups of {len(groups)}")
        for variable, numbers in zip(variables, groups, strict=True):
            if numbers and (len(numbers) != len(variable.labels) or set(numbers) != set(range(max(numbers) + 1))):
                raise ValueError(
                    f"groups of column {variable.column}: one number for each of its {len(variable.labels)} cells, and "
                    "all numbers from 0 to the largest"
                )
        return groups

    @field_validator("weights")
    @classmethod
    def _are_of_cliques(cls, weights: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        cliques = info.data.get("cliques", ())
        if weights and cliques and len(weights) != len(cliques):
            raise ValueError(f"weights: there are {len(cliques)} cliques, and {len(weights)} weights")
        return weights

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of groups of each column, or of cells where it has no groups."""
        groups = self.groups or ((),) * len(self.variables)
        return tuple(
            max(numbers) + 1 if numbers else len(variable.labels)
            for variable, numbers in zip(self.variables, groups, strict=True)
        )

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shape of each clique's table."""
        sizes = self.sizes
        return tuple(tuple(sizes[number] for number in clique) for clique in self.cliques)

    @property
    def times(self) -> tuple[int, ...]:
        """Return k_i: how often one patient counts in each clique's table."""
        return self.weights or (1,) * len(self.cliques)

    @property
    def cells(self) -> int:
        return sum(map(math.prod, self.shapes))

    @property
    def sensitivity(self) -> float:
        return root_up(sum(times**2 for times in self.times))

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(variable.column for variable in self.variables))

    @property
    def protocol(self) -> int:
        return MARGINALS

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included, steps = self.included(patients), round(1 / spacing)
        places = [self._places(number, patients)[included] for number in range(len(self.variables))]
        parts: list[NDArray[np.int64]] = []
        for clique, shape, times in zip(self.cliques, self.shapes, self.times, strict=True):
            cells = np.ravel_multi_index(tuple(places[number] for number in clique), shape)
            parts.append(np.bincount(cells, minlength=math.prod(shape)).astype(np.int64) * (times * steps))
        return np.concatenate(parts)

    def answer(self, noised: NoisedSum) -> Answer:
        spacing = self.grid().spacing
        steps = np.clip(np.rint(noised.total / spacing), -_LARGEST, _LARGEST)
        sizes = [math.prod(shape) for shape in self.shapes]
        tables = np.split(steps, np.cumsum(sizes)[:-1])
        arrays = tuple(
            AnswerArray(
                name=" × ".join(self.variables[number].column for number in clique),
                shape=shape,
                steps=times * round(1 / spacing),
                values=tuple(map(int, table.tolist())),
            )
            for clique, shape, times, table in zip(self.cliques, self.shapes, self.times, tables, strict=True)
        )
        # A table of d cells says the number of patients with the variance d·(std / k)².
        spread = np.array([size / times**2 for size, times in zip(sizes, self.times, strict=True)])
        sums = np.array([table.sum() / array.steps for table, array in zip(tables, arrays, strict=True)])
        variance = 1 / float((1 / spread).sum())
        everybody = counts(np.array([float((sums / spread).sum()) * variance]), np.array([variance * noised.std**2]))
        patients = AnswerTable(
            name="patients",
            title="patients in all",
            columns=(ESTIMATE, RAW, *ERRORS),
            rows=rows_of([()], everybody.estimate, everybody.raw, *everybody.errors),
            counts=ESTIMATE,
        )
        return Answer(tables=(patients,), notes=(_NOTE,), arrays=arrays)

    def in_words(self) -> str:
        members = [frozenset(clique) for clique in self.cliques]
        common = frozenset[int]() if len(members) == 1 else members[0].intersection(*members[1:])
        count = len(frozenset[int]().union(*members) - common)
        tables = _tables_in_words([len(clique - common) for clique in members], count)
        grouped = " in coarse groups" if any(self.groups) else ""
        by = f", by {listed(self.variables[number].column for number in sorted(common))}" if common else ""
        return f"How many patients there are by {tables} {count} columns{grouped}{by}, of patients{self.who_in_words()}"

    def _places(self, number: int, patients: Patients) -> NDArray[np.int32]:
        """Return the group of every patient in one column, shape (n,). Raises UnreadableColumn."""
        places = self.variables[number].places(patients)
        groups = self.groups[number] if self.groups else ()
        return (np.array(groups, np.int32)[places] if groups else places).astype(np.int32)


def _tables_in_words(widths: list[int], columns: int) -> str:
    """Return how many tables are counted, by the number of columns of each."""
    if len(widths) == 1:
        return "a table of"
    if set(widths) == {1}:
        return "each of"
    if set(widths) == {2}:
        return "every pair of" if len(widths) == math.comb(columns, 2) else f"{len(widths)} pairs of"
    return f"{len(widths)} tables of"


_NOTE = "Counts stand in arrays: whole numbers with noise, row by row. A patient counts for as many as `steps` says."
