"""The group `objection` as people type it: one patient, a file of them, a bad one, and the letters.

It tests wardround.cli.hospital.objections.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.factories.certificates import text_of
from tests.factories.commands import AS_WRITTEN, Run, finished
from tests.factories.live_coordinator import Live

DATA = "id,age\n0042,40\n43,41\n"


@pytest.fixture
def alone(app: typer.Typer, tmp_path: Path) -> Run:
    """Commands of a hospital that has enrolled nowhere."""
    (tmp_path / "home").mkdir()

    def call(*arguments: str, code: int = 0, **options: Any) -> Result:
        done = CliRunner().invoke(app, ["objection", *arguments, "--home", str(tmp_path / "home")], **options)
        assert done.exit_code == code, done.output
        return done

    return call


def words(done: Result) -> str:
    return " ".join((done.stdout + done.stderr).split())


def test_a_hospital_without_a_study_records_and_writes(alone: Run, tmp_path: Path) -> None:
    said = words(alone("add", "0042", "--as", "Ada Lovelace", "--role", "privacy officer", "--reason", "phone"))
    assert "objection 1: recorded" in said
    assert "The patient is on the list now: left out from the next round on" in said
    letter = (tmp_path / "home" / "letters" / "objection-1.md").read_text()
    assert "Ada Lovelace" in letter
    assert "In none" in letter
    assert "0042" not in letter
    assert (tmp_path / "home" / "objections.txt").read_text() == "0042\n"
    # Again, in another spelling and as a PDF: since when, and a letter once more.
    assert "objection 1: recorded since" in words(alone("add", "42", "-o", str(tmp_path / "again.pdf")))
    assert "objection 1" in text_of((tmp_path / "again.pdf").read_bytes())
    listed = words(alone("list"))
    assert "phone" in listed
    assert "Ada Lovelace" in listed
    assert "0042" not in listed
    (entry,) = json.loads(alone("list", "--json").stdout)
    assert (entry["number"], entry["listed"]) == (1, True)
    alone("letter", "42.0", "-o", str(tmp_path / "letter.md"))
    assert (tmp_path / "letter.md").exists()


def test_several_patients_from_a_file_or_none_at_all(alone: Run, tmp_path: Path) -> None:
    file, folder = tmp_path / "several.txt", tmp_path / "out"
    file.write_text("p1\np2;p3\n")
    said = words(alone("add", "--file", str(file), code=1))
    assert "line 2 holds a comma" in said
    assert "p3" not in said
    assert not (tmp_path / "home" / "objections.txt").exists()
    file.write_text("p1\n\nP1\np2\n")
    assert "Name a folder" in words(alone("add", "--file", str(file), "-o", str(tmp_path / "one.md"), code=1))
    assert not (tmp_path / "home" / "objections.txt").exists()
    folder.mkdir()
    alone("add", "--file", str(file), "-o", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["objection-1.md", "objection-2.md"]
    assert (tmp_path / "home" / "objections.txt").read_text() == "p1\np2\n"
    assert [entry["new"] for entry in json.loads(alone("add", "--file", str(file), "--json").stdout)] == [False] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["add"], "name one patient, or several with --file"),
        (["add", "p1", "--file", "nowhere.txt"], "name one patient, or several with --file"),
        (["add", "--file", "nowhere.txt"], "cannot be read"),
        (["add", "a,b"], "holds a comma"),
        (["add", "1.2E+9"], "last digits are lost"),
        (["add", "p1", "-o", "letter.doc"], "neither .md nor .pdf"),
        (["add", "p1", "--certificate", "nowhere.json"], "nowhere.json"),
        (["letter", "p1"], "no objection of this patient is recorded"),
        (["list", "--policy", "nowhere.toml"], "cannot be read"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_and_nobody_is_named(alone: Run, arguments: list[str], message: str) -> None:
    assert message in words(alone(*arguments, code=1))


def test_the_records_say_whether_they_hold_the_patient(alone: Run, tmp_path: Path) -> None:
    table = tmp_path / "icu.csv"
    table.write_text(DATA)
    given = ("--data", str(table), "--patient-column", "id")
    alone("add", "42", *given)
    alone("add", "4711", *given)
    letters = tmp_path / "home" / "letters"
    assert "hold this patient" in (letters / "objection-1.md").read_text()
    assert "hold no patient with this identifier" in (letters / "objection-2.md").read_text()
    # Recorded and left out nevertheless.
    assert (tmp_path / "home" / "objections.txt").read_text() == "42\n4711\n"


def test_an_identifier_may_come_from_standard_input(alone: Run, tmp_path: Path) -> None:
    alone("add", "-", input="  P-7 \n")
    assert (tmp_path / "home" / "objections.txt").read_text() == "P-7\n"


def test_a_patient_who_is_not_listed_any_more_is_said(alone: Run, tmp_path: Path) -> None:
    alone("add", "p1")
    (tmp_path / "home" / "objections.txt").write_text("")
    said = words(alone("list"))
    assert "1 of these patients are not on the list any more" in said
    assert "was not on the list any more, and is again" in words(alone("add", "p1"))
    assert "not on the list any more" not in words(alone("list"))


def test_people_who_decide_together_are_told_of_the_changed_policy(alone: Run, tmp_path: Path) -> None:
    (tmp_path / "home" / "policy.toml").write_text("[approval]\npeople = 2\n")
    assert "wardround policy agree" in words(alone("add", "p1"))
    assert "wardround policy agree" not in words(alone("add", "p1"))


@pytest.mark.slow
def test_after_a_study_the_letter_has_the_numbers_of_its_certificate(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    run("certificate", "show", "sepsis", "-o", str(tmp_path / "certificate.json"))
    records = ["--data", str(tmp_path / "records.csv"), "--patient-column", "patient"]
    run("objection", "add", "p3", *records, "-o", str(tmp_path / "own.md"))
    given = ("--certificate", str(tmp_path / "certificate.json"))
    run("objection", "letter", "P3", *given, "-o", str(tmp_path / "signed.md"))
    own, signed = ((tmp_path / name).read_text() for name in ("own.md", "signed.md"))
    stated = json.loads((tmp_path / "certificate.json").read_text())["certificate"]
    for limit in stated["limits"]:
        if limit["level"] == "instance":
            assert f"{limit['spent']:.2f}"[:-1] in own
            assert f"{limit['spent']:.2f}"[:-1] in signed
    assert "| sepsis | records | rounds of training | 1 to 2 |" in own
    assert "whose signature was checked" in signed
    assert AS_WRITTEN
