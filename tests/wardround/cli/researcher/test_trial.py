"""`wardround try` as a person types it: the answer, the file, and what is refused."""

from __future__ import annotations

import json
import time
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from client_sdk.study.guessed_columns import guess_columns
from client_sdk.study.guessed_label import guess_task
from private_learning.records import Table, load
from simulation.trial import ALONE, CONSTANT, POOLED, STUDY, Trial, TrialResult
from tests.factories.record_files import write_records
from wardround.cli.main import build
from wardround.cli.researcher.trial import (
    _planned,  # pyright: ignore[reportPrivateUsage]
    _trial_of,  # pyright: ignore[reportPrivateUsage]
    _verdict,  # pyright: ignore[reportPrivateUsage]
    _what_helps,  # pyright: ignore[reportPrivateUsage]
)
from wardround.cli.researcher.trial import try_study as command
from wardround.cli.researcher.trial_settings import TrialSettings
from wardround.cli.shared.settings_file import read_settings


def wardround(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), list(map(str, arguments)), env={"COLUMNS": "160"})


@pytest.fixture
def records(tmp_path: Path) -> Path:
    return write_records(tmp_path / "records.csv", 240, 1)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "study.toml"


def try_study(records: Path, out: Path, *more: str) -> Result:
    return wardround("try", records, "--label", "ill", "--patient", "patient", "--seconds", "1", "-o", out, *more)


@pytest.mark.slow
def test_one_command_gives_the_numbers_and_a_settings_file(records: Path, out: Path) -> None:
    done = try_study(records, out)
    assert done.exit_code == 0, done.output
    for said in (
        "ill is read as 2 classes",
        "4 hospitals of 48 patients",
        "4 hospitals of 192 patients",
        "4 hospitals of your size: accuracy with ε 2: ",
        "; without privacy ",
        "; your hospital alone ",
        "; most frequent class ",
        "forecast for hospitals of your size",
        "send it to the study lead",
        "no privacy budget covers them",
    ):
        assert said in done.output
    settings = read_settings(out)
    assert settings.training.task_parameters["label"] == "ill"
    assert settings.privacy.limits[0].epsilon == 2
    text = out.read_text()
    assert "no privacy budget covers them" in text.splitlines()[0]
    described = [line for line in text.splitlines() if line.startswith('"column.')]
    assert described
    assert all(line.endswith("# check this") for line in described)
    # The same file is what `simulate` takes.
    assert wardround("plan", out).exit_code == 0


