"""How long until an event: Kaplan-Meier curves by group, and the log-rank test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import Answer, AnswerTable, NoisedSum, rows_of
from study_protocol.queries.counting import Estimates, Floats, counts, join_estimates
from study_protocol.queries.kinds.groups import by_in_words, curve_table, group_count, group_places, take_rows
from study_protocol.queries.life_table import LifeTable, LogRank, log_rank
from study_protocol.queries.phrases import codes_in_words, listed
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.variables import MISSING, OTHER_LABEL, Indicator, Patients, Variable, plain
from study_protocol.wire.values import Finite

MAX_GROUPS = 64
_LEFT_OUT, _LATER, _BINS = 0, 1, 2


class Survival(BaseQuestion):
    """Kaplan-Meier curves over public time bins, their medians, numbers at risk, and the log-rank test.

    One patient's vector is one-hot, Δ = 1. Among the cells of its group it is the bin of its time crossed with event or
    censored. A patient who is followed to the last edge has the cell of those, even with an event later. A patient is
    left out if the time is missing or before the first edge, or if the record does not say whether the event happened.
    """

    kind: Literal["survival"] = Field(description="what is asked")
    time: Variable = Field(
        description="how long each patient was followed. Its edges begin where follow-up begins",
        examples=[{"column": "days", "edges": [0.0, 90.0, 180.0, 270.0, 365.0]}],
    )
    event: Indicator = Field(description="the categories that mean that the event ended it. All others mean censored")
    by: Variable | None = Field(default=None, description="groups of patients, each with its own curve")
    times: Annotated[tuple[Finite, ...], Field(max_length=64)] = Field(
        default=(), description="edges at which survival is shown in a table of its own"
    )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        if self.time.edges is None or len(self.time.edges) < 2:
            raise ValueError(f"column {self.time.column}: a time has at least two edges")
        columns = [self.time.column, self.event.column, *(() if self.by is None else (self.by.column,))]
        if twice := {name for name in columns if columns.count(name) > 1}:
            raise ValueError(f"column {min(twice)}: stands twice")
        if group_count(self.by) > MAX_GROUPS:
            raise ValueError(f"by: at most {MAX_GROUPS} groups, those of other and missing values among them")
        if not set(self.times) <= set(self.time.edges) or list(self.times) != sorted(set(self.times)):
            raise ValueError("times rise, and each is one of the edges of the time. Add the missing edge")
        return self

    @property
    def edges(self) -> tuple[float, ...]:
        return self.time.edges or ()

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def cells(self) -> int:
        """Cells of each group: left out, later, then the bins' events, then their censorings."""
        return group_count(self.by) * (_BINS + 2 * self.bins)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(
            self.time.column, self.event.column, *(() if self.by is None else (self.by.column,))
        )

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included = self.included(patients)
        place, event = self.time.places(patients), self.event.scaled(patients)
        cells = np.where(event > 0, place - 1, place - 1 + self.bins) + _BINS
        cells[place == self.bins + 1] = _LATER
        cells[np.isnan(event) | (place == 0) | (place == self.bins + 2)] = _LEFT_OUT
        cells += group_places(self.by, patients, len(included)) * (_BINS + 2 * self.bins)
        return np.bincount(cells[included], minlength=self.cells).astype(np.int64) * round(1 / spacing)

    def answer(self, noised: NoisedSum) -> Answer:
        rows = noised.total.reshape(group_count(self.by), -1)
        groups = [
            LifeTable(row[_BINS : _BINS + self.bins], row[_BINS + self.bins :], float(row[_LATER]), noised.std)
            for row in rows
        ]
        left_out = counts(rows[:, _LEFT_OUT], np.full(len(rows), noised.std**2))
        compared = [groups[place] for place in self._compared]
        notes = [_BINNED, *([_TOO_FEW] if any(group.known_bins < self.bins for group in groups) else [])]
        tables = self._curves(groups, left_out)
        if len(compared) > 1:
            tables.append(_test(log_rank(compared)))
            notes.append(_TESTED)
        return Answer(tables=tuple(tables), notes=tuple(notes))

    def _curves(self, groups: list[LifeTable], left_out: Estimates) -> list[AnswerTable]:
        by, edges = self.by, self.edges
        curves, at_risk = [group.survival for group in groups], [group.numbers_at_risk() for group in groups]
        patients = [estimates.estimate for estimates in at_risk]
        medians = [group.median(np.array(edges)) for group in groups]
        edge_places = [edges.index(time) for time in self.times]
        followed = [
            join_estimates([take_rows(estimates, [0]), take_rows(left_out, [place])])
            for place, estimates in enumerate(at_risk)
        ]
        tables = [
            curve_table("survival", "survival", by, ("time", edges), curves, patients, "steps"),
            curve_table(
                "median", "time at which so many survive", by, ("survival", (0.5,)), medians, _firsts(patients)
            ),
            curve_table("at-risk", "patients at risk", by, ("time", edges), at_risk, None),
            curve_table("patients", "patients", by, ("who", ("followed", "left out")), followed, None),
        ]
        if edge_places:
            some, rests = (
                [take_rows(curve, edge_places) for curve in curves],
                [estimates[edge_places] for estimates in patients],
            )
            tables.insert(1, curve_table("at-times", "survival", by, ("time", self.times), some, rests))
        return tables

    @property
    def _compared(self) -> list[int]:
        """Groups that the test compares: not those of other and missing values, unless presence is the question."""
        labels = () if self.by is None else self.by.labels
        every = self.by is not None and self.by.presence
        return [place for place, label in enumerate(labels) if every or label not in (OTHER_LABEL, MISSING)]

    def in_words(self) -> str:
        first, last = plain(self.edges[0]), plain(self.edges[-1])
        until = (
            f"{self.event.column} is {listed(self.event.categories, 'or')}{codes_in_words(self.event.missing_values)}"
        )
        return (
            f"How long it takes until {until}: survival over {self.time.column} in {self.bins} bins from {first} to "
            f"{last}{codes_in_words(self.time.missing_values)}{by_in_words(self.by)}, of patients{self.who_in_words()}"
        )


_BINNED = (
    "Times are counted in bins, each with its beginning and without its end. In a bin events come before censorings. "
    "Survival at a time is the share whose event is not before it. A curve is known at the edges of its bins only, and "
    "censoring inside wide bins moves it upwards. The median lies on a straight line between edges. One without an "
    "estimate, or an end of its interval, is not reached. Estimates are made to fit: survival and numbers at risk "
    "never rise. Intervals and the numbers before adjustment (raw) do not have this."
)
_TOO_FEW = (
    "Where no survival is shown, there are too few patients at risk for so much noise: it would divide by nearly zero."
)
_TESTED = (
    "The log-rank test divides by the variance of sampling and of the noise together: if all groups fare alike, p is "
    "below 0.05 in at most about one of twenty answers. It finds smaller differences where there is less noise. "
    "Groups of other and of missing values are not compared."
)


def _test(log_rank: LogRank) -> AnswerTable:
    return AnswerTable(
        name="log-rank",
        title="log-rank test: do all groups fare alike",
        columns=("statistic", "degrees", "p_value"),
        rows=rows_of([()], [log_rank.statistic], [log_rank.degrees], [log_rank.p_value]),
    )


def _firsts(curves: Sequence[Floats]) -> list[float]:
    return [float(curve[0]) for curve in curves]
