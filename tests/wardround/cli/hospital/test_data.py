"""`wardround data check`: what is counted, that nothing is asked, written or charged, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from private_learning.training import LocalTraining
from tests.factories.commands import write_records, write_settings
from tests.factories.settings import statistics_settings
from wardround.cli.main import build

PARAMETERS = {
    "label": "died",
    "label-values": "no|yes",
    "column.bmi": "15..60; missing=30; missing-values=0",
    "column.sex": "f|m",
}
ROWS = ["id;bmi;sex;died;note", "a;21,5;f;no;x", "b;0;m;yes;y", "c;70,25;m;no;z", "d;;f;no;", "a;30;f;no;w"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    def nobody(*_: object, **__: object) -> httpx.Response:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", nobody)
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
    yield tmp_path
    # No ledger, no key, no folder of a hospital.
    assert not (tmp_path / "mercy").exists() or [p.name for p in (tmp_path / "mercy").iterdir()] == ["policy.toml"]


def check(
    here: Path,
    *more: str,
    rows: list[str] = ROWS,
    code: int = 0,
    patient_column: str | None = "id",
    **training: Any,
) -> str:
    app = build()
    (here / "records.csv").write_text("\n".join(rows) + "\n")
    chosen = {"task_parameters": PARAMETERS, "rows_per_patient": 2} | training
    settings = write_settings(here / "study.json", training=chosen)
    arguments = ["data", "check", str(here / "records.csv"), "--settings", str(settings)]
    more += () if patient_column is None else ("--patient-column", patient_column)
    result = CliRunner().invoke(app, [*arguments, *more])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_records_patients_labels_and_inputs_are_counted(here: Path) -> None:
    found = json.loads(check(here, "--json"))
    assert found == {
        "rows": 5,
        "excluded": 0,
        "unmatched": "",
        "patients": 4,
        "longest": 2,
        "set_aside": 0.0,
        "labels": {"no": 4, "yes": 1},
        "inputs": [
            {"name": "bmi", "values": 5, "missing": 2, "clipped": 1, "other": 0, "of_others": 0, "wrong": 0},
            {"name": "sex", "values": 5, "missing": 0, "clipped": 0, "other": 0, "of_others": 0, "wrong": 0},
        ],
        "unused": ["note"],
        "parameters": 5,
        "without_gradient": 0,
        "lacking": [],
        "hopeless": ["5 rows are too few to learn from"],
        "format": {"separator": "semicolon", "encoding": "utf-8", "header": True, "decimal": "comma", "dates": None},
        "confirmed": False,
    }
    shown = check(here)
    assert "4, of up to 2 rows each" in shown
    assert "2 (40%)" in shown
    assert "does not use: note" in shown
    assert "without a gradient" not in shown


def test_first_records_without_a_gradient_are_counted_and_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalTraining, "try_gradients", lambda *_: 2)
    assert json.loads(check(here, "--json"))["without_gradient"] == 2
    assert "2: they would count as zero" in check(here)


def test_who_is_left_out_by_the_policy_is_not_counted(here: Path) -> None:
    (here / "mercy").mkdir()
    (here / "mercy" / "policy.toml").write_text('excluded_patients = ["a", "nobody"]\n')
    found = json.loads(check(here, "--json"))
    assert (found["excluded"], found["patients"], found["longest"]) == (1, 3, 1)
    assert found["inputs"][0].items() >= {"name": "bmi", "values": 3, "missing": 2, "clipped": 1}.items()
    (here / "mercy" / "policy.toml").write_text('excluded_patients = ["a", "b", "c", "d"]\n')
    assert "every patient of these records is on the exclusion list" in check(here, code=1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows_per_patient": 1}, "1 of 4 patients have up to 2 rows.*rows_per_patient"),
        ({"task": "nothing"}, "no package here offers it: there are"),
        ({"task_parameters": PARAMETERS | {"column.Sex": "f|m"}}, "'Sex' .did you mean 'sex'"),
        (
            {"task_parameters": PARAMETERS | {"column.note": "0..1"}},
            "column note: 4 of 5 values are no numbers.* line 2",
        ),
        ({"task": "cnn", "task_parameters": {"height": 4, "width": 4, "classes": 2}}, "takes arrays"),
    ],
    ids=["several rows", "unknown task", "unknown column", "text", "table for images"],
)
def test_what_would_end_join_ends_the_check(here: Path, change: dict[str, Any], words: str) -> None:
    import re

    assert re.search(words, " ".join(check(here, code=1, **change).split()))


def test_a_study_of_several_rows_needs_to_know_whose_they_are(here: Path) -> None:
    """Or each visit would be charged as a patient, and ε of a patient would be too small."""
    assert "up to 2 rows of a patient" in check(here, code=1, patient_column=None)
    assert json.loads(check(here, "--json", patient_column=None, rows_per_patient=1))["patients"] == 5


def test_the_file_of_a_study_reads_as_join_reads_it(here: Path) -> None:
    write_records(here / "others.csv")
    text = (here / "others.csv").read_text().splitlines()
    default = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}
    rows = [line.replace("patient", "id") for line in text]
    found = json.loads(check(here, "--json", rows=rows, task_parameters=default))
    assert (found["patients"], sum(found["labels"].values()), found["unused"]) == (40, 40, [])


def test_events_without_a_code_of_other_codes_and_of_other_patients_are_counted(here: Path) -> None:
    """Of somebody who is not in the table of patients. Those of the policy's list are not even counted."""
    folder = here / "records"
    folder.mkdir()
    (folder / "patients.csv").write_text("patient,died\n" + "".join(f"{who},{k % 2}\n" for k, who in enumerate("abcd")))
    (folder / "drugs.csv").write_text("patient,atc,day\nb,A,1\nb,Q,2\nc,,3\nc,B,3\nnobody,A,4\na,A,5\na,A,6\n")
    policy = here / "policy.toml"
    policy.write_text('excluded_patients = ["a"]\n')
    parameters = {"label": "died", "length": 3, "events.drugs": "code=atc; time=day; codes=A|B"}
    settings = write_settings(here / "study.json", training={"task": "sequence", "task_parameters": parameters})
    app = build()
    arguments = ["data", "check", str(folder), "--settings", str(settings), "--policy", str(policy)]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["inputs"] == [
        {"name": "events drugs", "values": 4, "missing": 1, "clipped": 0, "other": 1, "of_others": 1, "wrong": 0}
    ]
    shown = CliRunner().invoke(app, arguments).stdout
    assert all(head in shown for head in ("other codes", "of patients not used"))


