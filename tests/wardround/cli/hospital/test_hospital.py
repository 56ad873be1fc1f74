"""What a hospital does: enrol, join, withdraw, look at its own budget, ask the doctor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from tests.factories.commands import AS_WRITTEN, Run, finished, opened, write_records
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live
from wardround.cli.hospital.hospital import policy_in_force


def test_a_policy_s_file_comes_before_the_hospital_s_own(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[statistics]\nqueries = "refuse"\n')
    (tmp_path / "other.toml").write_text('studies = ["sepsis"]\n')
    own, other = policy_in_force(None, tmp_path), policy_in_force(tmp_path / "other.toml", tmp_path)
    assert own != other
    (tmp_path / "other.toml").write_text('studeis = ["sepsis"]\n')
    with pytest.raises(ConfigurationError, match="studeis"):
        policy_in_force(tmp_path / "other.toml", tmp_path)


def test_a_hospital_withdraws(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    assert run("withdraw", "sepsis").stdout == "withdrawn from sepsis\n"
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "withdrawn")]


@pytest.mark.slow
def test_one_round_at_most_ends_with_a_code_of_its_own(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())
    data = ("--data", str(write_records(tmp_path / "records.csv")), "--patient-column", "patient", *AS_WRITTEN)
    waited = run("join", "sepsis", "--once", "--wait", "0", *data, code=75)
    assert waited.stdout.splitlines()[-1] == "more is to come: run the same command again"
    # No operator has started the study, which is no error.
    printed = json.loads(run("join", "sepsis", "--once", "--wait", "0", "--json", *data, code=75).stdout)
    assert (printed["more_to_come"], printed["rounds_sent"]) == (True, 0)


@pytest.mark.parametrize("words", [("--wait", "5"), ("--once", "--wait", "-1"), ("--once", "--wait", "nan")])
def test_a_time_to_wait_needs_one_round_and_is_a_number(run: Run, words: tuple[str, ...]) -> None:
    assert "--wait" in run("join", "sepsis", "--data", "records.csv", *words, code=2).stderr


@pytest.mark.slow
def test_charges_without_a_limit_of_ones_own_are_told(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    assert "2 charges, and no local limit" in run("own-budget").stdout


@pytest.mark.slow
def test_doctor_finds_the_live_coordinator(here: Live, run: Run, tmp_path: Path) -> None:
    assert "identity.key" in run("doctor", code=1).stdout
    opened(run, tmp_path)
    findings = {f["check"]: f["verdict"] for f in json.loads(run("doctor", "--json").stdout)}
    assert findings["coordinator"] == "good"
    assert findings["clock"] == "good"
