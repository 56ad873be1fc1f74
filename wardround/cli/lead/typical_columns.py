"""The command `wardround query columns`: typical ranges and frequencies for settings, from the answer to a question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wardround.cli.shared.settings_file import read_settings
from wardround.cli.shared.shared import AsJson, plain_errors, print_json, say

if TYPE_CHECKING:
    from private_learning.tasks.declared_columns import CategoryColumn, Declared, NumberColumn
    from study_protocol.queries.answer import Answer, AnswerTable
    from study_protocol.queries.kinds.moments import Moments
    from study_protocol.queries.kinds.quantiles import Quantiles
    from study_protocol.study.queries import Query

SettingsFile = Annotated[Path, typer.Argument(help="the settings whose columns are meant")]
AnswerFile = Annotated[
    list[Path], typer.Argument(help="answers that `ask --json` or `query show --json` printed, of moments or quantiles")
]
# A share with more noise than this says little of how frequent a category is.
_MAX_SHARE_ERROR = 0.1
_Figures = Mapping[str, tuple[float, float]]


def columns(settings: SettingsFile, answers: AnswerFile, as_json: AsJson = False) -> None:
    """Print columns for settings from answers: typical ranges, logarithms and frequencies. Costs no privacy.

    Ask `--ready typical` for all columns at once, or kind quantiles (0.05, 0.5 and 0.95) for one, before the study.
    """
    from client_sdk.errors import ConfigurationError
    from private_learning.tasks.columns import PREFIX, read_columns
    from private_learning.tasks.typical import column_text

    with plain_errors():
        declared = {column.name: column for column in read_columns(read_settings(settings).training.task_parameters)}
        by_name = dict(pair for path in answers for pair in columns_of(_query(path), declared))
        if not by_name:
            raise ConfigurationError(f"no answer is about a column of {settings}")
        lines = {f"{PREFIX}{name}": column_text(column) for name, column in by_name.items() if column is not None}
        unsure = [name for name, column in by_name.items() if column is None]
        if as_json:
            print_json({"columns": lines, "unsure": unsure})
        else:
            _show(lines, unsure)


def _show(lines: Mapping[str, str], unsure: Sequence[str]) -> None:
    for name, text in lines.items():
        say(f'"{name}" = "{text}"')
    if unsure:
        say(
            f"too much noise to say anything of {', '.join(unsure)}, or too few categories were "
            "asked about: keep what is declared",
            err=True,
        )


def _query(path: Path) -> Query:
    """Return the query in a file. Raises ConfigurationError: there is none, or it has no answer."""
    from pydantic import ValidationError

    from client_sdk.errors import ConfigurationError
    from study_protocol.study.queries import Query

    try:
        query = Query.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigurationError(
            f"{path} is no query: write it with `wardround query show STUDY NUMBER --json > {path.name}`"
        ) from error
    if query.answered is None:
        raise ConfigurationError(f"{path}: the query has no answer yet")
    return query


def columns_of(query: Query, declared: Mapping[str, Declared]) -> Iterator[tuple[str, Declared | None]]:
    """Yield the columns of the settings that an answer is about, as it suggests them. None: too much noise.

    Raises:
        ConfigurationError: the question is neither about moments nor about quantiles.
    """
    from client_sdk.errors import ConfigurationError
    from study_protocol.queries.kinds.moments import Moments
    from study_protocol.queries.kinds.quantiles import Quantiles

    question, answered = query.document.question, query.answered
    assert answered is not None
    if isinstance(question, Moments):
        return _of_moments(question, answered.published.answer, declared)
    if isinstance(question, Quantiles):
        return _of_quantiles(question, answered.published.answer, declared)
    raise ConfigurationError(f"query {query.number} is of kind {question.kind}: moments or quantiles are needed")


def _of_moments(
    question: Moments, answer: Answer, declared: Mapping[str, Declared]
) -> Iterator[tuple[str, Declared | None]]:
    from private_learning.tasks.declared_columns import NumberColumn

    means, deviations = (_figures(_table(answer, name)) for name in ("mean", "standard-deviation"))
    for name in dict.fromkeys(number.column for number in question.numbers):
        column = declared.get(name)
        if isinstance(column, NumberColumn):
            yield name, _number(column, means.get(name), deviations.get(name))
        elif column is not None:
            yield name, _category(column, means)


def _number(
    column: NumberColumn, mean: tuple[float, float] | None, deviation: tuple[float, float] | None
) -> Declared | None:
    from private_learning.tasks.typical import with_moments

    if mean is None or deviation is None:
        return None
    # The deviation of values in a small part of a range is hardly known where their mean is: one error more is safe.
    safe = deviation[0] + deviation[1]
    return with_moments(column, mean[0], safe) if mean[1] <= safe else None


def _category(column: CategoryColumn, means: _Figures) -> Declared | None:
    from private_learning.tasks.typical import with_frequencies

    read = {name: means[label] for name in column.categories if (label := f"{column.name}: {name}") in means}
    shares = {name: value for name, (value, error) in read.items() if error <= _MAX_SHARE_ERROR}
    # The rest is that of one category, if only one was not asked for.
    if len(shares) < len(column.categories) - 1:
        return None
    rest = max(1 - sum(shares.values()), 0.0)
    counts = [round(1000 * shares.get(name, rest)) for name in column.categories]
    return with_frequencies(column, counts) if any(counts) else None


def _of_quantiles(
    question: Quantiles, answer: Answer, declared: Mapping[str, Declared]
) -> Iterator[tuple[str, Declared | None]]:
    """Raises ConfigurationError: the quantiles give no typical range, or are of groups."""
    from client_sdk.errors import ConfigurationError
    from private_learning.tasks.declared_columns import NumberColumn
    from private_learning.tasks.typical import with_typical

    column, quantiles = declared.get(question.number.column), question.quantiles
    if question.by is not None or min(quantiles) > 0.1 or 0.5 not in quantiles or max(quantiles) < 0.9:
        raise ConfigurationError(
            f"quantiles of {question.number.column}: ask for 0.05, 0.5 and 0.95, without groups (by)"
        )
    if isinstance(column, NumberColumn):
        estimates = _estimates(_table(answer, "quantiles"))
        values = [estimates[share] for share in (min(quantiles), 0.5, max(quantiles)) if share in estimates]
        yield column.name, with_typical(column, *values) if len(values) == 3 else None


def _table(answer: Answer, name: str) -> AnswerTable:
    return next(table for table in answer.tables if table.name == name)


def _figures(table: AnswerTable) -> dict[str, tuple[float, float]]:
    """Return label -> estimate and its error from the noise, of rows that have both."""
    label, estimate, error = (table.columns.index(name) for name in ("column", "estimate", "dp_error"))
    read = {str(row[label]): (_float(row[estimate]), _float(row[error])) for row in table.rows}
    return {name: (value, noise) for name, (value, noise) in read.items() if value is not None and noise is not None}


def _estimates(table: AnswerTable) -> dict[float, float]:
    """Return quantile -> estimate, of rows that have one."""
    quantile, estimate = table.columns.index("quantile"), table.columns.index("estimate")
    pairs = [(_float(row[quantile]), _float(row[estimate])) for row in table.rows]
    return {share: value for share, value in pairs if share is not None and value is not None}


def _float(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
