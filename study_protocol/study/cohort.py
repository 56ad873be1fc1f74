"""The patients of a study, and what is known of each, in public concepts of OMOP: the section `cohort`.

A hospital with an OMOP database or FHIR files maps nothing: its program makes the study's table from this section. It
holds numbers and words alone, and no query language.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from study_protocol.cells import cleaned, column_name
from study_protocol.queries.variables import ColumnName
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name, Positive, Whole

Domain = Literal["visit", "condition", "drug", "measurement", "observation"]
# OMOP keeps concepts in columns of 32 bits.
_CONCEPTS = 1 << 31
_CONCEPT = r"^(0|[1-9][0-9]{0,9})$"
_COLUMN_PREFIX = "column."


def _once(concepts: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(concepts)) < len(concepts):
        twice = min(concept for concept in concepts if concepts.count(concept) > 1)
        raise ValueError(f"concept {twice} stands twice: name each concept once")
    return concepts


def _written_plainly(concept: object) -> object:
    if isinstance(concept, str) and not re.fullmatch(_CONCEPT, concept):
        raise ValueError("the id of a concept is expected, such as 8840")
    return concept


def _not_above_the_largest(concept: str) -> str:
    if int(concept) >= _CONCEPTS:
        raise ValueError(f"{concept} is no concept of OMOP: the largest is {_CONCEPTS - 1}")
    return concept


def _in_order(days: tuple[int, int]) -> tuple[int, int]:
    if days[0] > days[1]:
        raise ValueError(f"days has the first day {days[0]} after the last day {days[1]}: exchange them")
    return days


Concept = Annotated[Whole, Field(ge=1, lt=_CONCEPTS)]
Concepts = Annotated[tuple[Concept, ...], Field(min_length=1, max_length=1000), AfterValidator(_once)]
# TOML and JSON have texts as keys.
ConceptText = Annotated[
    str, BeforeValidator(_written_plainly), Field(pattern=_CONCEPT), AfterValidator(_not_above_the_largest)
]
_Day = Annotated[Whole, Field(ge=-36_500, le=36_500)]
Days = Annotated[tuple[_Day, _Day], AfterValidator(_in_order)]
_Age = Annotated[Whole, Field(ge=0, le=150)]
PATIENT, CODE, DAY = "patient", "code", "day"
"""Columns of every table: the patient, and of a table of events also the concept and the day."""
PATIENTS = "patients"
"""The table with one row for each patient."""
COHORT_SECTION = "who is a patient of the study, and the columns, in public concepts of OMOP"
# Names that a sentence lists, at most.
_LISTED = 20
_OF_NUMBERS = ("least", "largest", "mean")
_OF_VALUES = ("first", "last", *_OF_NUMBERS)


class _Events(Message):
    concepts: Concepts = Field(description="public concept ids of OMOP's standard vocabularies")
    descendants: bool = Field(default=True, description="their descendants count, too")


class IndexEvent(_Events):
    """The event from which all days are counted. Patients without one are not in the study."""

    of: Domain = Field(description="the table that holds it")
    occurrence: Literal["first", "last"] = Field(default="first", description="which one of a patient with several")


class CohortColumn(Message):
    """One column of the table of patients."""

    of: Literal["age", "sex", "death", "visit", "condition", "drug", "measurement", "observation"] = Field(
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
    units: Annotated[dict[ConceptText, Positive], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="unit concept -> factor to the study's unit. Other units are refused. 0: no unit"
    )
    values: Annotated[dict[ConceptText, Text], Field(min_length=1, max_length=1000)] | None = Field(
        default=None, description="value concept -> word in the column. An empty word means missing. Others are refused"
    )

    @model_validator(mode="after")
    def _names_concepts_of_events_alone(self) -> Self:
        if self.of in ("age", "sex", "death"):
            if self.concepts is not None or not self.descendants:
                raise ValueError(f"a column of {self.of} takes no concepts and no descendants: remove them")
        elif self.concepts is None:
            raise ValueError(f"a column of {self.of} needs concepts")
        if self.of in ("age", "sex") and self.days is not None:
            raise ValueError(f"a column of {self.of} takes no days: remove them")
        return self

    @model_validator(mode="after")
    def _takes_what_there_is(self) -> Self:
        if self.of in ("age", "sex") and self.take != "any":
            raise ValueError(f"a column of {self.of} takes no take: remove it")
        if self.of == "death" and self.take not in ("any", "day"):
            raise ValueError("a column of death has take any or day")
        if self.take in _OF_VALUES and self.of not in ("measurement", "observation"):
            raise ValueError(f"take {self.take} is of values, and {self.of} has none: take any, count or day")
        return self

    @model_validator(mode="after")
    def _says_what_values_mean(self) -> Self:
        if self.of == "sex":
            if self._meanings != ["values"]:
                raise ValueError("a column of sex needs values, a word for each gender concept, and no units")
        elif self.take in _OF_NUMBERS:
            if self._meanings != ["units"]:
                raise ValueError(f"take {self.take} needs units, a factor for each unit concept, and no values")
        elif self.take in _OF_VALUES:
            if len(self._meanings) != 1:
                raise ValueError(f"take {self.take} needs either units (for numbers) or values (for words)")
        elif self._meanings:
            subject = f"a column of {self.of}" if self.of in ("age", "death") else f"take {self.take}"
            raise ValueError(f"{subject} uses no {self._meanings[0]}: remove it")
        return self

    @property
    def _meanings(self) -> list[str]:
        return [name for name in ("units", "values") if getattr(self, name) is not None]


class CohortEvents(_Events):
    """A table of events for a task on sequences: patient, code (a concept of `concepts`) and day."""

    of: Domain = Field(description="the table that holds them")
    days: Days | None = Field(
        default=None, description="first and last day that count, from the day of the index event. Left out: all"
    )


class Cohort(Message):
    """The patients of the study and their columns, from an OMOP database or FHIR files."""

    index_event: IndexEvent = Field(description="the event from which all days are counted")
    age: tuple[_Age, _Age] | None = Field(
        default=None, description="whole years at it, least and largest. Other patients are left out"
    )
    columns: Annotated[dict[ColumnName, CohortColumn], Field(min_length=1, max_length=2000)] = Field(
        description="columns of the table of patients"
    )
    events: Annotated[dict[Name, CohortEvents], Field(max_length=100)] = Field(
        default={}, description="tables of events"
    )

    @model_validator(mode="after")
    def _has_names_that_tables_can_have(self) -> Self:
        if self.age is not None and self.age[0] > self.age[1]:
            raise ValueError(f"age has the least {self.age[0]} above the largest {self.age[1]}: exchange them")
        if PATIENTS in self.events:
            raise ValueError(f"events: {PATIENTS} is the name of the table of patients: give this table another name")
        # Databases tell no two names of columns apart by capitals.
        name_of = {PATIENT: PATIENT}
        for name in self.columns:
            if (first := name_of.setdefault(_folded(name), name)) != name or name == PATIENT:
                raise ValueError(
                    f"columns: {PATIENT} is the name of the column of patients: give this column another name"
                    if first == PATIENT
                    else f"columns: {first} and {name} differ in capitals or the form of letters alone: rename one"
                )
        return self

    def in_words(self) -> list[str]:
        """Return sentences for a hospital that may join: who is a patient, and what is made of each."""
        event = self.index_event
        below = " and their descendants" if event.descendants else ""
        age = "" if self.age is None else f", aged {self.age[0]} to {self.age[1]} at it"
        tables = f". Tables of events: {_listed(self.events)}" if self.events else ""
        return [
            f"patients with a {event.of} of OMOP concepts {_listed(map(str, event.concepts))}{below}. The "
            f"{event.occurrence} one is the index event{age}",
            f"columns from an OMOP database or FHIR files: {_listed(self.columns)}{tables}",
        ]


def _listed(names: Iterable[str]) -> str:
    each = list(names)
    more = f" and {len(each) - _LISTED} more" if len(each) > _LISTED else ""
    return ", ".join(each[:_LISTED]) + more


def _folded(name: str) -> str:
    return " ".join(cleaned(name).casefold().split())


def require_columns(cohort: Cohort, parameters: Mapping[str, object], further: Iterable[str]) -> None:
    """Check that the columns that a study names are among those of its cohort.

    The label and other names that only a task can tell are checked by `data check`.

    Args:
        parameters: of the task, with a key `column.NAME` for each column.
        further: names of other columns.

    Raises:
        ValueError: the cohort lacks one. The text names it.
    """
    keys = (key.removeprefix(_COLUMN_PREFIX) for key in parameters if key.startswith(_COLUMN_PREFIX))
    names = {column_name(name) for name in cohort.columns}
    lacking = [name for name in (*keys, *further) if column_name(name) not in names]
    if lacking:
        raise ValueError(f"cohort.columns lacks {lacking[0]}, which the study names: add it, or remove it there")
