"""Columns that a study lets a site lack, and what hospitals tell of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from study_protocol.cells.spelling import column_name
from study_protocol.study.training import LONGEST_PARAMETERS
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name

SITE_MAY_LACK = "site-may-lack"
_PREFIX = "column."
# As long as a study's own name of a column may be.
LackingName = Annotated[Text, Field(min_length=1, max_length=LONGEST_PARAMETERS)]


def columns_that_may_lack(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns with the option `site-may-lack`, by name. settings: those of a study as JSON."""
    training: Mapping[str, Any] = settings.get("training") or {}
    parameters: Mapping[str, Any] = training.get("task_parameters") or {}
    return tuple(
        sorted(
            column_name(key.removeprefix(_PREFIX))
            for key, text in parameters.items()
            if key.startswith(_PREFIX) and isinstance(text, str) and SITE_MAY_LACK in map(str.strip, text.split(";"))
        )
    )


class LackingColumns(Message):
    """What a hospital tells of the columns that the study lets a site lack."""

    columns: Annotated[tuple[LackingName, ...], Field(max_length=10_000)] | None = Field(
        description="those that its table lacks. null: it does not tell"
    )

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise ValueError("a column is named twice: name each one once")
        return self


class HospitalLacks(LackingColumns):
    client: Name = Field(description="which hospital")


class LackingList(Message):
    study: Name = Field(description="which study")
    hospitals: list[HospitalLacks] = Field(description="its members in any state, in order of their names")
