"""What became of studies: lists, rounds, models."""

from __future__ import annotations

import json
from pathlib import Path

from client_sdk.commands.shared import number
from tests.factories.commands import Run, finished, opened
from tests.factories.live_coordinator import Live


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


def test_who_kept_a_round_from_going_on_is_told_to_operators(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    run("study", "start", "sepsis", operator=True)
    here.work()
    assert "mercy: sampled" in run("study", "rounds", "sepsis", operator=True).stdout
    run("revoke", "sepsis", "mercy", operator=True)
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "revoked")]
