"""Ready questions about declared columns: from a file, or from the settings of a study that trains on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from client_sdk.errors import ConfigurationError
from study_protocol.queries.ready import READY, READY_OF_MODEL, Declared
from study_protocol.queries.variables import Range, Variable
from study_protocol.wire.values import Message

if TYPE_CHECKING:
    from study_protocol.study.any_settings import AnySettings
    from study_protocol.study.queries import QueryDocument


class Columns(Message):
    """A columns file: `[[columns]]` with `column` and `low`, `high`, or `categories`, or `edges`."""

    columns: Annotated[tuple[Range | Variable, ...], Field(min_length=1)] = Field(description="what is declared")


def ready_question(
    name: str, columns: Sequence[Declared], noise_multiplier: float, model: int | None = None
) -> QueryDocument:
    """model: for those about a released model, its number.

    Raises ConfigurationError: no such ready question, or these columns or this noise make none.
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
    """The columns of a file; without one those that a study's models are trained on.

    Raises:
        ConfigurationError: no file, or one that says something else; or a study that declares no columns.
        OSError: the file cannot be read.
    """
    if columns is not None:
        return _from_file(columns)
    found = () if settings is None else _from_settings(settings)
    if not found:
        raise ConfigurationError(
            "this study declares no columns: pass --columns; `wardround query template columns` writes such a file"
        )
    return found


def _from_file(path: Path) -> tuple[Declared, ...]:
    from pydantic import ValidationError

    from study_protocol.wire.written import Unreadable, read_toml
    from study_protocol.wire.wrong_entries import wrong_entries

    try:
        values = read_toml(path.read_bytes())
    except Unreadable as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error
    try:
        return Columns.model_validate(values).columns
    except ValidationError as error:
        wrong = "\n".join(f"  {line}" for line in wrong_entries(error, Columns))
        raise ConfigurationError(f"{path} is no file of columns:\n{wrong}") from error


def _from_settings(settings: AnySettings) -> tuple[Declared, ...]:
    from private_learning.tasks.columns import NumberColumn, read_columns
    from private_learning.tasks.task import TaskError
    from study_protocol.study.settings import StudySettings

    parameters: Mapping[str, Any] = settings.training.task_parameters if isinstance(settings, StudySettings) else {}
    try:
        found = read_columns(parameters)
    except TaskError:
        return ()
    return tuple(
        Range(column=one.name, low=one.low, high=one.high, missing_values=one.missing_values)
        if isinstance(one, NumberColumn)
        else Variable(column=one.name, categories=one.categories, missing_values=one.missing_values)
        for one in found
        # Questions know no dates.
        if not (isinstance(one, NumberColumn) and one.dates)
    )


def _first_line(error: ValueError) -> str:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(str(one["msg"]) for one in error.errors(include_url=False, include_input=False))
