"""Ready questions about a study's declared columns. A new one is a function and a name in `READY`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from study_protocol.queries.kinds.evaluation import Evaluation
from study_protocol.queries.kinds.glm import GeneralisedLinear
from study_protocol.queries.kinds.moments import Moments
from study_protocol.queries.kinds.sites import Sites
from study_protocol.queries.kinds.survival import Survival
from study_protocol.queries.kinds.tables import Tables
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.regression.design import Factor
from study_protocol.queries.variables import Indicator, Range, Variable

Declared = Range | Variable
"""A column as a study declares it: a number's public range, or public categories."""
# More bins follow times more closely, and each adds noise.
_TIME_BINS, _GROUPS = 24, 4
# Categories whose shares are asked for: each is an entry, and all entries share the noise.
_MAX_SHARES = 4


def table_one(columns: Sequence[Declared], noise_multiplier: float) -> Tables:
    """Return the first table of a paper: of each column, how many patients are in each bin or category.

    Δ = √columns.
    """
    tables = tuple((binned(column) if isinstance(column, Range) else column,) for column in columns)
    return Tables(kind="tables", title="Table 1", noise_multiplier=noise_multiplier, tables=tables)


def missingness(columns: Sequence[Declared], noise_multiplier: float) -> Tables:
    """Return, of each column, how many patients have a value and how many have none. Δ = √columns."""
    tables = tuple(
        (Variable(column=column.column, presence=True, missing_values=column.missing_values),) for column in columns
    )
    return Tables(kind="tables", title="What is missing", noise_multiplier=noise_multiplier, tables=tables)


def sites(columns: Sequence[Declared], noise_multiplier: float) -> Sites:
    """Return whether hospitals record alike: what is missing, impossible, round or in the upper half. Δ = 1."""
    return Sites(kind="sites", title="Recorded alike?", noise_multiplier=noise_multiplier, variables=tuple(columns))


def typical(columns: Sequence[Declared], noise_multiplier: float) -> Moments:
    """Return means and deviations of numbers, and shares of categories: what `wardround query columns` reads.

    Δ = √(3 entries), or 1.5·√entries with `centred`. A column of k categories has k - 1 entries, and none above 4.

    Raises:
        ValueError: no column has a range or at most 4 categories.
    """
    numbers: list[Range | Indicator] = []
    for column in columns:
        if isinstance(column, Range):
            numbers.append(column)
        elif column.categories is not None and len(column.categories) <= _MAX_SHARES:
            codes = column.missing_values
            numbers += [
                Indicator(column=column.column, categories=(name,), missing_values=codes)
                for name in column.categories[:-1]
            ]
    return Moments(kind="moments", title="Typical values", noise_multiplier=noise_multiplier, numbers=tuple(numbers))


def survival(columns: Sequence[Declared], noise_multiplier: float) -> Survival:
    """Return Kaplan-Meier curves, and the log-rank test if there are groups. Δ = 1.

    Args:
        columns: in this order: the time that patients were followed (its range, or edges), the event (the categories
            that mean it), and any groups.

    Raises:
        ValueError: other columns.
    """
    time, event, *groups = columns if len(columns) in (2, 3) else (None, None)
    if time is None or not isinstance(event, Variable) or event.categories is None:
        raise ValueError(
            "survival takes a time (a range, or edges), then an event (the categories that mean it), then groups, if "
            "there are any, in this order"
        )
    if isinstance(time, Range):
        inner = binned(time, _TIME_BINS).edges or ()
        edges = (time.low + 0.0, *inner, time.high)
        time = Variable(column=time.column, edges=edges, missing_values=time.missing_values)
    by = [binned(group, _GROUPS) if isinstance(group, Range) else group for group in groups]
    return Survival(
        kind="survival",
        title="Survival",
        noise_multiplier=noise_multiplier,
        time=time,
        event=Indicator(column=event.column, categories=event.categories, missing_values=event.missing_values),
        by=by[0] if by else None,
    )


def regression(columns: Sequence[Declared], noise_multiplier: float) -> GeneralisedLinear:
    """Return how an outcome depends on other columns: by logistic regression of categories, else by least squares.

    Args:
        columns: in this order: the outcome, then its predictors. Of an outcome with two categories the second one is
            explained, of one with one category that one. The first category of a predictor is its reference.
        noise_multiplier: of all steps together.

    Raises:
        ValueError: other columns.
    """
    if len(columns) < 2:
        raise ValueError("a regression takes the outcome, then at least one predictor, in this order")
    outcome, *predictors = columns
    if isinstance(outcome, Range):
        family, explained = "linear", outcome
    elif outcome.categories is not None and len(outcome.categories) <= 2:
        codes = outcome.missing_values
        family = "logistic"
        explained = Indicator(column=outcome.column, categories=outcome.categories[-1:], missing_values=codes)
    else:
        raise ValueError(f"column {outcome.column}: an outcome has a range, or one or two categories")
    # As JSON, so that the question fills in the noise of its steps.
    return GeneralisedLinear.model_validate(
        {
            "kind": "glm",
            "title": f"What goes with {outcome.column}",
            "noise_multiplier": noise_multiplier,
            "family": family,
            "outcome": explained,
            "predictors": [_predictor(column) for column in predictors],
        }
    )


def _predictor(column: Declared) -> Range | Indicator | Factor:
    if isinstance(column, Range):
        return column
    if column.categories is None:
        raise ValueError(f"column {column.column}: a predictor has a range or categories")
    categories, codes = column.categories, column.missing_values
    if len(categories) == 1:
        return Indicator(column=column.column, categories=categories, missing_values=codes)
    return Factor(column=column.column, categories=categories, reference=categories[0], missing_values=codes)


def evaluation(columns: Sequence[Declared], noise_multiplier: float, model: int) -> Evaluation:
    """Return the quality of a released model of a yes or no, for all patients and for each column's groups.

    It is the 2 x 2 table at a half, which is right with few patients. Δ = √columns, 1 without a column.
    """
    groups = tuple(binned(column) if isinstance(column, Range) else column for column in columns)
    return Evaluation(
        kind="evaluation",
        title=f"How good model {model} is",
        noise_multiplier=noise_multiplier,
        model=model,
        prediction="binary",
        edges=(0.5,),
        groups=groups,
        apart=len(groups) > 1,
    )


Ready = Callable[[Sequence[Declared], float], BaseQuestion]
"""columns, noise_multiplier -> the question."""
READY: Mapping[str, Ready] = {
    "table-one": table_one,
    "missingness": missingness,
    "sites": sites,
    "typical": typical,
    "survival": survival,
    "regression": regression,
}
ReadyOfModel = Callable[[Sequence[Declared], float, int], BaseQuestion]
"""columns, noise_multiplier, number of a released model -> the question. It needs no columns: they are groups."""
READY_OF_MODEL: Mapping[str, ReadyOfModel] = {"evaluation": evaluation}


def binned(number: Range, max_bins: int = 8) -> Variable:
    """Return bins of round width, at most `max_bins`: 18 to 90 becomes below 20, 20 to 30, …, 80 and above."""
    width = (number.high - number.low) / max_bins
    power = 10.0 ** math.floor(math.log10(width))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= width * (1 - 1e-12))
    first, last = math.floor(number.low / step) + 1, math.ceil(number.high / step) - 1
    # Rounded as decimals: 3 · 0.1 is 0.30000000000000004.
    digits = max(0, -math.floor(math.log10(step)))
    edges = tuple(round(place * step, digits) + 0.0 for place in range(first, last + 1))
    return Variable(column=number.column, edges=edges, missing_values=number.missing_values)
