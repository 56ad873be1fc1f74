"""What an operator does: create, move, show, invite, list; mistakes are one line and an exit code."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from safetensors.numpy import load

from server.api.problems import ApiProblem
from server.services.studies import lifecycle
from study_protocol.wire.tensors import metadata_in
from tests.factories.commands import Run, finished, opened, write_settings
from tests.factories.live_coordinator import Live
from tests.factories.settings import MASKING, settings
from wardround.cli.lead.study import weights
from wardround.cli.shared.shared import number


@pytest.mark.slow
def test_a_studys_states_and_what_is_shown_of_it(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    states = [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("start", "pause")
    ]
    states += [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("resume", "stop")
    ]
    assert states == ["running", "paused", "running", "finished"]
    assert "finished: stopped. Charges stay" in run("study", "show", "sepsis").stdout
    # Creating the same study again is the same study; its model is not uploaded twice.
    create = ("study", "create", "sepsis", "--settings", str(tmp_path / "study.json"), "--json")
    assert json.loads(run(*create, operator=True).stdout)["state"] == "finished"


@pytest.mark.slow
def test_errors_are_one_line_and_an_exit_code(here: Live, run: Run, tmp_path: Path) -> None:
    cases = [
        (("budget", "sepsis"), 1, "enrol first"),
        (("enrol", "wri_half"), 1, "copy all of it"),
        (("study", "show", "flu", "--key-file", str(tmp_path / "administrator.key")), 1, "unknown-study"),
        (("study", "start", "flu"), 1, "API key or a login"),
        (("egress-log",), 1, "no ledger"),
        (("study", "create", "flu", "--settings", str(tmp_path / "none.json")), 1, "none.json"),
        (("budget",), 2, "Missing argument"),
        (("study", "show", "Sepsis"), 2, "lower-case letters"),
        (("invite", "sepsis", "City Hospital"), 2, "lower-case letters"),
        (
            ("budget", "sepsis", "--server", "https://127.0.0.1:9", "--key-file", str(tmp_path / "none")),
            1,
            "cannot be read",
        ),
    ]
    for arguments, code, text in cases:
        result = run(*arguments, code=code)
        assert text in result.stderr, arguments
        assert "Traceback" not in result.output


@pytest.mark.slow
def test_settings_that_an_older_coordinator_does_not_know_are_named(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        # As one from before there were slots answers.
        raise ApiProblem("invalid-request", "body.settings.schedule.…: Extra inputs are not permitted")

    monkeypatch.setattr(lifecycle, "create", refuse)
    path = str(write_settings(tmp_path / "study.json"))
    said = run("study", "create", "sepsis", "--settings", path, operator=True, code=1).stderr
    assert "answers in slots, which coordinators of an earlier version do not know" in " ".join(said.split())
    assert "Extra inputs are not permitted" in " ".join(said.split())


@pytest.mark.slow
def test_a_settings_file_with_mistakes_names_each_of_them(here: Live, run: Run, tmp_path: Path) -> None:
    broken = settings().as_json()
    broken["privacy"].pop("noise_multiplier")
    broken["privacy"]["clip_norm"] = -1
    broken["privacy"]["limits"][0]["epsillon"] = 1.0
    broken["training"]["task_parameters"] = {f"column.p{number}": "0..1" for number in range(1025)}
    path = tmp_path / "study.json"
    path.write_text(json.dumps(broken))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "privacy.noise_multiplier: is missing" in said
    assert "privacy.limits.0.epsillon: there is no such entry. Did you mean epsilon?" in said
    assert "training.task_parameters: must have at most 1024 entries\n" in said
    broken["privacy"]["limits"] = []
    path.write_text(json.dumps(broken))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "privacy.limits: must have at least 1 entry\n" in said
    assert "privacy.clip_norm" in said
    assert here.operator("GET", "/v1/studies/sepsis").status_code == 404


@pytest.mark.quick("study.toml")
@pytest.mark.parametrize("name", ["study.json", "study.toml"])
def test_a_settings_file_that_is_no_text_is_one_line(here: Live, run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    assert "is no text in UTF-8" in run("study", "create", "s", "--settings", str(path), code=1, operator=True).stderr


def test_a_wrong_task_is_one_line_too(here: Live, run: Run, tmp_path: Path) -> None:
    wrong = settings(training={"task_parameters": {"label": "ill", "colunm.age": "0..100"}}).as_json()
    path = tmp_path / "study.json"
    path.write_text(json.dumps(wrong))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "colunm" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_what_became_of_a_study(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    (listed,) = json.loads(run("study", "list", "--json", operator=True).stdout)
    assert (listed["study"], listed["state"], listed["rounds"]) == ("sepsis", "finished", 2)
    assert "max-steps-reached" in run("study", "list", operator=True).stdout

    shown = json.loads(run("study", "rounds", "sepsis", "--json").stdout)
    assert [one["round"] for one in shown] == [1, 2]
    budget = here.operator("GET", "/v1/studies/sepsis/budget").json()
    spent = [limit["spent"] for limit in budget["limits"] if limit["epsilon"] is not None]
    assert [limit["spent"] for limit in shown[-1]["spent"]] == spent
    assert len(json.loads(run("study", "rounds", "sepsis", "--last", "1", "--json").stdout)) == 1
    assert number(spent[0]) in run("study", "rounds", "sepsis", operator=True).stdout

    target = tmp_path / "model.safetensors"
    run("study", "model", "sepsis", "-o", str(target))
    assert target.read_bytes() == here.operator("GET", "/v1/studies/sepsis/models/2").content
    run("study", "model", "sepsis", "-o", str(target), "--round", "1", code=1)
    run("study", "model", "sepsis", "-o", str(tmp_path / "other"), "--round", "9", code=1)
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("averaging", "weights"),
    [
        ({"name": "tail", "share": 0.5}, {2: 0.5, 3: 0.5}),
        ({"name": "exponential", "decay": 0.5}, {1: 1 / 7, 2: 2 / 7, 3: 4 / 7}),
    ],
    ids=["tail", "exponential"],
)
def test_the_result_is_the_mean_that_the_settings_name(
    here: Live, run: Run, tmp_path: Path, averaging: dict[str, Any], weights: dict[int, float]
) -> None:
    finished(run, here, tmp_path, max_steps=3, training={"optimiser": {"averaging": averaging}})
    released = {number: here.operator("GET", f"/v1/studies/sepsis/models/{number}").content for number in (1, 2, 3)}
    assert len({load(body)["weight"].tobytes() for body in released.values()}) == 3
    # What rounds train from, and what certificates name, is as it was released.
    assert all("mean_of" not in metadata_in(body) for body in released.values())

    target = tmp_path / "model.safetensors"
    said = run("study", "model", "sepsis", "-o", str(target)).stdout
    assert f"the study's result, made of rounds {min(weights)} to 3" in said
    mean = load(target.read_bytes())
    for name, array in mean.items():
        wanted = sum(weight * load(released[number])[name] for number, weight in weights.items())
        np.testing.assert_allclose(array, wanted, rtol=1e-6)
    assert json.loads(metadata_in(target.read_bytes())["mean_of"]) == list(weights)

    run("study", "model", "sepsis", "-o", str(tmp_path / "second"), "--round", "2")
    assert (tmp_path / "second").read_bytes() == released[2]


@pytest.mark.slow
def test_who_kept_a_round_from_going_on_is_told_to_operators(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    run("study", "start", "sepsis", operator=True)
    here.work()
    assert "mercy: sampled" in run("study", "rounds", "sepsis", operator=True).stdout
    run("revoke", "sepsis", "mercy", operator=True)
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "revoked")]


@pytest.mark.slow
def test_a_task_that_cannot_be_built_leaves_the_name_free(here: Live, run: Run, tmp_path: Path) -> None:
    wrong = write_settings(tmp_path / "wrong.json", training={"task": "logreg"})
    told = run("study", "create", "stroke", "--settings", str(wrong), operator=True, code=1).stderr
    assert "logreg" in told
    right = write_settings(tmp_path / "right.json")
    run("study", "create", "stroke", "--settings", str(right), operator=True)


@pytest.mark.quick("model")
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise OSError('no weights here')", "cannot be imported: OSError: no weights here"),
        ("import nobody_has_this", "No module named 'nobody_has_this'. Pass --model"),
        ("def Own(parameters): return parameters['width']", "with these parameters: KeyError: 'width'"),
        (
            "from private_learning.tasks import Classification\n"
            "class Own(Classification):\n"
            "    classes = 2\n"
            "    def __init__(self, parameters): pass\n"
            "    def dataset(self, data): pass\n"
            "    def model(self): raise RuntimeError('no backbone')",
            "task 'own' could not make its model: RuntimeError: no backbone",
        ),
    ],
    ids=["import", "missing", "parameters", "model"],
)
def test_a_task_of_one_s_own_that_fails_is_one_line_and_nothing_is_created(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    (tmp_path / "own_task_that_fails.py").write_text(code)
    info = tmp_path / "own_task_that_fails-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-task-that-fails\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[wardround.tasks]\nown = own_task_that_fails:Own\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_task_that_fails", raising=False)
    path = write_settings(tmp_path / "own.json", training={"task": "own", "task_parameters": {}})
    told = run("study", "create", "stroke", "--settings", str(path), operator=True, code=1).stderr
    assert said in told
    assert "Traceback" not in told
    assert here.operator("GET", "/v1/studies/stroke").status_code == 404


@pytest.mark.slow
def test_weights_in_a_file_are_those_that_the_study_begins_with(here: Live, run: Run, tmp_path: Path) -> None:
    path, file = write_settings(tmp_path / "study.json"), tmp_path / "model.safetensors"
    run("study", "weights", "--settings", str(path), "-o", str(file))
    run("study", "create", "stroke", "--settings", str(path), "--model", str(file), operator=True)
    # The coordinator's file says of which study it is, too.
    first, own = load(here.operator("GET", "/v1/studies/stroke/models/0").content), load(file.read_bytes())
    assert {name: array.tolist() for name, array in first.items()} == {n: array.tolist() for n, array in own.items()}
    before = file.read_bytes()
    assert "exists already" in run("study", "weights", "--settings", str(path), "-o", str(file), code=1).stderr
    assert file.read_bytes() == before


def masking_of(run: Run, tmp_path: Path, *, neighbours: int | None, min_clients: int) -> tuple[str, str]:
    """What `study create` and `study show` say."""
    masking = MASKING | {"neighbours": neighbours}
    more = {"masked": True, "masking": masking, "schedule": {"min_clients": min_clients}}
    study = f"s-{neighbours}-{min_clients}".lower()
    path = write_settings(tmp_path / f"{study}.json", **more)
    said = run("study", "create", study, "--settings", str(path), operator=True).stderr
    return said, " ".join(run("study", "show", study, operator=True).stdout.replace("│", " ").split())


@pytest.mark.slow
def test_a_study_of_many_hospitals_without_a_ring_is_told_what_it_costs(here: Live, run: Run, tmp_path: Path) -> None:
    slow, shown = masking_of(run, tmp_path, neighbours=None, min_clients=301)
    assert "exchanges masks with all others, 300 or more. This is sound, but slow" in slow
    assert "shares two secrets with all others" in shown
    for neighbours, min_clients in ((60, 301), (None, 300)):
        said, shown = masking_of(run, tmp_path, neighbours=neighbours, min_clients=min_clients)
        assert "note" not in said
    said, shown = masking_of(run, tmp_path, neighbours=8, min_clients=4)
    assert "with 8 neighbours on a ring: 6 of these 9 rebuild one" in shown
    # An auditor reads it off the ledger.
    found = json.loads(run("ledger", "verify", "s-8-4", "--json", operator=True).stdout)["found"]
    assert any("with 8 neighbours on a ring: 6 of these 9 rebuild one" in line for line in found)


def test_weights_are_drawn_into_a_new_file_without_a_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, target = write_settings(tmp_path / "study.json"), tmp_path / "weights.safetensors"
    weights(path, target)
    assert {name: array.tolist() for name, array in load(target.read_bytes()).items()} == {
        "weight": [[0, 0]],
        "bias": [0],
    }
    assert capsys.readouterr().out == f"{target}: {target.stat().st_size} bytes\n"
    with pytest.raises(typer.Exit):
        weights(path, target)
    assert "exists already" in capsys.readouterr().err
