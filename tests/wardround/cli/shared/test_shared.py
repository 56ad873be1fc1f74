"""What every command shares: numbers, errors, names."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import typer

from accounting import InvalidArgument
from client_sdk.errors import ConfigurationError, ConnectionFailed, LedgerNotExtended, PolicyRefused, TrainingStopped
from private_learning.records import DataError
from wardround.cli.shared.shared import a_name, number, plain_errors, print_json, table


@pytest.mark.parametrize(("value", "shown"), [(2.0001, "2.001"), (2.0, "2.000"), (0.1, "0.100"), (2.9515, "2.952")])
def test_a_loss_is_never_printed_smaller_than_it_is(value: float, shown: str) -> None:
    assert number(value) == shown
    assert number(0.2539, round_down=True) == "0.253"


@pytest.mark.parametrize(("value", "shown"), [(None, "unbounded"), (math.inf, "unbounded"), (math.nan, "unknown")])
def test_a_loss_that_is_no_number_is_named(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("set it"), 1),
        (DataError("no rows"), 1),
        (FileNotFoundError("no file"), 1),
        (InvalidArgument("order", "must be ≥ 1e-06"), 1),
        (PolicyRefused("policy", "not here"), 3),
        (LedgerNotExtended("shorter"), 4),
        (ConnectionFailed("away"), 5),
        (TrainingStopped("the loss"), 6),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_an_expected_error_is_one_line_and_its_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, plain_errors():
        raise error
    assert ended.value.exit_code == code
    assert capsys.readouterr().err == f"wardround: {error}\n"


def test_an_error_of_the_system_is_said_without_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), plain_errors():
        Path("/nowhere/study.toml").read_bytes()
    assert capsys.readouterr().err == "wardround: /nowhere/study.toml: No such file or directory\n"


def test_a_bug_shows_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), plain_errors():
        raise ZeroDivisionError


def test_an_interruption_says_that_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, plain_errors():
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert "on the disk" in capsys.readouterr().err


def test_json_is_one_document_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"ä": [1, None]})
    assert json.loads(capsys.readouterr().out) == {"ä": [1, None]}
    with pytest.raises(ValueError, match="JSON"):
        print_json([math.nan])


def test_a_table_is_wide_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    table("Title", ["a", "b"], [["x" * 70, "y" * 70]])
    assert "x" * 70 in (shown := capsys.readouterr().out)
    assert shown.startswith("Title")


@pytest.mark.parametrize("name", ["Sepsis", "a b", "", pytest.param("ä", id="umlaut"), "a" * 64])
def test_a_name_that_no_study_can_have_is_refused_here(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="lower-case"):
        a_name(name)
    assert a_name("sepsis-2") == "sepsis-2"
