"""From a study's end to predictions, as a person types it; mistakes are one line and an exit code."""

from __future__ import annotations

import csv
import hashlib
import json
import shlex
from pathlib import Path
from typing import cast

import numpy as np
import pandas
import pytest

from client_sdk.released import load_model
from private_learning.tasks import load
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.settings import StudySettings
from study_protocol.study.slots import with_slots
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import metadata_in
from tests.factories.commands import Run, finished, write_records, write_settings
from tests.factories.live_coordinator import Live
from tests.factories.released import TABLE, TASKS, write_model
from tests.factories.settings import settings
from wardround.cli.lead.templates import study_text
from wardround.cli.researcher.model import predict

NEW = "patient,age,chol,thal,sick\np1,40,,3,1\np2,100,300,,0\n17,18,100,7,1\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "m.safetensors", "logistic-regression", TABLE))


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "new.csv").write_text(NEW)
    return str(tmp_path / "new.csv")


@pytest.mark.slow
def test_the_whole_way_from_a_study_to_predictions(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    target = tmp_path / "model.safetensors"
    said = run("study", "model", "sepsis", "-o", str(target)).stdout
    body = target.read_bytes()
    assert hashlib.sha256(body).hexdigest() in said
    assert "model of round 2, " in said
    metadata = ModelMetadata.within(metadata_in(body))
    assert metadata is not None
    assert (metadata.study, metadata.round) == ("sepsis", 2)
    entries = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"]
    (settled,) = [entry for entry in entries if (entry["kind"], entry["round"]) == ("settled", 2)]
    assert (metadata.ledger_entries, metadata.ledger_sha256) == (settled["sequence"], settled["sha256"])
    assert metadata.settings_sha256 == here.operator("GET", "/v1/studies/sepsis").json()["settings_sha256"]

    # The printed command is one that works.
    (next_,) = [line.removeprefix("next: wardround ") for line in said.splitlines() if line.startswith("next: ")]
    records, output = write_records(tmp_path / "new.csv"), tmp_path / "predictions.csv"
    words = [
        str(records) if w == "new.csv" else str(output) if w == "predictions.csv" else w for w in shlex.split(next_)
    ]
    run(*words)
    rows = list(csv.DictReader(output.read_text().splitlines()))
    np.testing.assert_allclose([float(row["probability_1"]) for row in rows], load_model(target)(records)[:, 1])

    initial = tmp_path / "initial.safetensors"
    said = run("study", "model", "sepsis", "-o", str(initial), "--round", "0").stdout
    assert "initial model, which is not trained yet" in said
    first = ModelMetadata.within(metadata_in(initial.read_bytes()))
    assert first is not None
    assert (first.round, first.ledger_entries, first.ledger_sha256) == (0, 0, "0" * 64)


def test_weights_of_another_study_may_begin_a_new_one(here: Live, run: Run, tmp_path: Path) -> None:
    parameters = settings().training.task_parameters
    other = write_model(tmp_path / "other.safetensors", "logistic-regression", parameters)
    chosen = str(write_settings(tmp_path / "study.json"))
    run("study", "create", "flu", "--settings", chosen, "--model", str(other), operator=True)
    body = here.operator("GET", "/v1/studies/flu/models/0").content
    metadata = ModelMetadata.within(metadata_in(body))
    assert metadata is not None
    assert (metadata.study, metadata.round) == ("flu", 0)
    again = tmp_path / "again.safetensors"
    again.write_bytes(body)
    row = {"age": [30.0], "rate": [80.0]}
    assert np.array_equal(load_model(again)(row), load_model(other)(row))
    other.write_bytes(b"no tensors")
    refused = run("study", "create", "new", "--settings", chosen, "--model", str(other), code=1, operator=True)
    assert "not a safetensors file" in refused.stderr
    assert here.operator("GET", "/v1/studies/new").status_code == 404


@pytest.mark.slow
def test_a_model_that_the_ledger_does_not_know_is_not_written(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_sdk.api.client import Client

    finished(run, here, tmp_path)
    honest = here.operator("GET", "/v1/studies/sepsis/models/2").content
    said = ModelMetadata.within(metadata_in(honest))
    assert said is not None
    bare = {"weight": np.zeros((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
    lies = {
        "does not have": said.model_copy(update={"ledger_sha256": "a" * 64}).header(),
        "another round": said.model_copy(update={"round": 1}).header(),
        "another study": said.model_copy(update={"study": "flu"}).header(),
        "does not say": {},
    }
    for words, header in lies.items():
        monkeypatch.setattr(Client, "model", lambda *_, header=header: encode_model(bare, header))
        result = run("study", "model", "sepsis", "-o", str(tmp_path / "model"), code=1)
        assert words in result.stderr
        assert not (tmp_path / "model").exists()


def test_predictions_carry_the_patient_and_are_whole(run: Run, model: str, data: str, tmp_path: Path) -> None:
    output = tmp_path / "predictions.csv"
    run("predict", model, "--data", data, "-o", str(output), "--id-column", "patient")
    rows = list(csv.DictReader(output.read_text().splitlines()))
    assert [row["patient"] for row in rows] == ["p1", "p2", "17"]
    expected = load_model(model)(data)
    assert [[float(row["probability_0"]), float(row["probability_1"])] for row in rows] == expected.tolist()
    assert [int(row["predicted"]) for row in rows] == expected.argmax(axis=1).tolist()
    # Nobody else on the machine reads them.
    assert output.stat().st_mode & 0o077 == 0

    printed = run("predict", model, "--data", data).stdout
    assert [row["row"] for row in csv.DictReader(printed.splitlines())] == ["1", "2", "3"]
    shown = json.loads(run("predict", model, "--data", data, "--id-column", "patient", "--json").stdout)
    assert [each["probability_1"] for each in shown] == expected[:, 1].tolist()


def test_a_posterior_s_intervals_stand_beside_the_predictions(run: Run, model: str, data: str, tmp_path: Path) -> None:
    name = "bayesian-logistic-regression"
    bayesian = write_model(tmp_path / "b.safetensors", name, TASKS[name])
    found = json.loads(run("predict", str(bayesian), "--data", data, "--interval", "0.9", "--json").stdout)
    expected = load_model(bayesian).intervals(data, 0.9)
    assert [[row["probability_1_low"], row["probability_1_high"]] for row in found] == expected.tolist()
    assert all(row["probability_1_low"] < row["probability_1"] < row["probability_1_high"] for row in found)
    assert "has no posterior" in run("predict", model, "--data", data, "--interval", "0.9", code=1).stderr
    assert "between 0 and 1" in run("predict", str(bayesian), "--data", data, "--interval", "90", code=1).stderr


def test_bands_are_drawn_by_the_file_that_a_study_was_created_from(run: Run, tmp_path: Path) -> None:
    written = settings(training={"task": "additive", "task_parameters": dict(TASKS["additive"])})
    frozen = with_slots(written)
    assert frozen.digest() != written.digest()
    task = load("additive", TASKS["additive"])
    header = ModelMetadata.of("sepsis", cast(StudySettings, frozen), 3).header()
    model, stated = tmp_path / "m.safetensors", tmp_path / "study.toml"
    model.write_bytes(encode_model(task.initial_weights(np.random.default_rng(0)), header))
    stated.write_text(study_text(written.as_json()))
    run("export", str(model), "--curves", str(tmp_path / "c.svg"), "--settings", str(stated))
    assert "noise alone" in (tmp_path / "c.svg").read_text()


def test_curves_are_drawn_and_written_for_interpret(run: Run, model: str, tmp_path: Path) -> None:
    additive = str(write_model(tmp_path / "a.safetensors", "additive", TASKS["additive"]))
    chosen = settings(training={"task": "additive", "task_parameters": dict(TASKS["additive"])})
    stated, picture, document = tmp_path / "study.toml", tmp_path / "curves.svg", tmp_path / "model.json"
    stated.write_text(study_text(chosen.as_json()))
    run("export", additive, "--curves", str(picture), "--interpret", str(document), "--settings", str(stated))
    assert "noise alone" in picture.read_text()
    assert [feature["name"] for feature in json.loads(document.read_text())["ebm"]["features"]] == [
        "age",
        "chol",
        "thal",
    ]
    # Neither is overwritten, and another task's model has none.
    assert "exists" in run("export", additive, "--curves", str(picture), code=1).stderr
    assert "SVG" in run("export", additive, "--curves", str(tmp_path / "curves.png"), code=2).stderr
    assert not (tmp_path / "curves.png").exists()
    assert "only a model of task additive" in run("export", model, "--curves", str(tmp_path / "b.svg"), code=1).stderr
    stated.write_text(study_text(settings().as_json()))
    wrong = run("export", additive, "--curves", str(tmp_path / "c.svg"), "--settings", str(stated), code=1).stderr
    assert "not the settings of the model's study" in wrong
    assert not (tmp_path / "c.svg").exists()


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("regression", ["prediction_sick"]),
        ("multi-label", ["probability_stroke", "probability_infarction", "probability_sepsis"]),
        ("discrete-survival", ["survival_30", "survival_90"]),
    ],
)
def test_predictions_of_other_tasks_have_names_of_their_own(
    run: Run, data: str, tmp_path: Path, name: str, columns: list[str]
) -> None:
    model = write_model(tmp_path / "m.safetensors", name, TASKS[name])
    found = json.loads(run("predict", str(model), "--data", data, "--id-column", "patient", "--json").stdout)
    assert list(found[0]) == ["patient", *columns]
    assert [list(row.values())[1:] for row in found] == load_model(model)(data).tolist()


def test_masks_are_written_as_arrays(run: Run, tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.safetensors", "segmentation", TASKS["segmentation"] | {"mask-values": "0|7|255"})
    images, made = tmp_path / "new.npz", tmp_path / "masks.npz"
    np.savez(images, inputs=np.random.default_rng(1).uniform(0, 255, (5, 9, 10)), patients=list("abcde"))
    run("predict", str(model), "--data", str(images), "-o", str(made))
    with np.load(made) as found:
        assert found["patients"].tolist() == list("abcde")
        expected = np.array([0, 7, 255])[load_model(model)(images).argmax(1)]
        np.testing.assert_array_equal(found["masks"], expected)
    assert made.stat().st_mode & 0o777 == 0o600
    refused = run("predict", str(model), "--data", str(images), code=1)
    assert "-o masks.npz" in refused.stderr


@pytest.mark.slow
def test_what_is_wrong_is_said_in_one_line(run: Run, model: str, data: str, tmp_path: Path) -> None:
    (tmp_path / "less.csv").write_text("age,thal\n40,3\n")
    (tmp_path / "text.csv").write_text("age,chol,thal\nold,200,3\n")
    taken = tmp_path / "taken.csv"
    taken.write_text("age,chol,thal,predicted\n40,200,3,p1\n")
    there = tmp_path / "there.csv"
    there.write_text("kept")
    cases = [
        (("predict", model, "--data", str(tmp_path / "less.csv")), 1, "lacks 1 of the study's columns: 'chol'"),
        (("predict", model, "--data", str(tmp_path / "text.csv")), 1, "values are no numbers"),
        (("predict", model, "--data", data, "-o", str(there)), 1, "exists already"),
        (("predict", model, "--data", data, "--id-column", "name"), 1, "no patient column 'name'"),
        (("predict", model, "--data", str(taken), "--id-column", "predicted"), 1, "a column 'predicted' of its own"),
        (("predict", model, "--data", str(tmp_path / "none.csv")), 1, "none.csv"),
        (("predict", str(tmp_path / "none"), "--data", data), 1, "none: No such file"),
        (("predict", data, "--data", data), 1, "new.csv is no model"),
        (("predict", model), 2, "Missing option"),
        (("evaluate", "sepsis", "--data", data), 1, "add --watch"),
        (("evaluate", model, "--data", str(tmp_path / "less.csv")), 1, "'sick'"),
        (("evaluate", "sepsis", "--data", data, "--watch"), 2, "needs --name"),
        (("evaluate", "sepsis", "--data", data, "--watch", "--name", "x"), 1, "API key or a login"),
        (("export", model), 2, "--onnx FILE"),
        (("export", model, "--torch", str(there)), 1, "exists already"),
    ]
    for arguments, code, words in cases:
        result = run(*arguments, code=code)
        assert words in " ".join(result.stderr.split()), arguments
        assert "Traceback" not in result.output
    assert there.read_text() == "kept"


def test_evaluation_says_what_its_numbers_disclose(run: Run, model: str, data: str) -> None:
    result = run("evaluate", model, "--data", data, "--json")
    assert "no privacy budget counts" in " ".join(result.stderr.split())
    found = json.loads(result.stdout)
    probabilities = load_model(model)(data)
    assert found["n"] == 3
    assert found["brier"] == pytest.approx(np.mean((probabilities[:, 1] - [1, 0, 1]) ** 2))
    assert sum(map(sum, found["confusion"])) == 3
    shown = run("evaluate", model, "--data", data).stdout
    assert f"{found['roc_auc']:.4f}" in shown
    # A cell of nobody is an answer, too.
    assert shown.count("predicted as") == 4


@pytest.mark.slow
def test_a_declared_set_s_numbers_stand_beside_every_round(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    data = str(write_records(tmp_path / "public.csv"))
    arguments = ("evaluate", "sepsis", "--watch", "--data", data, "--patient-column", "patient", "--name", "public")
    result = run(*arguments, operator=True)
    assert "outside its guarantee" in " ".join(result.stderr.split())
    rounds = here.operator("GET", "/v1/studies/sepsis/rounds").json()["rounds"]
    assert [one["metrics"]["evaluation_set"] for one in rounds] == ["public", "public"]
    (tmp_path / "m").write_bytes(here.operator("GET", "/v1/studies/sepsis/models/2").content)
    alone = json.loads(run("evaluate", str(tmp_path / "m"), "--data", data, "--json").stdout)
    assert rounds[1]["metrics"]["values"] == {k: alone[k] for k in ("accuracy", "roc_auc", "log_loss", "brier")}
    # A second time there is nothing to do, and nothing is done.
    assert run(*arguments, operator=True).stdout == ""


@pytest.mark.slow
def test_an_export_is_written_with_what_was_checked(run: Run, model: str, tmp_path: Path) -> None:
    said = run("export", model, "--onnx", str(tmp_path / "m.onnx"), "--torch", str(tmp_path / "m.pt2")).stdout
    assert said.count("differ by at most") == 2
    assert {"m.onnx", "m.pt2"} <= {path.name for path in tmp_path.iterdir()}


def test_predictions_take_an_encoding_and_hold_no_formula(run: Run, model: str, tmp_path: Path) -> None:
    written = "=patient;x,age,chol,thal\nM\u00fcller,40,200,3\n+1+cmd|x,40,200,3\n-3,40,200,3\n"
    (tmp_path / "new.csv").write_bytes(written.encode("cp1252"))
    words = ("predict", model, "--data", str(tmp_path / "new.csv"), "--id-column", "=patient;x")
    assert "--encoding" in run(*words, code=1).stderr
    rows = list(csv.reader(run(*words, "--encoding", "cp1252").stdout.splitlines()))
    assert [row[0] for row in rows] == ["'=patient;x", "M\u00fcller", "'+1+cmd|x", "-3"]


def test_new_records_are_read_as_options_declare_them(run: Run, model: str, tmp_path: Path) -> None:
    """`cases/encoding`, and what the file itself leaves in doubt."""
    (tmp_path / "plain.csv").write_text("age,chol,thal,note\n40.125,,3,x\n18,100.25,7,x\n")
    (tmp_path / "new.csv").write_bytes("age;chol;thal;note\n40,125;;3;Köln\n18;100,25;7;1.5\n".encode("cp1252"))
    new = ("predict", model, "--data", str(tmp_path / "new.csv"), "--json")
    assert "--encoding" in run(*new, code=1).stderr
    assert "declare --decimal" in " ".join(run(*new, "--encoding", "cp1252", code=1).stderr.split())
    declared = run(*new, "--encoding", "cp1252", "--decimal", "comma")
    assert json.loads(declared.stdout) == json.loads(
        run("predict", model, "--data", str(tmp_path / "plain.csv"), "--json").stdout
    )
    assert "read with semicolon between cells, CP1252, decimal comma" in " ".join(declared.stderr.split())
    quiet = run(*new, "--encoding", "cp1252", "--decimal", "comma", "--separator", "semicolon")
    assert quiet.stderr == ""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_new_records_may_have_a_hospital_s_own_names_and_units(
    run: Run, model: str, tmp_path: Path, suffix: str
) -> None:
    (tmp_path / "studys.csv").write_text("age,chol,thal,id\n40,200,3,a\n50,300,7,b\n")
    local = pandas.DataFrame({"alter": [40, 50], "chol": [100, 150], "thal": ["N", "R"], "id": ["a", "b"]})
    path = tmp_path / f"new.{suffix}"
    local.to_csv(path, index=False) if suffix == "csv" else local.to_parquet(path)
    columns = '[columns]\nage = "alter"\nchol = { multiply = 2 }\nthal = { map = { N = "3", R = "7" } }\n'
    (tmp_path / "columns.toml").write_text(columns)
    options = ("--id-column", "id", "--json")
    found = run("predict", model, "--data", str(path), "--columns", str(tmp_path / "columns.toml"), *options)
    expected = run("predict", model, "--data", str(tmp_path / "studys.csv"), *options)
    assert json.loads(found.stdout) == json.loads(expected.stdout)


def test_predictions_are_for_the_user_of_the_command_alone(
    tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "predicted.csv"
    predict(Path(model), _arrays_refused(tmp_path), output=target, separator="comma", decimal="point")
    assert target.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out == f"{target}: 3 records\n"
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert len(rows) == 3
    probabilities = load_model(model)({"age": ["40", "100", "18"], "chol": ["", "300", "100"], "thal": ["3", "", "7"]})
    written = [[float(value) for name, value in row.items() if "prob" in name or "p_" in name] for row in rows]
    assert np.allclose([row[-1] for row in written], probabilities[:, -1], atol=1e-6)


def _arrays_refused(tmp_path: Path) -> Path:
    path = tmp_path / "new.csv"
    path.write_text(NEW)
    return path
