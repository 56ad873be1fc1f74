"""Every command but `join` where torch cannot be imported, as in an installation of the extra `operator`."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from client_sdk.guard.policy import SitePolicy
from tests.factories.commands import Run, finished, write_settings
from tests.factories.live_coordinator import Live
from tests.factories.settings import MASKING
from wardround.cli.commands import COMMANDS
from wardround.flower.run_ledger import RunLedger

NEEDS_TORCH = {"demo", "join", "predict", "evaluate", "export", "adapt", "simulate", "audit", "try"}
# They need the extra `client` in any case, which reads records and columns, and which a service of `join` runs.
NEEDS_TORCH |= {"data check", "data columns", "query columns", "site install"}
# It waits for the answers of hospitals: tests/wardround/cli/researcher/test_synth.py.
OF_A_SYNTHESIS = {"synth"}
# They need a study with the section monitoring: `tests/wardround/cli/lead/test_monitor.py`.
OF_MONITORING = {"monitor ask", "monitor show"}
# It needs an MLflow server: tests/wardround/tracking/test_mlflow_server.py.
OF_MLFLOW = {"study track"}
# They need an identity provider: tests/wardround/cli/lead/test_login.py.
OF_A_PROVIDER = {"login", "logout"}
# Of the coordinator, which has its own tests; here it is enough that they are found.
OF_THE_COORDINATOR = {
    *("migrate", "serve", "worker"),
    *("key create", "key list", "key revoke", "key rotate"),
}
# An auditor's key has to stand in the study's settings: tests/wardround/cli/test_witnesses.py.
OF_AN_AUDITOR = {"witness sign"}
FOR_TWO = SitePolicy.model_validate({"approval": {"people": 2}})
# {last}: what the command before has printed. {number}, {digest}: the roster's number and a question's digest in it.
TYPED = [
    "policy template",
    "study template --bayesian -o {home}/template.toml",
    "plan {home}/template.toml",
    f"policy agree --yes --digest {FOR_TWO.digest()} --as Ada --home {{home}}/two",
    "decision withdraw 1 --as Ada --home {home}/two",
    "decision list --home {home}/two",
    "agree sepsis",
    "doctor",
    "site network",
    "data snapshot {home}/source.toml -o {home}/icu.parquet",
    "data list icu",
    "budget sepsis",
    "audit-log sepsis --key-file {home}/administrator.key",
    "ledger verify sepsis",
    "ledger export sepsis --out {home}/ledger.jsonl",
    "ledger seen sepsis",
    "evidence",
    "witness key",
    "witness export sepsis -o {home}/head.json",
    "witness compare {home}/head.json",
    "flower show {home}/runs.db",
    "own-budget",
    "egress-log",
    "study show sepsis",
    "study rounds sepsis",
    "study model sepsis -o {home}/model.safetensors",
    "certificate show sepsis -o {home}/certificate.json",
    "certificate pdf {home}/certificate.json -o {home}/certificate.pdf",
    "certificate dossier {home}/certificate.json -o {home}/dossier.md",
    "certificate dpia {home}/certificate.json -o {home}/annex.pdf",
    "objection add p7 --certificate {home}/certificate.json -o {home}/letter.md",
    "objection letter P7 -o {home}/letter.pdf",
    "objection list",
    "certificate verify {home}/certificate.json --ledger {home}/ledger.jsonl --model {home}/model.safetensors",
    "card sepsis -o {home}/card.md",
    "study list --key-file {home}/administrator.key",
    "study create draft --settings {home}/mlp.json --key-file {home}/administrator.key",
    "study delete draft --key-file {home}/administrator.key",
    "study weights --settings {home}/mlp.json -o {home}/initial.safetensors",
    "study create stroke --settings {home}/mlp.json --key-file {home}/administrator.key",
    "invite stroke city --key-file {home}/administrator.key",
    "enrol {last} --home {home}/city",
    *(
        line.format(name=name, home="{home}", last="{last}")
        for name in ("bay", "cape", "dale")
        for line in ("invite stroke {name} --key-file {home}/administrator.key", "enrol {last} --home {home}/{name}")
    ),
    "roster show stroke --home {home}/city",
    "roster pin stroke {number} --home {home}/city",
    "study start stroke --questions-first --key-file {home}/administrator.key",
    "study train stroke --key-file {home}/administrator.key",
    "study pause stroke --key-file {home}/administrator.key",
    "study resume stroke --key-file {home}/administrator.key",
    "rotate-key --home {home}/city",
    "study template --statistics --masked -o {home}/statistics.toml",
    "study create registry --settings {home}/statistics.toml --key-file {home}/administrator.key",
    "invite registry city --key-file {home}/administrator.key",
    "enrol {last} --home {home}/city",
    "ask registry {home}/question.toml --plan --key-file {home}/administrator.key",
    "ask registry {home}/question.toml --no-wait --key-file {home}/administrator.key",
    "query list registry --key-file {home}/administrator.key",
    "query template table",
    "query deny registry 1 --home {home}/city",
    "decision decline 4 --home {home}/city",
    "query show registry 1 --home {home}/city",
    "query approve registry 1 --yes --digest {digest} --home {home}/city",
    "withdraw stroke --home {home}/city",
    "invite stroke county --key-file {home}/administrator.key",
    "enrol {last} --home {home}/county",
    "revoke stroke county --key-file {home}/administrator.key",
    "study stop stroke --key-file {home}/administrator.key",
]
PROGRAM = """
import json, re, sys
sys.modules["torch"] = None
from typer.testing import CliRunner
from wardround.cli.main import build
app, last, found = build(), "", []
for line in json.load(sys.stdin):
    number = " ".join(re.findall(r"\\\\b\\\\d{5}\\\\b", last)[:12])
    digest = next(iter(re.findall(r"digest of this question:\\\\s+(\\\\w{64})", " ".join(last.split()))), "")
    done = CliRunner().invoke(app, line.format(home=sys.argv[1], last=last, number=number, digest=digest).split())
    last = done.stdout.strip()
    found.append([line, done.exit_code, done.output + repr(done.exception)])
