"""Tables of events: words of a study, tokens and times of rows, and the newest events of every patient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from private_learning.records import DataError, Table
from private_learning.records.histories import Histories
from private_learning.tasks.events import EventTable, read_events, sequences, uses
from private_learning.tasks.task import InputUse, TaskError

WORDS = {
    "events.ills": "code=icd; time=day; codes=X|Y",
    "events.drugs": " time = day ; codes = A | B|C ;code= atc ",
    "label": "died",
}
DRUGS, ILLS = EventTable("drugs", "atc", "day", ("A", "B", "C"), 1), EventTable("ills", "icd", "day", ("X", "Y"), 5)


def events(code: str, **columns: list[Any]) -> Table:
    return Table.of(
        {code: columns["codes"], "day": columns["days"], "patient": columns["who"]}, patient_column="patient"
    )


def test_tables_stand_in_the_order_of_their_names_and_share_no_token() -> None:
    assert read_events(WORDS) == (DRUGS, ILLS)
    # Three codes and one token for all others, after token 0 of no event.
    assert (DRUGS.tokens, ILLS.tokens) == (4, 3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("code=a; time=b", "codes is missing"),
        ("code=a; code=b; time=c; codes=A", "each of the three once"),
        ("code=a; time=b; codes=A; more=1", "each of the three once"),
        ("code=; time=b; codes=A", "each of the three once"),
        ("code=a; time=b; codes=A|A", "different words"),
        (7, "is expected"),
    ],
)
def test_words_that_describe_no_table_are_refused(text: Any, reason: str) -> None:
    with pytest.raises(TaskError, match=reason):
        read_events({"events.drugs": text})


def test_at_least_one_table_is_needed() -> None:
    with pytest.raises(TaskError, match="at least one parameter events"):
        read_events({"label": "died"})


def test_other_and_missing_codes_are_one_further_token() -> None:
    table = events("atc", codes=["B", "Q", None, "A"], days=[1, 2.5, "3", 4], who=["a"] * 4)
    tokens, times, missing = DRUGS.read(table)
    assert tokens.tolist() == [2, 4, 4, 1]
    assert times.tolist() == [1.0, 2.5, 3.0, 4.0]
    assert missing.tolist() == [False, False, True, False]


def test_dates_are_days_since_1970() -> None:
    table = events("atc", codes=["A", "A"], days=["1970-01-02", "1971-01-01"], who=["a", "a"])
    assert DRUGS.read(table)[1].tolist() == [1.0, 365.0]


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        ([1.0, None], "1 of 2 events have no time"),
        ([1.0, "soon"], "1 of 2 events have a time that is none"),
        ([1.0, "2020-01-01"], "1 of 2 times are dates and others numbers"),
    ],
)
def test_times_that_are_none_are_counted_with_the_name_of_the_table(days: list[Any], reason: str) -> None:
    with pytest.raises(DataError, match=f"events drugs: column day: {reason}"):
        DRUGS.read(events("atc", codes=["A", "A"], days=days, who=["a", "a"]))


def test_a_column_that_is_not_there_is_named_with_its_table() -> None:
    with pytest.raises(DataError, match="events drugs: the table lacks 1 of the study's columns"):
        DRUGS.read(events("icd", codes=["A"], days=[1], who=["a"]))


@pytest.mark.parametrize("length", [1, 3, 10])
def test_the_newest_events_stand_oldest_first(length: int) -> None:
    draw = np.random.default_rng(5)
    patients = ["a", "b", "c", "d"]
    who = draw.choice(["a", "b", "d", "elsewhere"], 40).tolist()
    drugs = events(
        "atc", codes=draw.choice(["A", "B", "Q"], 40).tolist(), days=draw.integers(0, 6, 40).tolist(), who=who
    )
    ills = events("icd", codes=["Y", "X"], days=[2, 3], who=["a", "b"])
    whole = Table.of({"patient": patients, "died": [0, 1, 0, 1]}, patient_column="patient")
    histories = Histories.with_events(whole, {"drugs": drugs, "ills": ills})
    rows = sequences((DRUGS, ILLS), histories, length)
    for place, patient in enumerate(patients):
        happened = [
            (time, token)
            for table, records in ((DRUGS, drugs), (ILLS, ills))
            for token, time, owner in zip(*table.read(records)[:2], records.patients, strict=True)
            if owner == patient
        ]
        newest = [token for _, token in sorted(happened)][-length:]
        assert rows[place].tolist() == newest + [0] * (length - len(newest))


def test_events_of_others_and_other_codes_are_counted() -> None:
    whole = Table.of({"patient": ["a"], "died": [0]}, patient_column="patient")
    drugs = events("atc", codes=["A", "Q", None, "A"], days=[1, 2, 3, 4], who=["a", "a", "a", "zz"])
    assert uses((DRUGS,), Histories.with_events(whole, {"drugs": drugs})) == (
        InputUse("events drugs", 3, missing=1, clipped=0, other=1, of_others=1),
    )
