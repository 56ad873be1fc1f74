"""How tables are written, as a person types it: proposed, confirmed, kept, and never guessed again."""

from __future__ import annotations

import json
import re
import shlex
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from client_sdk.errors import ConfigurationError
from private_learning.records import DataError, Table, TableFormat
from tests.factories.commands import Run, opened, write_records, write_settings
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live
from wardround.cli.hospital import agreement, data
from wardround.cli.hospital.table_format import FormatOptions, keep_format, read_declared, read_records, stored_format
from wardround.cli.main import build

ROWS = ["id;bmi;krea;died", "a;21,5;250.000;no", "b;20,25;180.000;yes", "c;;310.500;no"]
SEMICOLONS = TableFormat("semicolon", decimal="comma")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
    return tmp_path / "mercy"


def written(path: Path, rows: list[str] = ROWS) -> str:
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def check(*arguments: str, code: int = 0, **options: Any) -> Result:
    app = build()
    result = CliRunner().invoke(app, ["data", "check", *arguments], **options)
    assert result.exit_code == code, result.output
    return result


def said(result: Result) -> str:
    return " ".join(result.output.split())


def test_a_check_proposes_and_keeps_nothing_unless_somebody_confirms(home: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", ["id;bmi", "a;21,5", "b;20"])
    result = check(path)
    assert "1 cells are numbers with a decimal comma, none with the other" in said(result)
    wanted = f"to keep this for data set records: wardround data check {path} --separator semicolon --encoding utf-8 "
    assert f"{wanted}--decimal comma --confirm" in said(result)
    assert not home.exists()
    check(path, "--confirm")
    assert stored_format(home, "records") == SEMICOLONS
    assert "read as declared: semicolon between cells, UTF-8, decimal comma" in said(check(path))
    assert json.loads(check(path, "--json").stdout) == {"format": SEMICOLONS.to_dict(), "confirmed": True}


def test_a_doubt_is_never_kept_and_names_columns_and_counts(home: Path, tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", ["id;krea", "a;250.000", "b;180.000"])
    result = check(path, "--confirm", code=1)
    assert "no format is stored: 2 cells may be decimal numbers or thousands" in said(result)
    assert "column krea: 2 with a point that may mean thousands): declare --decimal" in said(result)
    assert stored_format(home, "records") is None
    check(path, "--decimal", "point", "--confirm")
    assert stored_format(home, "records") == TableFormat("semicolon", decimal="point")


def test_a_person_at_a_terminal_is_asked_whether_to_keep_it(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "at_a_terminal", lambda: True)
    path = written(tmp_path / "a.csv", ["id;bmi", "a;21,5"])
    check(path, input="n\n")
    assert stored_format(home, "icu") is None
    check(path, "--dataset", "icu", input="y\n")
    assert stored_format(home, "icu") == SEMICOLONS


def test_a_later_file_is_read_as_declared_or_refused_with_what_it_looks_like(home: Path, tmp_path: Path) -> None:
    check(written(tmp_path / "a.csv", ["id;bmi", "a;21,5"]), "--confirm")
    result = check(written(tmp_path / "b.csv", ["id,bmi", "a,21.5", "b,20"]), code=1)
    assert "read by semicolons it is one column" in said(result)
    assert "This file looks as written with comma between cells, UTF-8, decimal point" in said(result)
    # A person may declare it anew.
    check(str(tmp_path / "b.csv"), "--separator", "comma", "--confirm")
    assert stored_format(home, "records") == TableFormat("comma", decimal="point")


def test_what_a_question_would_make_of_the_records(home: Path, tmp_path: Path) -> None:
    """`cases/decimal-commas`: all five values vanished from an answer, and the hospital read no word."""
    rows = ["id;krea", "p0;1,25", "p1;0,9", "p2;-", "p3;1,1", "p4;k.A.", "p5;<0,1", "p6;99"]
    path, question = written(tmp_path / "krea.csv", rows), tmp_path / "question.toml"
    question.write_text(
        'kind = "moments"\nnoise_multiplier = 4.0\n[[numbers]]\ncolumn = "krea"\nlow = 0.0\nhigh = 15.0\n'
        'missing_values = ["-", "k.A."]\n'
    )
    asked = json.loads(check(path, "--question", str(question), "--json").stdout)["questions"]
    (counts,) = asked[0]["columns"]
    assert {name: counts[name] for name in ("cells", "missing", "wrong", "outside", "first")} == {
        "cells": 7,
        "missing": 2,
        "wrong": 1,
        "outside": 1,
        "first": "line 7",
    }
    shown = said(check(path, "--question", str(question), "--question", str(question)))
    assert shown.count("neither a value nor a code") == 2
    assert "1 (14%)" in shown
    assert (
        "warning: column krea: 1 of 7 cells are neither a value nor a declared code, and count as missing. The first "
        "is in line 7, and is a number with a sign or a unit"
    ) in shown
    assert "<0,1" not in shown


@pytest.mark.parametrize(("name", "warned"), [("744", True), ("0744", False)])
def test_a_question_s_category_in_another_spelling_is_a_warning(
    home: Path, tmp_path: Path, name: str, warned: bool
) -> None:
    path, question = written(tmp_path / "a.csv", ["id;icd", "a;0744", "b;0744", "c;3893"]), tmp_path / "question.toml"
    question.write_text(
        f'kind = "table"\nnoise_multiplier = 4.0\n[[variables]]\ncolumn = "icd"\ncategories = ["{name}", "3893"]\n'
    )
    shown = said(check(path, "--question", str(question)))
    assert ("warning: column icd: 2 of 3 cells are one of the categories but for capitals" in shown) == warned


def test_all_columns_that_a_question_lacks_are_named(home: Path, tmp_path: Path) -> None:
    path, question = written(tmp_path / "krea.csv"), tmp_path / "question.toml"
    numbers = "".join(f'[[numbers]]\ncolumn = "{name}"\nlow = 0.0\nhigh = 9.0\n' for name in ("Krea", "bmi", "hba1c"))
    question.write_text(f'kind = "moments"\nnoise_multiplier = 4.0\n{numbers}')
    refused = said(check(path, "--question", str(question), "--decimal", "comma", code=1))
    assert "the table lacks 2 of the question's columns: 'Krea' (did you mean 'krea'?), 'hba1c'" in refused


def test_records_without_a_format_are_counted_where_nothing_else_is_asked(home: Path, tmp_path: Path) -> None:
    pd.DataFrame({"id": ["a", "b", "c"], "bmi": [1.5, 2.5, None]}).to_parquet(tmp_path / "a.parquet")
    assert "3 records are read, and need no declared format" in said(check(str(tmp_path / "a.parquet")))


@pytest.mark.quick("1000000-True")
@pytest.mark.parametrize(("high", "warned"), [(1_000_000, True), (1_000, False)])
def test_values_in_a_small_part_of_the_range_are_a_warning(home: Path, tmp_path: Path, high: int, warned: bool) -> None:
    """`cases/thousands`: 250.000, declared with a decimal point, is 250."""
    path = written(tmp_path / "a.csv")
    parameters = {"label": "died", "label-values": "no|yes", "column.krea": f"0..{high}"}
    settings = write_settings(tmp_path / "study.json", training={"task_parameters": parameters})
    arguments = (path, "--settings", str(settings), "--separator", "semicolon", "--patient-column", "id")
    result = check(*arguments, "--decimal", "point")
    assert ("column krea: all 3 values lie in 0.01% of the public range" in said(result)) == warned
    refused = said(check(*arguments, "--decimal", "comma", code=1))
    assert "column krea: 3 of 3 values are no numbers, the first in line 2" in refused
    assert "may mean thousands, and the data set is declared with a decimal comma" in refused


def test_unused_columns_are_named_up_to_ten(home: Path, tmp_path: Path) -> None:
    names = [f"gene{place}" for place in range(300)]
    rows = [";".join(["id", "bmi", "died", *names]), *(f"{who};2;{who in 'ac'}" + ";1" * 300 for who in "abcd")]
    parameters = {"label": "died", "label-values": "False|True", "column.bmi": "0..60"}
    settings = write_settings(tmp_path / "study.json", training={"task_parameters": parameters})
    result = check(written(tmp_path / "a.csv", rows), "--settings", str(settings), "--patient-column", "id")
    assert "does not use: gene0, gene1," in said(result)
    assert ", gene9, and 290 more" in said(result)
    assert "and 283 columns more" in said(result)


def test_commands_that_keep_nothing_say_what_they_read_and_refuse_a_doubt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.csv"
    written(path, ["id;bmi", "a;21,5"])
    table = read_records(path, FormatOptions())
    assert isinstance(table, Table)
    assert table.numbers("bmi").tolist() == [21.5]
    assert "a.csv: read with semicolon between cells, UTF-8, decimal comma" in capsys.readouterr().err
    written(path, ["id;bmi", "a;250.000"])
    with pytest.raises(DataError, match=r"column bmi: 1 with a point that may mean thousands.: declare --decimal"):
        read_records(path, FormatOptions())
    table = read_records(path, FormatOptions("semicolon", decimal="point"))
    assert isinstance(table, Table)
    assert table.numbers("bmi").tolist() == [250.0]
    assert capsys.readouterr().err == ""


def test_options_that_contradict_what_is_kept_are_refused(tmp_path: Path) -> None:
    keep_format(tmp_path, "records", SEMICOLONS)
    FormatOptions("semicolon", decimal="comma").require_fit(SEMICOLONS)
    FormatOptions(encoding="utf8").require_fit(SEMICOLONS)
    with pytest.raises(ConfigurationError, match=r"declared with semicolon between cells.*--confirm"):
        FormatOptions(decimal="point").require_fit(SEMICOLONS)


@pytest.mark.slow
def test_join_declares_or_refuses_before_the_first_round(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(run, tmp_path)
    home = tmp_path / "mercy"
    (home / "policy.toml").write_text(lax_toml())
    path = str(write_records(tmp_path / "records.csv"))
    typed = ("join", "sepsis", "--data", path, "--patient-column", "patient", "--yes")
    refused = " ".join(run(*typed, code=1).stderr.split())
    assert "--separator comma --encoding utf-8 --decimal point" in refused
    assert stored_format(home, "records") is None
    monkeypatch.setattr(agreement, "at_a_terminal", lambda: True)
    no = run(*typed[:-1], code=1, input="n\n").stderr
    assert "Are these records written with comma between cells, UTF-8, decimal point?" in " ".join(no.split())
    assert stored_format(home, "records") is None
    run("study", "start", "sepsis", operator=True)
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yes = run(*typed[:-1], input="y\ny\n")
        # What is kept is not asked for again.
        again = run(*typed)
    finally:
        ended.set()
        worker.join()
    assert "2 updates sent" in yes.stdout
    assert "Are these records" not in again.stderr
    assert stored_format(home, "records") == TableFormat("comma", decimal="point")


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_what_join_prints_can_be_pasted_with_everything_that_was_typed(run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())
    path = tmp_path / "year 1 (new).csv"
    path.write_bytes("patient;site;died\r\na;Süd;1,5\r\nb;Süd;2,5\r\n".encode("cp1252"))
    typed = ["sepsis", "--data", str(path), "--patient-column", "patient", "--in-memory", "--data-version", "v 2"]
    typed += ["--dataset", "icu", "--events", str(tmp_path / "events"), "--yes", "--encoding", "cp1252"]
    printed = " ".join(run("join", *typed, code=1).stderr.split())
    look, again = re.findall(r"wardround (?:data|join) .*?(?=`|$)", printed)
    assert shlex.split(look) == ["wardround", "data", "check", str(path), "--encoding", "cp1252"]
    words = shlex.split(again)
    declared = ["--separator", "semicolon", "--encoding", "cp1252", "--decimal", "comma"]
    assert words[:3] == ["wardround", "join", "sepsis"]
    assert words[-len(declared) :] == declared
    assert sorted(words[3 : -len(declared)]) == sorted(typed[1:-2])
    # The printed command gets past the question.
    assert "is not declared" not in run(*words[1:], code=1).stderr


def test_a_person_at_a_terminal_settles_a_doubt_and_is_asked_until_the_answer_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(written(tmp_path / "records.csv", ["id;krea;seen", "a;250.000;03.04.2020", "b;180.000;05.06.2020"]))
    app = typer.Typer()
    read: list[Any] = []

    @app.command()
    def reading() -> None:
        read.append(read_declared(path, FormatOptions(), None, ask=True, command="wardround join"))

    result = CliRunner().invoke(app, [], input="point, I think\nPoint\ndmy\ny\n")
    assert result.exit_code == 0, result.output
    assert "type point or comma" in result.output
    assert read[0].format == TableFormat("semicolon", decimal="point", dates="dmy")
