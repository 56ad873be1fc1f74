"""A patient objects while a hospital takes part, both as processes of their own: no later round charges the patient."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.log_moments import patient_digest
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire.tensors import encode
from tests.factories.commands import AS_WRITTEN, write_records
from tests.factories.hospitals import lax_toml
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import settings

pytestmark = pytest.mark.slow
INDIVIDUAL = "[individual]\nepsilon = 500.0\ndelta = 1e-6\norder = 1.05\n"
ROUNDS = 5


def environment(url: str, home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARDROUND_")}
    return kept | {"WARDROUND_SERVER": url, "WARDROUND_CLIENT_HOME": str(home), "OMP_NUM_THREADS": "1"}


def spent(home: Path, patient: str) -> float:
    """The sum of one patient, as the hospital keeps it over all studies."""
    with HospitalLedger.open(ledger_path(home, "records"), read_only=True) as ledger:
        state = json.loads(ledger.individual() or b"{}")
    return float(state["filter"]["spent"][state["patients"].index(patient_digest(patient))])


def rounds(home: Path, kind: str) -> set[int]:
    path = ledger_path(home, "records")
    if not path.exists():
        return set()
    with HospitalLedger.open(path, read_only=True) as ledger:
        return {entry.round for entry in ledger.entries if entry.kind == kind and entry.round is not None}


def until(here: Live, process: subprocess.Popen[str], done: Callable[[], bool], *, work: bool = True) -> None:
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end
        assert process.poll() is None or done(), process.communicate()
        if work:
            here.work()
        time.sleep(0.05)


@pytest.mark.parametrize("ends", [False, True], ids=["goes on", "starts again"])
def test_a_patient_who_objects_is_in_no_later_round(tmp_path: Path, ends: bool) -> None:
    chosen = settings(max_steps=ROUNDS, schedule={"min_clients": 1})
    home, letter = tmp_path / "mercy", tmp_path / "letter.md"
    with live(tmp_path / "coordinator") as here:
        here.open_study("sepsis", chosen, model=False)
        model = tasks.load(chosen.training.task, chosen.training.task_parameters).model()
        assert here.operator("PUT", "/v1/studies/sepsis/models/0", content=encode(weights_of(model))).is_success
        Hospital.enrol(here.url, here.invite("sepsis", "mercy"), directory=home)
        (home / "policy.toml").write_text(lax_toml() + INDIVIDUAL)
        data = ["--data", str(write_records(tmp_path / "records.csv")), "--patient-column", "patient", *AS_WRITTEN]
        command = [sys.executable, "-m", "wardround.cli.main"]

        def start() -> subprocess.Popen[str]:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            joining = [*command, "join", "sepsis", *data, "--yes", "--json"]
            return subprocess.Popen(joining, env=environment(here.url, home), **pipes)  # type: ignore[call-overload]

        assert here.operator("POST", "/v1/studies/sepsis/start").is_success
        process = start()
        until(here, process, lambda: 2 in rounds(home, "settled"))
        # No further round is opened meanwhile, and what was opened is finished.
        until(here, process, lambda: rounds(home, "reserved") == rounds(home, "settled"), work=False)
        time.sleep(1.0)
        until(here, process, lambda: rounds(home, "reserved") == rounds(home, "settled"), work=False)
        held = rounds(home, "settled")
        before = {patient: spent(home, patient) for patient in ("p7", "p8")}
        if ends:
            process.terminate()
            process.communicate(timeout=60)
        adding = ["objection", "add", "P7", "--as", "Ada", "--role", "privacy officer", "-o", str(letter), "--json"]
        told = subprocess.run(
            [*command, *adding, *data[:4]],
            env=environment(here.url, home),
            capture_output=True,
            text=True,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        if ends:
            process = start()
        until(here, process, lambda: process.poll() is not None)
        out, errors = process.communicate()
        assert process.returncode == 0, errors
        assert json.loads(out)["reason"] == "max-steps-reached"
    assert held < rounds(home, "settled") == set(range(1, ROUNDS + 1))
    # Seen from the hospital's own account of each patient: it stands still for one, and goes on for the others.
    assert spent(home, "p7") == before["p7"] > 0
    assert spent(home, "p8") > before["p8"] > 0
    text = letter.read_text()
    assert f"| sepsis | records | rounds of training | 1 to {max(held)} |" in text
    assert "as they are now, hold this patient" in text
    assert "p7" not in text.lower().replace("p7,", "")
    (entry,) = json.loads(told.stdout)
    assert (entry["new"], entry["person"]["name"], entry["person"]["role"]) == (True, "Ada", "privacy officer")
    assert "p7" not in (home / "objections.db").read_bytes().decode("latin-1").lower()
