"""Expected errors of an answer before a question is asked: from public knowledge alone, never from records.

The asker says how many patients there may be. Their values are assumed: see `assumed` of each kind.
"""

from __future__ import annotations

from pydantic import Field

from study_protocol.queries.answer import DP_ERROR, ESTIMATE, SAMPLING_ERROR, NoisedSum
from study_protocol.queries.evaluation.tables import MEASURE
from study_protocol.queries.question import BaseQuestion
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message

MAX_PATIENTS = 10**9
# Sums of 0 come back from their transform as this part of the largest, at most.
ROUNDING = 1e-12


class ExpectedError(Message):
    """The expected error of one figure of the answer, null where it is unknown."""

    figure: Text = Field(description="what is estimated")
    estimate: Finite | None = Field(description="what is assumed that it is")
    dp_error: Finite | None = Field(description="standard deviation that comes from the noise")
    sampling_error: Finite | None = Field(description="standard deviation that comes from having so many patients")

    @property
    def noise_decides(self) -> bool:
        """Whether the noise hides more than having so few patients does."""
        return self.dp_error is None or self.sampling_error is None or self.dp_error > self.sampling_error


def expected_errors(question: BaseQuestion, patients: int, std: float) -> tuple[ExpectedError, ...]:
    """Return the errors of the first figures of the answer, or none if the kind does not say what to assume.

    Args:
        patients: how many are asked about, over all hospitals.
        std: standard deviation of the noise in each number, on the scale of one patient's vector. Of a question in
            steps, that of the first. The errors are those of the last.
    """
    last = question.assumed_last(patients)
    assumed = last.assumed(patients)
    if assumed is None:
        return ()
    table = last.answer(NoisedSum(assumed, std * last.noise_multiplier / question.noise_multiplier, 0)).tables[0]
    count_column = table.columns.index(table.counts or ESTIMATE)
    largest = max((abs(_number(row[count_column]) or 0.0) for row in table.rows), default=0.0)
    groups: dict[tuple[object, ...], list[ExpectedError]] = {}
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        number = _number(cells[table.counts or ESTIMATE])
        if number is not None and abs(number) <= ROUNDING * largest:
            # A group in which no patient is expected.
            continue
        # Of an imagined cohort the estimate is chance, and nobody's assumption.
        error = _error(table.title, cells, has_estimate=last is question)
        groups.setdefault((cells.get(MEASURE), error.estimate, error.dp_error, error.sampling_error), []).append(error)
    return tuple(_merged(errors) for errors in groups.values())


def _error(title: str, cells: dict[str, float | str | None], *, has_estimate: bool) -> ExpectedError:
    names = list(cells)
    labels = [str(cells[name]) for name in names[: names.index(ESTIMATE)]]
    estimate, dp_error, sampling_error = (_number(cells[name]) for name in (ESTIMATE, DP_ERROR, SAMPLING_ERROR))
    return ExpectedError(
        figure=", ".join(labels) or title,
        estimate=estimate if has_estimate else None,
        dp_error=dp_error,
        sampling_error=sampling_error,
    )


def _merged(errors: list[ExpectedError]) -> ExpectedError:
    first, *similar = errors
    more = f" (and {len(similar)} more like it)" if similar else ""
    return first.model_copy(update={"figure": first.figure + more})


def _number(value: float | str | None) -> float | None:
    # Rounded: groups that are alike differ in their last digit.
    return None if value is None or isinstance(value, str) else float(f"{value:.9g}")
