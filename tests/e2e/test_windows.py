"""A hospital's programs under the stand-in for Windows, each a process of its own, against a coordinator on Linux."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sdk.guard.ledger_file import ledger_path
from study_protocol.files.lock import FileLock
from tests.factories.clinics import clinic
from tests.factories.commands import AS_WRITTEN, write_records, write_settings
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live, live
from tests.harness.windows import stand_in

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

Command = Callable[..., subprocess.CompletedProcess[str]]
FOLDERS = ("tests/client_sdk/guard", "tests/client_sdk/secure_sum", "tests/record_sources/snapshot")
RECORDS = ("--patient-column", "patient", *AS_WRITTEN)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        (tmp_path / "administrator.key").write_text(running.operator_key + "\n")
        yield running


@pytest.fixture
def variables(coordinator: Live, tmp_path: Path) -> dict[str, str]:
    hospital = {"WARDROUND_SERVER": coordinator.url, "WARDROUND_CLIENT_HOME": str(tmp_path / "mercy")}
    return {**os.environ, **stand_in.environment(), **hospital}


@pytest.fixture
def command(variables: dict[str, str], tmp_path: Path) -> Command:
    def run(*words: str | Path, code: int = 0, text: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "wardround.cli.main", *map(str, words)],
            env=variables,
            cwd=tmp_path,
            input=text,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def enrolled(coordinator: Live, command: Command, tmp_path: Path) -> None:
    """Open a study of one hospital, and enrol it."""
    key = ("--key-file", tmp_path / "administrator.key")
    command("study", "create", "sepsis", "--settings", write_settings(tmp_path / "study.json"), *key)
    token = command("invite", "sepsis", "mercy", *key).stdout
    assert command("enrol", "-", text=token).stdout == "enrolled: sepsis as mercy\n"
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())
    command("study", "start", "sepsis", *key)


@pytest.fixture
def working(coordinator: Live) -> Iterator[None]:
    """The coordinator's worker, until the test ends."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            coordinator.work()

    worker = threading.Thread(target=work)
    worker.start()
    yield
    ended.set()
    worker.join()


def test_a_hospital_checks_enrols_joins_and_predicts(
    coordinator: Live, command: Command, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    # Without an access list of its own this folder would let all users into what is made below.
    tmp_path.chmod(0o777)
    table = write_records(tmp_path / "records.csv")
    settings = write_settings(tmp_path / "study.json")
    assert "patients" in command("data", "check", table, "--settings", settings, *RECORDS).stdout
    enrolled(coordinator, command, tmp_path)
    findings = {each["check"]: each for each in json.loads(command("doctor", "--json").stdout)}
    assert [findings[check]["verdict"] for check in ("directory", "identity.key", "coordinator")] == ["good"] * 3
    request.getfixturevalue("working")
    joined = json.loads(command("join", "sepsis", "--data", table, *RECORDS, "--yes", "--json").stdout)
    assert joined["reason"] == "max-steps-reached", joined
    # The lock of the ledger was held, and is free.
    FileLock(ledger_path(tmp_path / "mercy", "records").with_suffix(".lock")).release()
    command("study", "model", "sepsis", "-o", "model.safetensors")
    command(
        "predict", "model.safetensors", "--data", table, "--id-column", "patient", *AS_WRITTEN, "-o", "predictions.csv"
    )
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text().splitlines()))
    assert len(rows) == len(table.read_text().splitlines()) - 1
    assert 0 <= float(rows[0]["probability_1"]) <= 1
    # The stand-in plays with this mode an access list that lets all users in.
    (tmp_path / "mercy" / "identity.key").chmod(0o646)
    refused = command("doctor", "--json", code=1)
    (key,) = (each for each in json.loads(refused.stdout) if each["check"] == "identity.key")
    assert "(access list): run icacls" in key["text"]


def test_a_killed_hospital_lets_go_of_its_ledger_and_two_never_hold_it(
    coordinator: Live, command: Command, variables: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    table = write_records(tmp_path / "records.csv")
    enrolled(coordinator, command, tmp_path)
    words = ("join", "sepsis", "--data", str(table), *RECORDS, "--yes")
    lock = ledger_path(tmp_path / "mercy", "records").with_suffix(".lock")
    # Its coordinator works on nothing, so that it waits with its ledger held.
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen(
            [sys.executable, "-m", "wardround.cli.main", *words], env=variables, cwd=tmp_path, stdout=log, stderr=log
        )
    try:
        while not lock.exists():
            assert first.poll() is None, (tmp_path / "first.log").read_text()
        second = command(*words, code=1)
        assert "another process uses the ledger" in second.stderr
    finally:
        first.kill()
        first.wait()
    request.getfixturevalue("working")
    assert json.loads(command(*words, "--json").stdout)["reason"] == "max-steps-reached"


def test_the_tests_of_ledgers_and_secure_sums_pass(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'base'}", *FOLDERS],
        env={**os.environ, "WARDROUND_TEST_WINDOWS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_what_needs_another_system_is_refused(command: Command) -> None:
    assert "needs Linux or macOS" in command("demo", code=2).stderr
    assert "task scheduler" in command("site", "install", "sepsis", "--", "--data", "records.csv", code=1).stderr


def test_a_snapshot_is_taken_and_listed(command: Command, tmp_path: Path) -> None:
    clinic(tmp_path)
    command("data", "snapshot", "source.toml", "-o", "icu.parquet", "--as", "ada")
    assert [path.name for path in tmp_path.glob("*icu*")] == ["icu.parquet"]
    assert not list(tmp_path.glob(".icu*"))
    assert json.loads(command("data", "list", "icu", "--json").stdout)["state"] == "there"
    assert "frozen" in command("data", "snapshot", "source.toml", "-o", "icu.parquet", code=1).stderr
