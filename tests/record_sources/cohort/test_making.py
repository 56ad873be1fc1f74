"""Tables of a cohort, beside plain Python on the same staged rows."""

from __future__ import annotations

import random
from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from record_sources.cohort import CohortCounts, make_tables
from record_sources.errors import SourceError
from study_protocol.study.cohort import Cohort
from tests.record_sources.cohort.brute_force import Refused, Staged, patients_of, tables

START = date(2020, 2, 27)
# 1 covers 10 and 11, 2 covers 11, too.
COVERED = [(1, 1), (1, 10), (1, 11), (2, 2), (2, 11), (3, 3)]
UNITS, VALUES = {"8840": 1.0, "8753": 18.016, "0": 2.0}, {"45877985": "yes", "45878245": "no", "9": ""}
COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"of": "age"},
    "sex": {"of": "sex", "values": {"8507": "m", "8532": "f", "8521": ""}},
    "dead": {"of": "death", "days": [0, 3]},
    "dead day": {"of": "death", "take": "day"},
    "had": {"of": "condition", "concepts": [1], "days": [-2, 1]},
    "alone": {"of": "condition", "concepts": [1, 2], "descendants": False, "take": "count"},
    "times": {"of": "visit", "concepts": [1, 2], "take": "count", "days": [-3, 0]},
    "first day": {"of": "drug", "concepts": [3, 1], "take": "day"},
    **{
        f"{take} number": {"of": "measurement", "concepts": [1], "take": take, "units": UNITS, "days": [-3, 2]}
        for take in ("first", "last", "least", "largest", "mean")
    },
    **{
        f"{take} word": {"of": "observation", "concepts": [2], "take": take, "values": VALUES}
        for take in ("first", "last")
    },
}
EVENTS = {
    "event": {"of": "condition", "concepts": [1, 2, 3], "days": [-4, 4]},
    "drug-days": {"of": "drug", "concepts": [1], "descendants": False},
}


def cohort(**entries: Any) -> Cohort:
    index = {"of": "visit", "concepts": [1]}
    return Cohort.model_validate({"index_event": index, "columns": COLUMNS, "events": EVENTS} | entries)


