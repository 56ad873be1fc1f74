"""Ready questions about declared columns, from a columns file or from the settings of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from client_sdk.errors import ConfigurationError
from study_protocol.queries.ready import READY, READY_OF_MODEL, Declared
from study_protocol.queries.variables import MISSING, OTHER_LABEL, Range, Variable
from study_protocol.wire.values import Message

if TYPE_CHECKING:
    from private_learning.tasks.declared_columns import CategoryColumn
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.queries import QueryDocument


class ColumnsFile(Message):
    """A columns file: `[[columns]]` with `column` and `low`, `high`, or `categories`, or `edges`."""

    columns: Annotated[tuple[Range | Variable, ...], Field(min_length=1)] = Field(description="what is declared")


def ready_question(
    name: str, columns: Sequence[Declared], noise_multiplier: float, model: int | None = None
) -> QueryDocument:
    """Return a ready question about the columns. model: number of the released model that it is about.

    Raises:
        ConfigurationError: there is no such ready question, or it does not fit these columns or this noise.
    """
    from study_protocol.study.queries import QueryDocument

    if name not in (*READY, *READY_OF_MODEL):
        raise ConfigurationError(f"no ready question {name!r}: there are {', '.join((*READY, *READY_OF_MODEL))}")
    if (model is not None) != (name in READY_OF_MODEL):
        raise ConfigurationError(f"--model goes with --ready {' or '.join(READY_OF_MODEL)}, which needs it")
    try:
        question = (
            READY[name](columns, noise_multiplier)
            if model is None
            else READY_OF_MODEL[name](columns, noise_multiplier, model)
        )
        return QueryDocument.model_validate({"question": question.model_dump(mode="json")})
    except ValueError as error:
        raise ConfigurationError(f"these columns do not make a question {name}: {_first_line(error)}") from error


def declared(columns: Path | None, settings: AnySettings | None) -> tuple[Declared, ...]:
    """Return the columns of a file, or without a file the columns that the study trains on.

    Raises:
        ConfigurationError: the file is not a columns file, or the study declares no columns.
        OSError: the file cannot be read.
    """
    if columns is not None:
        return _from_file(columns)
    columns_of_study = () if settings is None else _from_settings(settings)
    if not columns_of_study:
        raise ConfigurationError(
            "this study declares no columns: pass --columns. `wardround query template columns` writes such a file"
        )
    return columns_of_study


def _from_file(path: Path) -> tuple[Declared, ...]:
    from pydantic import ValidationError

    from study_protocol.wire.written import Unreadable, read_toml
    from study_protocol.wire.wrong_entries import wrong_entries

    try:
        values = read_toml(path.read_bytes())
    except Unreadable as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    try:
        return ColumnsFile.model_validate(values).columns
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, ColumnsFile))
        raise ConfigurationError(f"{path} is no file of columns:\n{wrong}") from error


def _from_settings(settings: AnySettings) -> tuple[Declared, ...]:
    from pydantic import ValidationError

    from private_learning.tasks.columns import NumberColumn, read_columns
    from private_learning.tasks.task import TaskError
    from study_protocol.study.settings import StudySettings

    parameters: Mapping[str, Any] = settings.training.task_parameters if isinstance(settings, StudySettings) else {}
    try:
        task_columns = read_columns(parameters)
    except TaskError:
        return ()
    try:
        return tuple(
            Range(column=column.name, low=column.low, high=column.high, missing_values=column.missing_values)
            if isinstance(column, NumberColumn)
            else _variable(column)
            for column in task_columns
            # Questions cannot read dates.
            if not (isinstance(column, NumberColumn) and column.dates)
        )
    except ValidationError as error:
        raise ConfigurationError(
            f"no question can be about all of the study's columns: {_first_line(error)}. Pass --columns with the others"
        ) from error


def _variable(column: CategoryColumn) -> Variable:
    """Return a column of categories as questions read it: they have cells of their own for other and missing."""
    categories = tuple(name for name in column.categories if name not in (OTHER_LABEL, MISSING))
    codes = dict.fromkeys((*column.missing_values, *({MISSING} & set(column.categories))))
    if not categories:
        return Variable(column=column.name, presence=True, missing_values=tuple(codes))
    return Variable(column=column.name, categories=categories, missing_values=tuple(codes))


def _first_line(error: ValueError) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(str(detail["msg"]) for detail in error.errors(include_url=False, include_input=False))
