"""The recommended path by commands alone: from `plan --suggest` to `certificate verify --model`, with one digest."""

from __future__ import annotations

import csv
import hashlib
import json
import random
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from pypdf import PdfReader

from wardround.demo.live import LiveCoordinator
from wardround.demo.processes import WARDROUND, Process, Processes, environment, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

STUDY, NAMES, PATIENTS = "ward", ("alpha", "beta", "gamma", "delta"), 60
# As `plan --suggest` names them.
COLUMNS = ("input-1", "input-2", "input-3")


def records(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("patient", *COLUMNS, "outcome"))
        for number in range(PATIENTS):
            values = [round(chance.random(), 3) for _ in COLUMNS]
            table.writerow((f"p{number}", *values, int(values[0] + chance.gauss(0, 0.2) > 0.5)))


class People:
    """Study lead, hospitals and auditor: each types commands, in one folder."""

    def __init__(self, folder: Path, coordinator: LiveCoordinator) -> None:
        self.folder, self.coordinator = folder, coordinator

    def type(self, *words: str, hospital: str | None = None) -> str:
        """Return what a command says on standard output. Its exit code is 0. hospital: who types it, else the lead."""
        key = None if hospital else self.coordinator.operator_key_file
        home = self.folder / hospital if hospital else None
        env = environment(server=self.coordinator.origin, api_key_file=key, client_home=home)
        done = subprocess.run(
            [*WARDROUND, *words], cwd=self.folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def open_study(people: People) -> None:
    numbers = ("--patients", str(PATIENTS), "--hospitals", "4", "--columns", str(len(COLUMNS)))
    budget = ("--epsilon", "4", "--delta", "1e-4", "--questions", "0.1", "--rounds", "5")
    people.type("plan", "--suggest", *numbers, *budget, "--masked", "-o", "study.toml")
    people.type("study", "create", STUDY, "--settings", "study.toml", "--title", "The default path")
    for seed, name in enumerate(NAMES):
        records(people.folder / f"{name}.csv", seed)
        people.type("data", "check", f"{name}.csv", "--confirm", hospital=name)
        people.type("enrol", people.type("invite", STUDY, name).strip(), hospital=name)
    shown = people.type("roster", "show", STUDY)
    number = re.search(r"(?:\d{5} ){11}\d{5}", shown)
    assert number is not None
    for name in NAMES:
        people.type("roster", "pin", STUDY, *number[0].split(), hospital=name)
        policy = (
            f'studies = ["{STUDY}"]\nlargest_epsilon = 4.0\nlargest_delta = 1e-4\n[statistics]\nqueries = "allow"\n'
        )
        (people.folder / name / "policy.toml").write_text(policy)


def test_the_default_path_ends_with_one_digest_that_the_certificate_vouches_for(tmp_path: Path) -> None:
    with Processes() as processes:
        coordinator = LiveCoordinator(tmp_path / "coordinator", processes)
        coordinator.prepare()
        coordinator.serve()
        people = People(tmp_path, coordinator)
        open_study(people)
        people.type("study", "start", STUDY, "--questions-first")
        joined = list[Process]()
        for name in NAMES:
            options = ("--data", f"{tmp_path / name}.csv", "--patient-column", "patient", "--yes")
            env = environment(server=coordinator.origin, client_home=tmp_path / name)
            log = tmp_path / f"{name}.log"
            joined.append(processes.start(name, [*WARDROUND, "join", STUDY, *options], env=env, log=log))
        answer = json.loads(people.type("ask", STUDY, "--ready", "typical", "--noise", "30", "--json"))
        assert answer["answered"]["published"]["hospitals"] == len(NAMES)
        people.type("study", "train", STUDY)
        with coordinator.operator() as operator:
            trained = until(
                lambda: operator.budget(STUDY).takes_questions, seconds=600.0, check=processes.check, every=0.5
            )
        assert trained
        model, certificate = "model.safetensors", "certificate.json"
        people.type("study", "model", STUDY, "-o", model)
        people.type("study", "stop", STUDY)
        assert [process.wait(120.0) for process in joined] == [0, 0, 0, 0]

        people.type("certificate", "show", STUDY, "-o", certificate)
        people.type("certificate", "pdf", certificate, "-o", "certificate.pdf")
        people.type("card", STUDY, "-o", "card.md")
        people.type("ledger", "export", STUDY, "--out", "ledger.jsonl")
        people.type("ledger", "verify", STUDY)
        people.type("study", "model", STUDY, "-o", "again.safetensors", "--released", "released")
        proofs = ("--ledger", "ledger.jsonl", "--released", "released", "--model", model)
        people.type("certificate", "verify", certificate, *proofs, hospital=NAMES[0])
        key = coordinator.viewer_key_file.read_text().strip()
        shown = httpx.get(
            f"{coordinator.address}/v1/studies/{STUDY}/models/result", headers={"Authorization": f"Bearer {key}"}
        )

    digest = hashlib.sha256((tmp_path / model).read_bytes()).hexdigest()
    assert hashlib.sha256((tmp_path / "again.safetensors").read_bytes()).hexdigest() == digest
    assert json.loads((tmp_path / certificate).read_text())["certificate"]["result"]["sha256"] == digest
    assert digest in (tmp_path / "card.md").read_text()
    pages = "".join(page.extract_text() for page in PdfReader(tmp_path / "certificate.pdf").pages)
    assert digest in re.sub(r"\s", "", pages)
    # What the button of the dashboard downloads.
    assert hashlib.sha256(shown.raise_for_status().content).hexdigest() == digest