def test_a_narrow_column_is_warned_of_in_one_line_and_a_wrong_cell_is_refused_by_its_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within 2 % of 15 to 60 the unit may be another. A cell that is no number is never quoted."""
    said: list[str] = []
    monkeypatch.setattr("wardround.cli.hospital.data.say", lambda text, err=False: said.append(text))
    narrow = [ROWS[0], *(f"p{n};20,{n};f;{answer};x" for n, answer in enumerate(("no", "yes", "no", "yes")))]
    check(here, rows=narrow)
    (warned,) = [text for text in said if text.startswith("warning: column")]
    assert warned.startswith("warning: column bmi: all 4 values lie in 0.67% of the public range.")
    refused = check(here, rows=[*narrow, "secret-patient;secret-cell;f;no;x"], code=1)
    assert "column bmi: 1 of 5 values are no numbers, the first in line 6" in refused
    assert "secret" not in refused


def test_hints_of_encodings_go_to_the_terminal_alone(here: Path) -> None:
    """Of skewed values: what is seen and a line for the settings, and nothing of it in a report that is passed on."""
    rows = ["id;bmi;sex;died", *(f"p{place};{15.5 + 0.1 * place};{'fm'[place % 2]};no" for place in range(40))]
    parameters = PARAMETERS | {"column.bmi": "0..400"}
    app = build()
    (here / "records.csv").write_text("\n".join(rows) + "\n")
    settings = write_settings(here / "study.json", training={"task_parameters": parameters})
    arguments = ["data", "check", str(here / "records.csv"), "--settings", str(settings), "--patient-column", "id"]
    for options in ([], ["--json"]):
        result = CliRunner().invoke(app, [*arguments, *options])
        assert result.exit_code == 0, result.output
        assert "hint: column bmi: 90 % of your values lie in 1 % of the range. A typical range" in result.stderr
        assert '"column.bmi" = "0..400; typical=15.5..19.5"' in result.stderr
        assert " ".join(result.stderr.split()).count("public knowledge") == 1
        assert "typical" not in result.stdout


def test_the_columns_of_a_synthesis_are_checked_before_join_agrees_to_its_questions(here: Path) -> None:
    columns = [{"column": "bmi", "edges": [10.0, 30.0, 60.0], "missing_values": ["0"]}] + [
        {"column": column, "categories": categories} for column, categories in (("sex", ["f"]), ("died", ["no", "yes"]))
    ]
    for columns[1]["column"], code, words in (("sex", 0, '"outside": 2'), ("sexe", 1, "did you mean 'sex'")):
        chosen = statistics_settings(synthesis={"outcome": "died", "allowance": 0.1, "columns": columns})
        (here / "study.json").write_text(json.dumps(chosen.as_json()))
        (here / "records.csv").write_text("\n".join(ROWS) + "\n")
        arguments = ["data", "check", str(here / "records.csv"), "--settings", str(here / "study.json")]
        result = CliRunner().invoke(build(), [*arguments, "--patient-column", "id", "--json"])
        assert result.exit_code == code, result.output
        assert words in result.output


MAPPED_ROWS = ["id;weight_index;gender;died", "a;43,0;W;no", "b;-9;M;yes", "c;140,5;M;no", "d;;W;no", "a;60;W;no"]
MAPPING = """
[columns]
bmi = { from = "weight_index", multiply = 0.5, missing = ["-9"] }
sex = { from = "gender", map = { W = "f", M = "m" } }
"""


def test_a_mapping_is_shown_with_counts_and_the_study_reads_its_columns(here: Path) -> None:
    (here / "columns.toml").write_text(MAPPING)
    more = ("--columns", str(here / "columns.toml"))
    report = json.loads(check(here, "--json", *more, rows=MAPPED_ROWS))
    assert [each["name"] for each in report["inputs"]] == ["bmi", "sex"]
    assert report["inputs"][0] | {"missing": 2, "clipped": 1, "wrong": 0} == report["inputs"][0]
    assert len(report["mapping"]["sha256"]) == 64
    counts = {"table": "", "cells": 5, "unmapped": 0}
    assert report["mapping"]["columns"] == [
        counts
        | {"column": "bmi", "local": "weight_index", "action": "renamed, times 0.5, 1 missing code"}
        | {"mapped": 3, "missing": 2},
        counts | {"column": "sex", "local": "gender", "action": "renamed, 2 codes", "mapped": 5, "missing": 0},
    ]
    shown = check(here, *more, rows=MAPPED_ROWS)
    assert report["mapping"]["sha256"] in shown
    for words in ("What the mapping made of these records", "weight_index", "renamed, 2 codes"):
        assert words in shown


def test_an_unmapped_code_and_a_faulty_mapping_are_refused_without_a_value(here: Path) -> None:
    (here / "columns.toml").write_text(MAPPING.replace('M = "m"', 'X = "m"'))
    more = ("--columns", str(here / "columns.toml"))
    refused = " ".join(check(here, *more, rows=MAPPED_ROWS, code=1).split())
    assert "column sex: 2 of 5 values have a code that the mapping does not know, the first in line 3" in refused
    (here / "columns.toml").write_text(MAPPING.replace("gender", "gendre"))
    refused = " ".join(check(here, *more, rows=MAPPED_ROWS, code=1).split())
    assert "[columns] sex: the table has no column 'gendre'. Did you mean 'gender'?" in refused