def mostly(common: list[Any], rare: list[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 19).flatmap(lambda draw: st.sampled_from(rare if draw == 0 else common))


days = st.integers(0, 8).map(lambda number: START + timedelta(days=number))
people = st.tuples(
    mostly([8507, 8532, 8521, 0], [9]),
    mostly([None, 2020, 2019, 2000, 1950], [0, 1799, 2201]),
    mostly([None, 1, 2, 3, 7, 12], [13]),
    st.sampled_from([None, 1, 28, 29]),
    st.one_of(st.just((None, False)), mostly([(None, False)], [(None, True)]), days.map(lambda day: (day, True))),
).map(lambda person: (*person[:-1], *person[-1]))
events = st.tuples(
    st.sampled_from(["visit", "visit", "condition", "drug", "measurement", "measurement", "observation"]),
    st.sampled_from(["a", "b", "c", "d", "nobody"]),
    st.sampled_from([0, 1, 1, 2, 3, 10, 11, 99]),
    days,
    st.one_of(st.none(), st.sampled_from([datetime(2020, 3, 1, 8), datetime(2020, 3, 1, 9)])),  # noqa: DTZ001
    mostly([None, -0.0, 0.0, 0.1, 0.2, 1e6, -3.5], [float("inf"), float("nan")]),
    mostly([None, 0, 9, 45877985, 45878245], [7]),
    mostly([None, 0, 8840, 8753], [7, -1]),
)
staged = st.builds(
    lambda persons, rows: Staged([(name, *row) for name, row in zip("abcd", persons, strict=False)], rows, COVERED),
    st.lists(people, min_size=1, max_size=4),
    st.lists(events, max_size=30),
)


def made(rows: Staged, asked: Cohort) -> tuple[dict[str, list[tuple[Any, ...]]], CohortCounts]:
    connection = rows.database()
    counts = make_tables(connection, asked)
    names = [
        name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
    ]
    return {name: connection.execute(f'FROM "{name}"').fetchall() for name in names}, counts


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    # A mean may differ in its last bit.
    return sorted((tuple(map(_rounded, row)) for row in rows), key=repr)


def _rounded(cell: Any) -> Any:
    return float(f"{cell:.14g}") if isinstance(cell, float) else cell


@settings(max_examples=50)
@given(
    staged,
    st.sampled_from([None, [0, 19], [20, 70]]),
    st.sampled_from(["first", "last"]),
    st.booleans(),
    st.sampled_from([[], ["age"], ["dead", "dead day"]]),
)
@example(Staged([("a", 8507, 2019, 12, 29, None)], [], COVERED), None, "first", True, [])
def test_tables_are_those_of_plain_python(
    rows: Staged, ages: Any, occurrence: str, descendants: bool, lacking: list[str]
) -> None:
    index = {"of": "visit", "concepts": [1, 2], "occurrence": occurrence, "descendants": descendants}
    columns = {name: column for name, column in COLUMNS.items() if name not in lacking}
    asked = cohort(age=ages, index_event=index, columns=columns)
    kept, left_out = patients_of(rows, asked)
    try:
        expected = tables(rows, asked) if kept else None
    except Refused:
        expected = None
    if expected is None:
        with pytest.raises(SourceError):
            made(rows, asked)
        return
    found, counts = made(rows, asked)
    assert found.keys() == expected.keys()
    for name in expected:
        assert ordered(found[name]) == ordered(expected[name])
    assert (counts.people, counts.patients) == (len(rows.person), len(kept))
    assert {rule: number for rule in left_out if (number := getattr(counts, rule))} == dict(left_out)


@pytest.mark.slow
@settings(max_examples=25)
@given(staged, st.randoms(use_true_random=False))
def test_the_order_of_staged_rows_is_not_seen(rows: Staged, shuffling: random.Random) -> None:
    other = Staged(*(shuffling.sample(each, len(each)) for each in (rows.person, rows.event, rows.covered)))

    def outcome(each: Staged) -> Any:
        try:
            found, counts = made(each, cohort())
        except SourceError as error:
            return str(error)
        return {name: sorted(map(repr, table)) for name, table in found.items()}, counts

    assert outcome(rows) == outcome(other)


def visits(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [("visit", patient, 1, START + timedelta(days=day), None, None, None, None) for patient, day in rows]


def measured(day: int, value: float | None, unit: int | None, time: int | None = None) -> tuple[Any, ...]:
    moment = None if time is None else datetime(2020, 3, 1, time)  # noqa: DTZ001
    return ("measurement", "a", 10, START + timedelta(days=day), moment, value, None, unit)


PERSON = ("a", 8507, 1980, 2, 29, None)


def one_column(rows: Staged, column: dict[str, Any], **entries: Any) -> list[Any]:
    found, _ = made(rows, cohort(columns={"x": column}, events={}, **entries))
    return [cell for _, cell in sorted(found["patients"])]


@pytest.mark.parametrize(
    ("take", "expected"),
    [("first", 90.0), ("last", 5 * 18.0), ("least", 54.0), ("largest", 90.0), ("mean", 78.0)],
)
def test_two_units_of_one_measurement_become_one(take: str, expected: float) -> None:
    """Of the first day, the earliest time. Of the last day, what has no time is last."""
    rows = [measured(-1, 90.0, 1, 8), measured(-1, 78 / 18, 2, 9), measured(1, 54.0, 1, 23), measured(1, 5.0, 2)]
    rows += [measured(1, None, None), measured(9, 1.0, 1), measured(-2, 1.0, 1)]
    column = {"of": "measurement", "concepts": [1], "take": take, "units": {"1": 1.0, "2": 18.0}, "days": [-1, 1]}
    assert one_column(Staged([PERSON], visits(("a", 0)) + rows, COVERED), column) == [pytest.approx(expected)]


@pytest.mark.quick("7-0", "None-1")
@pytest.mark.parametrize(("unit", "listed"), [(7, "0"), (-1, "0"), (None, "1"), (0, "1")])
def test_an_unknown_unit_is_refused_with_column_and_count(unit: int | None, listed: str) -> None:
    rows = Staged([PERSON], [*visits(("a", 0)), measured(0, 12345.0, unit), measured(1, 1.0, int(listed))], COVERED)
    column = {"of": "measurement", "concepts": [1], "take": "mean", "units": {listed: 1.0}}
    fault = "without a standard concept" if unit == -1 else "that units does not list"
    with pytest.raises(SourceError, match=f"column x: 1 of 2 values have a unit {fault}") as raised:
        one_column(rows, column)
    assert "12345" not in str(raised.value)
    # What does not count is not looked at.
    assert one_column(rows, column | {"days": [1, 2]}) == [1.0]


def test_both_ends_of_a_window_count_and_overlapping_visits_are_each_counted() -> None:
    rows = Staged([PERSON], visits(*(("a", day) for day in (0, 0, 1, 2, 3))), COVERED)
    visit = {"of": "visit", "concepts": [1], "take": "count"}
    assert one_column(rows, visit | {"days": [0, 2]}) == [4]
    assert one_column(rows, visit | {"days": [1, 1]}) == [1]
    last = {"of": "visit", "concepts": [1], "occurrence": "last"}
    assert one_column(rows, visit | {"days": [-2, -1]}, index_event=last) == [2]
    assert one_column(rows, {"of": "visit", "concepts": [1], "take": "day"}, index_event=last) == [-3]


@pytest.mark.parametrize(
    ("birth", "day", "age"),
    [
        ((1980, 2, 28), date(2020, 2, 28), 40),
        ((1980, 2, 29), date(2019, 2, 28), 38),
        ((1980, 2, 29), date(2019, 3, 1), 39),
        ((1980, 2, None), date(2020, 2, 1), 40),
        ((1980, 3, None), date(2020, 2, 29), 39),
        ((1980, None, None), date(2020, 6, 30), 39),
        ((1980, None, None), date(2020, 7, 1), 40),
        ((2020, None, None), date(2020, 1, 1), 0),
        ((None, None, None), date(2020, 1, 1), None),
    ],
    ids=str,
)
def test_ages_in_whole_years(birth: tuple[Any, ...], day: date, age: int | None) -> None:
    visit = ("visit", "a", 1, day, None, None, None, None)
    assert one_column(Staged([("a", 0, *birth, None)], [visit], COVERED), {"of": "age"}) == [age]


def test_each_rule_counts_whom_it_leaves_out() -> None:
    born = (0, 1980, 1, 1)
    persons = [("a", *born, None), ("b", *born, None), ("c", *born, START), ("d", *born, START + timedelta(1))]
    persons += [("e", 0, 2021, 1, 1, None), ("f", 0, None, None, None, None), ("g", 0, 1900, 1, 1, None)]
    persons += [("h", *born, None, True)]
    rows = Staged(persons, visits(*((name, 1) for name in "acdefgh")), COVERED)
    found, counts = made(rows, cohort(age=[18, 90], events={}))
    assert [row[0] for row in sorted(found["patients"])] == ["a", "d"]
    assert counts == CohortCounts(8, 1, 1, 1, 1, 1, 1)
    assert counts.in_words() == [
        "8 patients in the source",
        "1 left out, who have no index event",
        "1 left out, who died on a day that is not known",
        "1 left out, who died before the index event",
        "1 left out, who were born after the index event",
        "1 left out, who have no known birth",
        "1 left out, who are younger or older at the index event",
        "2 patients in the cohort",
    ]


def test_a_cohort_without_patients_is_refused_in_words() -> None:
    with pytest.raises(SourceError, match=r"has no patient\. 1 patients in the source\. 1 left out, who have no index"):
        made(Staged([PERSON], [], COVERED), cohort())


def test_the_dead_of_an_unknown_day_are_left_out_where_a_column_is_of_death() -> None:
    rows = Staged([(*PERSON, True), ("b", *PERSON[1:])], visits(("a", 0), ("b", 0)), COVERED)
    for take, alive in (("any", 0), ("day", None)):
        assert one_column(rows, {"of": "death", "take": take}) == [alive]
    assert one_column(rows, {"of": "age"}) == [39, 39]


@pytest.mark.quick("(1799, 1, 1)", "(1980, None, 32)", "(2201, None, None)")
@pytest.mark.parametrize(
    "birth",
    [(1980, 13, 1), (1980, 2, 30), (1980, None, 32), (0, None, None), (1799, 1, 1), (2201, None, None)],
    ids=str,
)
def test_a_birth_that_is_no_date_is_counted_and_left_out_where_the_age_is_asked_for(birth: tuple[Any, ...]) -> None:
    rows = Staged([("a", 8507, *birth, None), ("b", *PERSON[1:])], visits(("a", 0), ("b", 0)), COVERED)
    sex = {"sex": COLUMNS["sex"]}
    found, counts = made(rows, cohort(columns=sex, events={}))
    assert [row[0] for row in sorted(found["patients"])] == ["a", "b"]
    assert counts.in_words()[-1] == "1 of them have a birth that is no date"
    for asked in (cohort(columns=sex | {"age": COLUMNS["age"]}, events={}), cohort(age=[0, 99], columns=sex)):
        found, counts = made(rows, asked)
        assert [row[0] for row in found["patients"]] == ["b"]
        assert (counts.without_age, counts.born_never) == (1, 0)


def test_tables_of_events_may_be_empty_and_patients_without_events() -> None:
    found, _ = made(Staged([PERSON], visits(("a", 0)), COVERED), cohort(columns={"age": {"of": "age"}}))
    assert found == {"patients": [("a", 39)], "event": [], "drug-days": []}


@pytest.mark.parametrize(
    "name", ['"; DROP TABLE person; --', "a'b", '"', "rowid", "select", "$named", "?", "ä\u00a0 b"]
)
def test_names_and_words_of_settings_are_never_sql(name: str) -> None:
    columns = {name: {"of": "sex", "values": {"8507": name, "0": "'; DROP TABLE patients; --"}}}
    persons = [PERSON, ("b", 0, None, None, None, None), ('c"; --', 8507, None, None, None, None)]
    rows = Staged(persons, visits(("a", 0), ("b", 0), ('c"; --', 0)), COVERED)
    connection = rows.database()
    make_tables(connection, cohort(columns=columns, events={"person": EVENTS["event"], "select": EVENTS["event"]}))
    found = connection.execute("FROM patients ORDER BY patient")
    assert [each[0] for each in found.description or ()] == ["patient", name]
    assert found.fetchall() == [("a", name), ("b", "'; DROP TABLE patients; --"), ('c"; --', name)]
    made_tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT temporary").fetchall()
    assert sorted(made_tables) == [("patients",), ("person",), ("select",)]


def test_events_without_a_value_are_counted() -> None:
    rows: list[tuple[Any, ...]] = visits(("a", 0))
    rows += [("measurement", "a", 1, START, None, value, None, None) for value in (None, 1.0, None)]
    rows += [("observation", "a", 2, START, None, None, answer, None) for answer in (0, 45877985, 9)]
    _, counts = made(Staged([PERSON], rows, COVERED), cohort())
    numbers = {name: (2, 3) for name in COLUMNS if name.endswith("number")}
    assert counts.without_value == numbers | {"first word": (2, 3), "last word": (2, 3)}
    assert "column mean number: 2 of 3 events have no value that counts" in counts.in_words()
