"""What an operator does: create, move, show, invite; mistakes are one line and an exit code."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factories.commands import Run, opened
from tests.factories.hospitals import settings
from tests.factories.live_coordinator import Live


def test_a_studys_states_and_what_is_shown_of_it(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    states = [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("start", "pause")
    ]
    states += [
        json.loads(run("study", a, "sepsis", "--json", operator=True).stdout)["state"] for a in ("resume", "stop")
    ]
    assert states == ["running", "paused", "running", "finished"]
    assert "finished (stopped)" in run("study", "show", "sepsis").stdout
    # Creating the same study again is the same study; its model is not uploaded twice.
    create = ("study", "create", "sepsis", "--settings", str(tmp_path / "study.json"), "--json")
    assert json.loads(run(*create, operator=True).stdout)["state"] == "finished"


def test_errors_are_one_line_and_an_exit_code(here: Live, run: Run, tmp_path: Path) -> None:
    cases = [
        (("budget", "sepsis"), 1, "enrol first"),
        (("enrol", "wri_half"), 1, "copy all of it"),
        (("study", "show", "flu", "--key-file", str(tmp_path / "operator.key")), 1, "unknown-study"),
        (("study", "start", "flu"), 1, "operator key"),
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


def test_a_settings_file_with_mistakes_names_each_of_them(here: Live, run: Run, tmp_path: Path) -> None:
    broken = settings().as_json()
    broken["privacy"].pop("noise_multiplier")
    broken["privacy"]["clip_norm"] = -1
    path = tmp_path / "study.json"
    path.write_text(json.dumps(broken))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "privacy.noise_multiplier: Field required" in said
    assert "privacy.clip_norm" in said
    assert here.operator("GET", "/v1/studies/sepsis").status_code == 404


def test_a_wrong_task_is_one_line_too(here: Live, run: Run, tmp_path: Path) -> None:
    wrong = settings(training={"task_parameters": {"label": "ill", "colunm.age": "0..100"}}).as_json()
    path = tmp_path / "study.json"
    path.write_text(json.dumps(wrong))
    said = run("study", "create", "sepsis", "--settings", str(path), code=1, operator=True).stderr
    assert "colunm" in said
    assert "Traceback" not in said
