"""The exit codes are stable, and the help and the pages list them."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from wardround.cli.main import build
from wardround.cli.shared.exit_codes import ExitCode

ROOT = Path(__file__).parents[4]


def test_the_codes_do_not_change() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "DONE": 0,
        "NOT_POSSIBLE": 1,
        "WRONG_USAGE": 2,
        "REFUSED": 3,
        "NOT_TRUSTED": 4,
        "UNREACHABLE": 5,
        "NOT_FINITE": 6,
        "MORE_TO_COME": 75,
        "INTERRUPTED": 130,
    }


def test_the_help_of_join_lists_every_code() -> None:
    shown = CliRunner().invoke(build(), ["join", "--help"], env={"COLUMNS": "400", "TERM": "dumb"}).output
    assert all(f"{code:d} {code.meaning}" in shown for code in ExitCode)


def test_the_page_of_a_hospital_lists_every_code() -> None:
    page = (ROOT / "docs" / "hospital.md").read_text()
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)] == list(ExitCode)
