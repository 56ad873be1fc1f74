"""Queries and answers at a terminal, and as CSV."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from study_protocol.queries.answer import Answer, AnswerTable, NoisedSum, Plot
from study_protocol.queries.expected import ExpectedError
from study_protocol.study.limit_statement import LimitProgress, LimitStatement, PlannedSteps, SumOfSquares
from study_protocol.study.queries import LimitAfter, QueryForecast
from tests.factories.signed_answers import answered, document, published, shown
from wardround.cli.lead.answers_shown import (
    csv_files,
    show_expected,
    show_forecast,
    show_query,
    show_table,
    tables_of,
    write_csv,
)

ASKED = document(title="Patients by sex and age")
ANSWER = published(ASKED).answer


def test_a_query_that_waits_is_shown_with_its_words_and_who_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    consents = [
        {"client": "grace", "consent": {"allowed": False, "code": "policy-noise", "detail": "too little noise"}},
        {"client": "mercy", "consent": {"allowed": True}},
    ]
    show_query(shown(ASKED, refused=1, consents=consents))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "query 1 of registry: Patients by sex and age"
    assert lines[1].startswith("How many patients there are by sex")
    assert lines[2:] == [
        "waiting: 1 of at least 2 hospitals say yes, 1 says no",
        "  grace: too little noise",
    ]


def test_an_answer_is_shown_with_its_noise_rounded_to_the_safe_side(capsys: pytest.CaptureFixture[str]) -> None:
    show_query(answered(ASKED), words=False)
    out = capsys.readouterr().out
    assert "How many patients there are" not in out
    for words in ("patients in all", "share of the patients", "300", "3 hospitals in the sum"):
        assert words in out
    assert "noise of standard deviation 4.500, of which 4 is sure to protect" in out
    assert "charged in round 4, ledger entry 7" in out
    assert out.rstrip().endswith(published(ASKED).warning)


def test_a_median_that_is_not_reached_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ("sex", "survival", "estimate", "dp_error", "low", "high")
    rows = (("f", 0.5, None, None, 171.9, None), ("m", 0.5, 90.0, 2.0, 80.0, 99.0), ("x", 0.5, None, None, 7.0, None))
    show_table(AnswerTable(name="median", title="time", columns=columns, rows=rows), start=7.0)
    cells = [re.split(r" *│ *", line)[3:7] for line in capsys.readouterr().out.splitlines() if "0.5" in line]
    assert cells == [
        ["not reached", "", "171.9", "not reached"],
        ["90", "2", "80", "99"],
        ["not known", "", "7", "not known"],
    ]


def test_one_table_alone_is_shown_where_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    show_query(answered(ASKED), only="patients")
    out = capsys.readouterr().out
    assert "patients in all" in out
    assert "share of the patients" not in out
    with pytest.raises(ConfigurationError, match="no table 'x', but table, shares, patients"):
        tables_of(ANSWER, "x")


def test_of_a_long_curve_the_first_rows_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple((float(place), 1 - place / 30) for place in range(30))
    plot = Plot(kind="line", x="month", y="estimate")
    show_table(AnswerTable(name="s", title="alive", columns=("month", "estimate"), rows=rows, plot=plot))
    out = capsys.readouterr().out
    assert out.split()[0] == "alive"
    assert "6 more rows: --csv and --json have all of them" in out
    assert "0.23333" in out
    assert "0.033333" not in out


def test_tables_are_files_beside_one_another_and_none_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "answer.csv"
    assert write_csv(path, ANSWER, None) == [
        path,
        tmp_path / "answer-shares.csv",
        tmp_path / "answer-patients.csv",
    ]
    read = list(csv.reader(path.read_text().splitlines()))
    assert read[0] == list(ANSWER.tables[0].columns)
    assert [float(row[2]) for row in read[1:]] == [row[2] for row in ANSWER.tables[0].rows]
    path.unlink()
    # The second of three is in the way, and the first is not written.
    with pytest.raises(FileExistsError, match=r"answer-shares.csv exists already"):
        write_csv(path, ANSWER, None)
    assert not path.exists()
    assert [file.name for file, _ in csv_files(path, ANSWER, "patients")] == ["answer.csv"]


def test_a_cell_that_would_be_a_formula_is_guarded_and_a_number_is_not(tmp_path: Path) -> None:
    table = AnswerTable(name="n", title="t", columns=("group", "estimate"), rows=(("=1+1", None), ("-3", 2.5)))
    write_csv(tmp_path / "a.csv", Answer(tables=(table,)), None)
    assert (tmp_path / "a.csv").read_bytes() == b"group,estimate\r\n'=1+1,\r\n-3,2.5\r\n"


def forecast(**values: object) -> QueryForecast:
    limit = LimitAfter(level="instance", definition="classical", epsilon=3.0, before=0.0, after=1.00001)
    whole: dict[str, object] = {
        "sha256": "ab" * 32,
        "known": None,
        "allowed": True,
        "reason": None,
        "cells": 12,
        "sensitivity": 1.0,
        "noise_std": 6.0,
        "noise_expected": 8.4853,
        "limits": [limit],
        "least_noise_multiplier": None,
    }
    return QueryForecast.model_validate(whole | values)


def test_what_a_query_would_cost_is_rounded_up(capsys: pytest.CaptureFixture[str]) -> None:
    show_forecast(forecast(), [["patients", "8.49", "± 16.6"]], [])
    out = " ".join(capsys.readouterr().out.split())
    assert "12 numbers. One patient changes them by at most 1." in out
    assert "s = 6 is sure, 8.485 if every hospital answers" in out
    assert "± 16.6" in out
    assert "1.001" in out
    assert "it would be refused" not in out


def test_what_a_query_takes_of_the_squares_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    squares = SumOfSquares(used=0.1, reserved=0.0, allowed=0.5)
    counted = LimitProgress(enforcement="gaussian-filter", steps=None, squares=squares)
    stated = LimitStatement.model_construct(level="instance", definition="classical", progress=counted)
    show_forecast(forecast(), [], [stated, stated.model_copy(update={"progress": None})])
    out = " ".join(capsys.readouterr().out.split())
    # Δ²/s² = 1/36, rounded up.
    assert "instance classical, this question alone: used 0.02778 of μ² = 0.5, 5.6 %" in out
    assert "instance classical, so far: used 0.1 of μ² = 0.5, 20.0 %" in out
    assert "These ε hold if the study ends there for reasons that do not depend on its results" in out
    steps = PlannedSteps(used=0, reserved=0, allowed=9)
    planned = counted.model_copy(update={"enforcement": "fixed-plan", "steps": steps})
    show_forecast(forecast(), [], [stated.model_copy(update={"progress": planned})])
    out = " ".join(capsys.readouterr().out.split())
    assert "instance classical, share for questions, this question alone: used 0.02778 of μ² = 0.5, 5.6 %" in out
    # Those who are set aside have an account of their own, and a planned number holds for every stop.
    show_forecast(forecast(), [], [stated.model_copy(update={"progress": planned})], evaluates=True)
    out = " ".join(capsys.readouterr().out.split())
    assert "These ε hold for every stop. From the first charge on they count the whole plan" in out
    assert "its share for questions, asked or not" in out
    assert "of μ²" not in out
    show_forecast(forecast(), [], [stated.model_copy(update={"progress": None})])
    assert "the whole plan" not in capsys.readouterr().out


def test_a_query_that_passes_a_limit_has_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    passed = LimitAfter(level="instance", definition="classical", epsilon=3.0, before=3.0, after=None)
    show_forecast(forecast(allowed=False, limits=[passed]), [], [])
    assert "above the limit" in capsys.readouterr().out


def test_a_query_that_does_not_fit_is_told_with_the_noise_that_would(capsys: pytest.CaptureFixture[str]) -> None:
    show_forecast(forecast(allowed=False, reason="it would pass a limit", least_noise_multiplier=7.5, known=4), [], [])
    out = capsys.readouterr().out
    assert out.startswith("this very question is query 4. Asking it again is free")
    assert out.rstrip().endswith("it would be refused: it would pass a limit. A noise_multiplier of 7.5 would fit")


def test_where_the_noise_decides_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    small = ExpectedError(figure="f, below 40", estimate=50.0, dp_error=9.0, sampling_error=7.0)
    show_expected([small], 400)
    out = capsys.readouterr().out
    assert "With 400 patients" in out
    assert "the noise decides" in out
    assert "warning: where the noise decides" in out
    show_expected([small.model_copy(update={"dp_error": 1.0})], 400)
    assert "the noise decides" not in capsys.readouterr().out
    show_expected([], 400)
    assert "does not predict the errors" in capsys.readouterr().out


def test_a_silent_hospital_reads_no_answer_at_the_terminal_and_in_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A zero there would be read as nobody."""
    asked = document("count", by="hospital", hospitals=["east", "north", "west"])
    total = np.array([120.0, 80.0, 3.0])
    answer = asked.question.answer(NoisedSum(total, 4.5, 1, frozenset({"east", "north"})))
    show_query(answered(document("count"), answer=answer))
    out = capsys.readouterr().out
    assert re.search(r"west +│ no answer +│ +│", out)
    assert "west: no answer. These patients are in no number here." in out
    assert "A hospital can write into another hospital's numbers." in out
    path = tmp_path / "answer.csv"
    assert write_csv(path, answer, None)[0] == path
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    assert rows[0][:3] == ["hospital", "who", "estimate"]
    assert [row[:3] for row in rows[1:]] == [
        ["east", "patients", "120.0"],
        ["north", "patients", "80.0"],
        ["west", "no answer", ""],
    ]
    assert set(rows[3][2:]) == {""}
