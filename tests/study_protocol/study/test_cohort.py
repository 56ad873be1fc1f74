"""The section of a study that says who is a patient, in concepts of OMOP."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from study_protocol.study.any_settings import AnySettings, settings_from
from study_protocol.study.cohort import Cohort, CohortColumn, Domain
from study_protocol.study.settings import StudySettings
from study_protocol.terms import in_words
from study_protocol.versions import COHORTS, min_protocol
from tests.factories.settings import settings_json, statistics_settings

AGE = {"of": "age"}
SECTION: dict[str, Any] = {
    "index_event": {"of": "visit", "concepts": [32037]},
    "columns": {"age": AGE, "rate": {"of": "measurement", "concepts": [3027018], "take": "mean", "units": {"8541": 1}}},
}
WITH_VALUES = ("measurement", "observation")
UNITS, VALUES = {"8840": 1.0, "0": 18.016}, {"45877985": "yes", "0": ""}


def cohort(**entries: Any) -> Cohort:
    return Cohort.model_validate(SECTION | entries)


def sound(column: dict[str, Any]) -> bool:
    """The rules of a column as a table of what each kind takes: an independent statement of them."""
    of, take = column["of"], column.get("take", "any")
    given = {name for name in ("concepts", "days", "units", "values") if name in column}
    if of == "age":
        return not given and take == "any"
    if of == "sex":
        return given == {"values"} and take == "any"
    if of == "death":
        return given <= {"days"} and take in ("any", "day")
    if "concepts" not in given:
        return False
    means = {"units", "values"} & given
    if take in ("any", "count", "day"):
        return not means
    if of not in WITH_VALUES:
        return False
    return means == {"units"} if take in ("least", "largest", "mean") else len(means) == 1


columns = st.fixed_dictionaries(
    {"of": st.sampled_from([*get_args(Domain), "age", "sex", "death"])},
    optional={
        "take": st.sampled_from(["any", "count", "day", "first", "last", "least", "largest", "mean"]),
        "concepts": st.just([1, 2]),
        "days": st.just([-7, 0]),
        "units": st.just(UNITS),
        "values": st.just(VALUES),
    },
)


@given(columns)
def test_a_column_is_sound_where_what_it_takes_fits_its_kind(column: dict[str, Any]) -> None:
    if sound(column):
        assert CohortColumn.model_validate(column).of == column["of"]
    else:
        with pytest.raises(ValidationError) as raised:
            CohortColumn.model_validate(column)
        [error] = raised.value.errors()
        assert column["of"] in error["msg"] or column.get("take", "any") in error["msg"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"columns": {}}, "at least 1"),
        ({"columns": {"patient": AGE}}, "patient is the name of the column of patients"),
        ({"columns": {"Patient": AGE}}, "patient is the name of the column of patients"),
        ({"columns": {"age": AGE, "Age": AGE}}, "age and Age differ in capitals"),
        pytest.param({"columns": {"a\n": AGE}}, "control character", id="newline"),
        pytest.param({"columns": {"a\x00": AGE}}, "control character", id="NUL"),
        ({"events": {"patients": {"of": "drug", "concepts": [1]}}}, "patients is the name of the table of patients"),
        ({"events": {"../drugs": {"of": "drug", "concepts": [1]}}}, "pattern"),
        ({"events": {"drugs": {"of": "drug", "concepts": [1], "days": [1, 0]}}}, "first day 1 after the last day 0"),
        ({"events": {"drugs": {"of": "age", "concepts": [1]}}}, "'visit', 'condition'"),
        ({"age": [90, 18]}, "age has the least 90 above the largest 18"),
        ({"age": [-1, 18]}, "greater than or equal to 0"),
        ({"index_event": {"of": "visit", "concepts": [7, 9, 7]}}, "concept 7 stands twice"),
        ({"index_event": {"of": "visit", "concepts": []}}, "at least 1"),
        ({"index_event": {"of": "visit", "concepts": [0]}}, "greater than or equal to 1"),
        ({"index_event": {"of": "visit", "concepts": [1 << 31]}}, "less than 2147483648"),
        ({"index_event": {"of": "visit", "concepts": ["1; DROP TABLE person"]}}, "valid integer"),
        ({"index_event": {"of": "visit; --", "concepts": [1]}}, "'visit', 'condition'"),
    ],
    ids=str,
)
def test_what_is_no_cohort_is_refused_in_words(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        cohort(**entries)


@pytest.mark.parametrize("key", ["2147483648", "9999999999", "-1", "01", "1.0", " 1", "1) OR (1=1", "", "1\n"])
def test_only_numbers_of_concepts_are_keys(key: str) -> None:
    with pytest.raises(ValidationError, match=r"no concept of OMOP|the id of a concept is expected"):
        CohortColumn.model_validate({"of": "sex", "values": {key: "f"}})


@pytest.mark.parametrize("factor", [0, -1.0, float("inf"), float("nan"), "1", True])
def test_only_positive_numbers_are_factors(factor: object) -> None:
    with pytest.raises(ValidationError):
        cohort(columns={"x": SECTION["columns"]["rate"] | {"units": {"1": factor}}})


def of_training(**entries: Any) -> AnySettings:
    return settings_from(settings_json() | {"cohort": SECTION | entries})


def test_a_study_without_it_keeps_its_text() -> None:
    assert "cohort" not in settings_from(settings_json()).as_json()
    assert "cohort" not in statistics_settings().as_json()


@pytest.mark.parametrize("study", [settings_json, lambda: statistics_settings().as_json()], ids=["training", "alone"])
def test_a_study_with_it_needs_programs_that_know_it_and_says_it_in_words(study: Any) -> None:
    settings = settings_from(study() | {"cohort": SECTION | {"age": [18, 90]}})
    assert settings_from(settings.as_json()) == settings
    assert min_protocol(settings.as_json()) == COHORTS
    said = [sentence for subject, sentence in in_words(settings, mine=True) if subject == "cohort"]
    assert said == [
        "patients with a visit of OMOP concepts 32037 and their descendants. The first one is the index event, aged 18 "
        "to 90 at it",
        "columns from an OMOP database or FHIR files: age, rate",
    ]


def test_columns_of_a_study_stand_in_its_cohort() -> None:
    assert isinstance(of_training(), StudySettings)
    with pytest.raises(ValidationError, match=r"cohort\.columns lacks rate, which the study names"):
        of_training(columns={"age": AGE})
    variables = [{"column": "age", "edges": [50]}, {"column": "ill", "categories": ["0", "1"]}]
    synthesis = {"columns": variables, "outcome": "ill", "allowance": 0.05}
    asked = statistics_settings(max_queries=9, max_cells=100).as_json() | {"synthesis": synthesis}
    with pytest.raises(ValidationError, match=r"cohort\.columns lacks ill"):
        settings_from(asked | {"cohort": SECTION})