@pytest.mark.slow
def test_the_same_as_json(records: Path, out: Path) -> None:
    found = json.loads(try_study(records, out, "--json").stdout)
    assert found["task"] == "logistic-regression"
    assert found["dealt_out"]["patients"] * 4 == found["of_this_size"]["patients"]
    assert found["of_this_size"]["metrics"]["study"].keys() == found["dealt_out"]["metrics"]["constant"].keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        (["--label", "rate"], "regression"),
        (["--label", "ill", "--label", "smoker"], "multi-label"),
        (["--label", "rate", "--event", "ill"], "discrete-survival"),
    ],
)
def test_every_kind_of_label(arguments: list[str], task: str, tmp_path: Path, out: Path) -> None:
    lines = ["age,rate,ill,smoker"]
    lines += [f"{20 + row * 7 % 60},{1 + row * 13 % 97 / 10:.1f},{row * 3 % 2},{row % 3 // 2}" for row in range(240)]
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    done = wardround("try", table, *arguments, "--seconds", "1", "-o", out, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["task"] == task
    assert read_settings(out).training.task == task


@pytest.mark.slow
def test_names_alone_tell_no_number(records: Path, out: Path) -> None:
    assert try_study(records, out, "--names-only").exit_code == 0
    parameters = tomllib.loads(out.read_text())["training"]["task_parameters"]
    columns = {text for name, text in parameters.items() if name.startswith("column.")}
    assert columns <= {"LOW..HIGH", "LOW..HIGH; missing=MIDDLE", "CATEGORIES", "CATEGORIES; missing"}


def leaking(path: Path) -> Path:
    rows = [f"{20 + row * 7 % 60},{row * row % 7 % 2},{row * row % 7 % 2}" for row in range(240)]
    path.write_text("\n".join(["age,code,ill", *rows]) + "\n")
    return path


@pytest.mark.parametrize("keep", [[], ["--keep", "code"]])
def test_a_column_that_tells_the_label_is_kept_where_a_person_says_so(
    keep: list[str], tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "seconds", interrupted)
    done = wardround("try", leaking(tmp_path / "table.csv"), "--label", "ill", *keep, "-o", out)
    assert (done.exit_code, "nothing was written" in done.output) == (130, True)
    assert ("left out: code (it gives the label away" in done.output) == (not keep)
    done = wardround("try", tmp_path / "table.csv", "--label", "ill", "--keep", "ill", "-o", out)
    assert (done.exit_code, "--keep ill: the column is also" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("each", "seeds", "sizes"),
    # Seconds of a seed for every 1,000 patients, of 20 s in all.
    [(0.5, 10, [3000]), (2.0, 3, [3000]), (6.0, 3, [3000, 1000]), (50.0, 1, [3000, 1000])],
)
def test_seeds_and_patients_follow_from_the_first_rounds(
    each: float, seeds: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = list[int]()

    def seconds(trial: Trial) -> float:
        (records,) = trial.dealer.source.files
        timed.append(len(records))
        return each * len(records) / 1000

    monkeypatch.setattr(Trial, "seconds", seconds)
    table = Table.of({"age": [20 + row % 60 for row in range(3000)], "ill": [row * row % 7 % 2 for row in range(3000)]})
    task = guess_task(table, ["ill"])
    settings = TrialSettings.of(task, guess_columns(table, ["ill"]), 4, 2.0, 3000, 1)
    with monkeypatch.context() as stopped:
        stopped.setattr(time, "monotonic", lambda: 0.0)
        assert _planned(table, settings, 20.0)[1] == seeds
    assert timed == sizes


def test_of_a_patient_one_row_is_trained_on_and_all_held_out_rows_are_predicted() -> None:
    table = Table.of(
        {
            "age": [20 + row % 60 for row in range(300)],
            "ill": [row * row % 7 % 2 for row in range(300)],
            "who": [row // 3 for row in range(300)],
        },
        patient_column="who",
    )
    settings = TrialSettings.of(guess_task(table, ["ill"]), guess_columns(table, ["ill"]), 4, 2.0, 100, 3)
    _, parts, copies, test = _trial_of(table, settings)._dealt(0)  # pyright: ignore[reportPrivateUsage]
    assert (len(parts.dataset), parts.dataset.grouped, [*map(len, parts.rows)]) == (80, False, [20] * 4)
    assert ([*map(len, copies.rows)], len(test)) == ([80] * 4, 60)


@pytest.mark.parametrize(
    ("metric", "alone", "words"),
    [
        ("accuracy", (0.6, 0.7), "accuracy goes from 0.6 to 0.7 when a hospital has 40 patients and not 10 (measured)"),
        ("accuracy", (0.7, 0.6), "accuracy was not seen to get better when"),
        ("rmse", (7.0, 6.0), "rmse goes from 7 to 6 when"),
        ("rmse", (6.0, 6.0), "rmse was not seen to get better when"),
    ],
)
def test_more_patients_help_where_that_was_measured(metric: str, alone: tuple[float, float], words: str) -> None:
    dealt, whole = (
        TrialResult(4, patients, {row: [{metric: value}] for row in (STUDY, POOLED, ALONE, CONSTANT)})
        for patients, value in zip((10, 40), alone, strict=True)
    )
    no_better, more = _verdict(dealt, whole)
    assert "the model is no better than " in no_better
    assert "What would help: other columns" in no_better
    assert words in more


def test_half_of_one_column_helps_nobody(records: Path) -> None:
    table = load(records, patient_column="patient")
    assert isinstance(table, Table)
    task = guess_task(table, ["ill"], None, None)
    guessed = guess_columns(table, task.targets)
    one = replace(guessed, lines=dict([*guessed.lines.items()][:1]))
    for described, said in ((guessed, True), (one, False)):
        (helps,) = _what_helps(TrialSettings.of(task, described, 4, 2.0, 240, 1), 240)
        assert "with 8 hospitals" in helps
        assert ("half of the columns" in helps) == said


def test_an_interrupted_trial_writes_nothing(records: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trial, "run", interrupted)
    done = try_study(records, out)
    assert done.exit_code == 130
    assert "nothing was written" in done.output
    assert not list(out.parent.glob("*study.toml*"))


def test_an_existing_file_is_kept_without_force(records: Path, out: Path) -> None:
    out.write_text("mine")
    done = try_study(records, out)
    assert done.exit_code == 1
    assert "is not overwritten" in done.output
    assert out.read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", [], "records.csv"),
        ("a,b,a\n1,2,3\n", [], "a"),
        ("age,ill\n" + "50,1\n60,0\n" * 2, [], "patients are too few"),
        ("age,ill\n" + "".join(f"{row % 50},1\n" for row in range(100)), [], "one value for all patients"),
        (
            "age,sick\n" + "".join(f"{row % 50},{row % 2}\n" for row in range(100)),
            ["--label", "sik"],
            "did you mean sick",
        ),
        ("age,ill\n" + "50,1\n50,0\n" * 50, [], "no column is left"),
        (
            "patient_id,age,ill\n" + "".join(f"{row // 2},{row % 50},{row % 2}\n" for row in range(100)),
            [],
            "add --patient patient_id",
        ),
        (
            "age,ill\n" + "".join(f"{row % 50},{row * row % 7 % 2}\n" for row in range(60)),
            ["--hospitals", "50"],
            "ask for fewer",
        ),
    ],
    ids=["empty", "twice", "five", "one class", "misspelt", "no inputs", "several rows", "hospitals"],
)
def test_hopeless_records_are_answered_before_any_computation(
    text: str, arguments: list[str], said: str, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trial, "run", lambda *_: pytest.fail("it computed"))
    (tmp_path / "records.csv").write_text(text)
    label = [] if "--label" in arguments else ["--label", "ill"]
    done = wardround("try", tmp_path / "records.csv", *label, *arguments, "-o", out)
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    errors = [line for line in done.output.splitlines() if line.startswith("wardround: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert not out.exists()


def test_a_label_with_a_wrong_number_of_columns_for_its_task_is_refused(records: Path, out: Path) -> None:
    with pytest.raises(typer.Exit):
        command(records, ["ill"], task="multi-label", patient="patient", output=out)
    with pytest.raises(typer.Exit):
        command(records, ["age"], event="age", patient="patient", output=out)
    assert not out.exists()


def test_a_folder_and_a_wrong_encoding(tmp_path: Path, out: Path) -> None:
    done = wardround("try", tmp_path, "--label", "ill", "-o", out)
    assert (done.exit_code, "is a folder: name one table" in done.output) == (1, True)
    (tmp_path / "records.csv").write_bytes("größe,ill\n1,0\n".encode("cp1252"))
    done = wardround("try", tmp_path / "records.csv", "--label", "ill", "-o", out)
    assert (done.exit_code, "encoding" in done.output) == (1, True)


@pytest.mark.parametrize(
    ("gains", "words"),
    [
        ([0.02, -0.01, 0.0], 'not clearly better than "most frequent class"'),
        ([-0.01, -0.02, 0.0], 'no better than "most frequent class"'),
        ([0.05, 0.06, 0.04], None),
        ([0.05], None),
    ],
)
def test_a_gain_within_its_error_over_the_seeds_is_warned_of(gains: list[float], words: str | None) -> None:
    base = [0.68 + 0.03 * seed for seed in range(len(gains))]
    result = TrialResult(4, 500)
    for row in (STUDY, POOLED, ALONE):
        result.measured[row] = [{"accuracy": low + gain} for low, gain in zip(base, gains, strict=True)]
    result.measured[CONSTANT] = [{"accuracy": constant} for constant in base]
    warnings = [line for line in _verdict(result, result) if line.startswith("warning")]
    assert len(warnings) == (words is not None)
    assert all(str(words) in line for line in warnings)