print(json.dumps(found))
""".replace("\\\\", "\\")


def run_all(lines: list[str], home: Path) -> list[tuple[str, int, str]]:
    """(line, exit code, what it printed) of each, in one process that has no torch."""
    program = [sys.executable, "-c", PROGRAM, str(home)]
    done = subprocess.run(program, input=json.dumps(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(line, code, said) for line, code, said in json.loads(done.stdout)]


def test_no_command_is_forgotten() -> None:
    typed = {name for name in set(COMMANDS) for line in TYPED if f"{line} ".startswith(f"{name} ")}
    elsewhere = OF_THE_COORDINATOR | OF_AN_AUDITOR | OF_A_SYNTHESIS | OF_MONITORING | OF_MLFLOW | OF_A_PROVIDER
    assert set(COMMANDS) == typed | NEEDS_TORCH | elsewhere


@pytest.mark.slow
def test_every_command_shows_its_help(tmp_path: Path) -> None:
    for line, code, said in run_all([f"{name} --help" for name in sorted(COMMANDS)], tmp_path):
        assert (code, "Usage" in said) == (0, True), f"{line}: {said}"


@pytest.mark.slow
def test_every_command_but_join_does_its_work(here: Live, run: Run, tmp_path: Path) -> None:
    # What hospitals leave behind has to be there; training it needs torch.
    finished(run, here, tmp_path)
    write_settings(
        tmp_path / "mlp.json",
        training={"task": "mlp"},
        masked=True,
        masking=MASKING,
        schedule={"min_clients": 4},
        statistics={"max_queries": 5, "max_cells": 10},
    )
    with closing(sqlite3.connect(tmp_path / "clinic.db")) as clinic, clinic:
        clinic.execute("CREATE TABLE stays AS SELECT 17 AS patient, 64 AS age")
    (tmp_path / "cohort.sql").write_text("SELECT patient, age FROM stays")
    entries = {"kind": "sql", "url": "sqlite:///clinic.db", "query": "cohort.sql", "patient_column": "patient"}
    lines = (f"{name} = {json.dumps(entry)}" for name, entry in entries.items())
    (tmp_path / "source.toml").write_text("\n".join(["[source]", *lines]))
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "policy.toml").write_text("[approval]\npeople = 2\n")
    with RunLedger(tmp_path / "runs.db", epsilon=2.0, delta=1e-5) as ledger:
        ledger.charge(noise_multiplier=8.0)
    (tmp_path / "question.toml").write_text('kind = "count"\nnoise_multiplier = 6.0\n')
    for line, code, said in run_all(TYPED, tmp_path):
        assert code == 0, f"{line}: {said}"
    assert here.operator("GET", "/v1/studies/stroke/models/0").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("task", ["logistic-regression", "mlp"])
def test_join_says_which_extra_it_needs(here: Live, run: Run, tmp_path: Path, task: str) -> None:
    write_settings(tmp_path / "study.json", training={"task": task})
    create = "study create sepsis --settings {home}/study.json --key-file {home}/administrator.key"
    (tmp_path / "records.csv").write_text("age,rate,ill\n1,2,0\n")
    typed = [create, "invite sepsis mercy --key-file {home}/administrator.key", "enrol {last}"]
    *before, (_, _, said) = run_all(
        [*typed, "join sepsis --data {home}/records.csv --separator comma --decimal point"], tmp_path
    )
    assert [code for _, code, _ in before] == [0, 0, 0]
    # `wardround` itself turns this into the extra's name: tests/client_sdk/test_main.py.
    assert "ModuleNotFoundError" in said
    assert "torch" in said
