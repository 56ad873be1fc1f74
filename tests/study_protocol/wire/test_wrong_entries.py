"""Wrong entries of a settings file, in words and without any value."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Discriminator, Field, ValidationError, model_validator

from study_protocol.study.settings import StudySettings
from study_protocol.wire.wrong_entries import wrong_entries
from tests.factories.settings import settings


@pytest.mark.parametrize("name", ["column", "events"])
def test_a_dotted_name_without_quotation_marks_is_named(name: str) -> None:
    values = settings().as_json()
    values["training"]["task_parameters"] |= {name: {"age": "0..1", "unit": {"b": 1}}}
    with pytest.raises(ValueError, match="task_parameters") as error:
        StudySettings.model_validate(values)
    assert [line for line in wrong_entries(error.value, StudySettings) if "dot" in line] == [  # type: ignore[arg-type]
        f'training.task_parameters: a name with a dot stands in quotation marks: "{name}.{rest}" = ...'
        for rest in ("age", "unit.b")
    ]


class Place(BaseModel):
    model_config = ConfigDict(extra="forbid")
    city: str
    codes: Annotated[tuple[int, ...], Field(min_length=2, max_length=3)] = (1, 2)

    @model_validator(mode="after")
    def _is_a_place(self) -> Place:
        reasons = {"": "city is empty", "far": "codes: belong to a near city", "dark": "place.codes: are needed there"}
        if self.city in reasons:
            raise ValueError(reasons[self.city])
        if self.city == "odd":
            raise ValueError("no such place is known")
        return self


class Circle(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["square"]
    width: float


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    place: Place
    shape: Annotated[Circle | Square, Discriminator("kind")] | None = None
    parameters: dict[str, float] = {}
    others: dict[str, Place] = {}

    @model_validator(mode="after")
    def _is_sound(self) -> Plan:
        if self.place.city == "nowhere":
            raise ValueError("a plan is of some place")
        return self


PLACE = {"city": "Rome"}


@pytest.mark.parametrize(
    ("document", "lines"),
    [
        ({}, ["place: is missing"]),
        ({"place": {}}, ["place.city: is missing"]),
        ({"place": PLACE | {"ciyt": "secret"}}, ["place.ciyt: there is no such entry. Did you mean city?"]),
        ({"place": PLACE | {"zzz": 1}}, ["place.zzz: there is no such entry"]),
        ({"place": PLACE | {"codes": "secret"}}, ['place.codes: must be a list, such as ["one", "two"]']),
        ({"place": PLACE | {"codes": [1]}}, ["place.codes: must have at least 2 entries"]),
        ({"place": PLACE | {"codes": [1, 2, 3, 4]}}, ["place.codes: must have at most 3 entries"]),
        ({"place": {"city": "nowhere"}}, ["a plan is of some place"]),
        # A rule of a whole section names one of its entries, alone or with its path, or none.
        ({"place": {"city": ""}}, ["place: city is empty"]),
        ({"place": {"city": "far"}}, ["place.codes: belong to a near city"]),
        ({"place": {"city": "dark"}}, ["place.codes: are needed there"]),
        ({"place": {"city": "odd"}}, ["place: no such place is known"]),
        ({"place": PLACE, "shape": {"radius": 1}}, ["shape.kind: is missing"]),
        ({"place": PLACE, "shape": {"kind": "secret"}}, ["shape.kind: must be one of circle, square"]),
        (
            {"place": PLACE, "shape": {"kind": "square", "width": 1, "witdh": 2}},
            ["shape.square.witdh: there is no such entry. Did you mean width?"],
        ),
        # A section with a free name says itself what is wrong.
        (
            {"place": PLACE, "others": {"home": PLACE | {"ciyt": "secret"}}},
            ["others.home.ciyt: there is no such entry. Did you mean city?"],
        ),
        ({"place": PLACE, "others": {"home": {}}}, ["others.home.city: is missing"]),
        (
            {"place": PLACE, "parameters": {"age": "secret"}},
            ["parameters.age: must be a text without control characters, a number, true or false"],
        ),
    ],
)
def test_every_wrong_entry_is_named_without_its_value(document: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(ValidationError) as error:
        Plan.model_validate(document)
    assert wrong_entries(error.value, Plan) == lines


def test_a_list_that_is_short_because_its_entries_are_wrong_is_not_named_twice() -> None:
    with pytest.raises(ValidationError) as error:
        Plan.model_validate({"place": PLACE | {"codes": ["secret"]}})
    (line,) = wrong_entries(error.value, Plan)
    assert line.startswith("place.codes.0: must be a valid integer")
