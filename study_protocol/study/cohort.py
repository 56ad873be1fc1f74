"""Who is a patient of the study, and what is known of each, in public concepts of OMOP: the section `cohort`.

A hospital with an OMOP database or FHIR files maps nothing: its program makes the study's table from this section. It
holds numbers and words alone, and no query language.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from study_protocol.queries.variables import ColumnName
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name, Positive, Whole

Domain = Literal["visit", "condition", "drug", "measurement", "observation"]
Concept = Annotated[Whole, Field(ge=1, lt=1 << 31)]
Concepts = Annotated[tuple[Concept, ...], Field(min_length=1, max_length=1000)]
# TOML and JSON have texts as keys.
ConceptText = Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,9})$")]
_Day = Annotated[Whole, Field(ge=-36_500, le=36_500)]
Days = tuple[_Day, _Day]
PATIENT, CODE, DAY = "patient", "code", "day"
"""Columns of every table: the patient, and of a table of events also the concept and the day."""


class _Events(Message):
    concepts: Concepts = Field(description="public concept ids of OMOP's standard vocabularies")
    descendants: bool = Field(default=True, description="their descendants count, too")


class IndexEvent(_Events):
    """The event from which all days are counted. Patients without one are not in the study."""

    of: Domain = Field(description="the table that holds it")
    occurrence: Literal["first", "last"] = Field(default="first", description="which one of a patient with several")


class CohortColumn(Message):
    """One column of the table of patients."""

    of: Domain | Literal["age", "sex", "death"] = Field(
        description="age: whole years at the index event. sex: by `values`. death, or events of a table"
    )
    concepts: Concepts | None = Field(default=None, description="of events: public concept ids")
    descendants: bool = Field(default=True, description="their descendants count, too")
    days: Days | None = Field(
        default=None, description="first and last day that count, from the day of the index event. Left out: all"
    )
    take: Literal["any", "count", "day", "first", "last", "least", "largest", "mean"] = Field(
        default="any",
        description="any: 1 or 0. count: how many. day: of the first one, from the index event. The others are of "
        "values, by `units` or `values`",
    )
    units: dict[ConceptText, Positive] | None = Field(
        default=None, description="unit concept -> factor to the study's unit. Other units are refused. 0: no unit"
    )
    values: dict[ConceptText, Text] | None = Field(
        default=None, description="value concept -> word in the column. An empty word means missing. Others are refused"
    )


class CohortEvents(_Events):
    """A table of events for a task on sequences: patient, code (a concept of `concepts`) and day."""

    of: Domain = Field(description="the table that holds them")
    days: Days | None = Field(
        default=None, description="first and last day that count, from the day of the index event. Left out: all"
    )


class Cohort(Message):
    """The patients of the study and their columns, from an OMOP database or FHIR files."""

    index_event: IndexEvent = Field(description="the event from which all days are counted")
    age: tuple[Whole, Whole] | None = Field(default=None, description="whole years at it, least and largest")
    columns: Annotated[dict[ColumnName, CohortColumn], Field(min_length=1, max_length=2000)] = Field(
        description="columns of the table of patients"
    )
    events: dict[Name, CohortEvents] = Field(default={}, description="tables of events")
