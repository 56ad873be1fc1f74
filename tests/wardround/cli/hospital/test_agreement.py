"""What a hospital is shown and asked before it takes part, over a coordinator that really answers."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import wardround.cli.hospital.agreement as agreement
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.snapshot_records import FoundRecords
from study_protocol.documents.kept_windows import kept_in_words
from study_protocol.study.cohort import Cohort
from study_protocol.wire.signing import canonical_json
from tests.factories.commands import AS_WRITTEN, Run, finished, opened, write_records, write_settings
from tests.factories.hospitals import lax_toml, records
from tests.factories.live_coordinator import Live
from tests.factories.monitored_studies import monitored_study
from tests.factories.snapshots import frozen, recorded

ABSURD = {
    "noise_multiplier": 0.001,
    "bayesian": False,
    "limits": [{"level": "instance", "definition": "classical", "epsilon": 1e12, "delta": 0.999}],
}


def join(run: Run, tmp_path: Path, *more: str, **options: Any) -> Any:
    data = str(write_records(tmp_path / "records.csv"))
    return run("join", "sepsis", "--data", data, "--patient-column", "patient", *AS_WRITTEN, *more, **options)


def joined(tmp_path: Path) -> bool:
    with HospitalLedger.open(ledger_path(tmp_path / "mercy", "records"), read_only=True) as ledger:
        return ledger.opened("sepsis") is not None


@pytest.mark.quick("more1")
@pytest.mark.parametrize("more", [[], ["--yes"]])
def test_a_hospital_without_a_policy_does_not_join_an_absurd_study(
    here: Live, run: Run, tmp_path: Path, more: list[str]
) -> None:
    settings = str(write_settings(tmp_path / "study.json", **ABSURD))
    run("study", "create", "sepsis", "--settings", settings, operator=True)
    run("enrol", run("invite", "sepsis", "mercy", operator=True).stdout.strip())
    run("study", "start", "sepsis", operator=True)
    here.work()
    refused = join(run, tmp_path, *more, code=3)
    assert "least_noise_multiplier = 0.3, and the study is sure of 0.001" in refused.stderr
    assert not joined(tmp_path)
    (round,) = here.operator("GET", "/v1/studies/sepsis/rounds").json()["rounds"]
    assert [client["state"] for client in round["clients"]] == ["sampled"], "nothing was sent"


def test_the_operator_has_to_say_so_and_everybody_sees_it(run: Run, here: Live, tmp_path: Path) -> None:
    path = write_settings(tmp_path / "study.json", **ABSURD)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"beyond_bounds": False}))
    refused = run("study", "create", "sepsis", "--settings", str(path), operator=True, code=1)
    assert "beyond-bounds" in refused.stderr
    assert "say --i-know" in refused.stderr
    run("study", "create", "sepsis", "--settings", str(path), "--i-know", operator=True)
    shown = json.loads(run("study", "show", "sepsis", "--json", operator=True).stdout)
    assert shown["settings"]["beyond_bounds"] is True
    entries = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"]
    first = entries[0]
    assert [entry["kind"] for entry in entries] == ["opened", "operated", "released"]
    assert first["body"]["settings"]["beyond_bounds"] is True
    run("enrol", run("invite", "sepsis", "mercy", operator=True).stdout.strip())
    assert "--i-know" in join(run, tmp_path, code=3).stderr


@pytest.mark.slow
def test_a_person_at_a_terminal_is_asked_once(
    run: Run, here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(run, tmp_path)
    (tmp_path / "mercy" / "policy.toml").write_text(lax_toml())
    run("study", "start", "sepsis", operator=True)
    monkeypatch.setattr(agreement, "at_a_terminal", lambda: True)
    no = join(run, tmp_path, input="n\n", code=1)
    assert "not joined: no data was sent" in no.stderr
    assert not joined(tmp_path)
    said = " ".join(no.stderr.replace("│", " ").split())
    for line in (
        "instance: each patient",
        "client: not protected",
        "limit, instance classical epsilon 50 at delta 1e-05",
        "multiplier 1 that is sure, at clip norm 1",
        "the coordinator: your update, with noise that is added here; who takes part",
        "the coordinator: your log-moments without noise, yours alone",
        "not pinned: this hospital has not compared who the other hospitals are",
    ):
        assert line in said
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.05):
            here.work()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        yes = join(run, tmp_path, input="y\n")
        # The answer is on the disk: whoever starts it again, also without a terminal, need not repeat it.
        again = join(run, tmp_path)
    finally:
        ended.set()
        worker.join()
    assert "Take part under these terms?" in yes.stderr
    assert "Take part under these terms?" not in again.stderr
    assert "2 updates sent" in yes.stdout
    assert "max-steps-reached. All steps of privacy.max_steps have been taken" in yes.stdout
    assert "wardround study model sepsis -o model.safetensors" in yes.stdout


@pytest.mark.slow
def test_without_a_terminal_nobody_is_asked(run: Run, here: Live, tmp_path: Path) -> None:
    assert finished(run, here, tmp_path)["rounds_sent"] == 2


@pytest.mark.parametrize(("yes", "unattended", "accepted"), [(True, True, True), (False, True, False)])
def test_changed_records_need_a_word(
    yes: bool, unattended: bool, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: pytest.fail("nobody is asked"))
    assert agreement.RecordsQuestion(yes, unattended=unattended)("40 → 30 patients") is accepted


@pytest.mark.parametrize("answer", [True, False])
def test_a_person_is_asked_about_changed_records(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    monkeypatch.setattr(agreement, "at_a_terminal", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or answer)
    assert agreement.RecordsQuestion(False, unattended=False)("40 → 30 patients") is answer
    assert asked == ["40 → 30 patients. Go on with them?"]


def test_the_terms_name_the_snapshot_its_query_and_the_mapping(tmp_path: Path) -> None:
    """A cohort of other settings than the study's is said, too."""
    snapshot = replace(frozen(tmp_path, "icu-1"), at="2026-11-27T10:00:00+00:00")
    studies: Any = SimpleNamespace(settings=SimpleNamespace(cohort=None))
    question = agreement.Question(yes=True, records=FoundRecords(snapshot.path, "patient", snapshot))
    record = snapshot.record
    rows = dict(question._records_in_words(studies))
    assert rows == {
        "records": "snapshot icu-1 of 2026-11-27, by ada, 5 patients",
        "SHA-256 of the records": f"{record.sha256}, which stays here",
        "SHA-256 of the query": record.query_sha256,
    }
    settings = {"index_event": {"of": "visit", "concepts": [9201]}, "columns": {"a": {"of": "age"}}}
    cohort = Cohort.model_validate_json(json.dumps(settings))
    of_cohort = record.model_copy(
        update={
            "queries": {},
            "cohort_sha256": hashlib.sha256(canonical_json(cohort.model_dump(mode="json"))).hexdigest(),
        }
    )
    found = FoundRecords(snapshot.path, "patient", replace(snapshot, record=of_cohort))
    question = agreement.Question(yes=True, records=found, mapping=("ab12", "412 cells of 2 columns"))
    rows = dict(question._records_in_words(studies))
    assert rows["cohort"].startswith("NOT the study's")
    assert rows["SHA-256 of the mapping"] == "ab12\n412 cells of 2 columns"
    studies.settings.cohort = cohort
    assert dict(question._records_in_words(studies))["cohort"] == "the study's"


@pytest.mark.slow
def test_a_study_on_a_snapshot_keeps_its_name_and_refuses_a_changed_file(run: Run, here: Live, tmp_path: Path) -> None:
    columns = {name: cells.tolist() for name, cells in records().columns.items()}
    table = pa.table(columns | {"patient": list(records().patients)})
    parquet.write_table(table, tmp_path / "made.parquet")
    content = (tmp_path / "made.parquet").read_bytes()
    snapshot = recorded(tmp_path / "mercy", frozen(tmp_path, "icu-1", content, len(records())))
    assert finished(run, here, tmp_path, records=Path("icu-1"))["rounds_sent"] == 2
    (listed,) = json.loads(run("data", "list", "--json").stdout)
    assert (listed["name"], listed["studies"]) == ("icu-1", ["sepsis"])
    snapshot.path.write_bytes(content[:-1] + b"?")
    refused = run("join", "sepsis", "--data", "icu-1", code=3).stderr
    assert hashlib.sha256(content).hexdigest() in refused
    assert hashlib.sha256(snapshot.path.read_bytes()).hexdigest() in refused


def test_what_is_kept_for_later_patients_is_read_before_agreeing() -> None:
    chosen = monitored_study()
    facts = {"hospitals": 4, "pinned": True, "own_limit": "none", "terms": SimpleNamespace(sha256="ab")}
    rows = agreement.terms(cast("Any", SimpleNamespace(settings=chosen, **facts)))
    (line,) = kept_in_words(chosen)
    assert ["monitoring", line] in rows
    assert any("later patients" in text for about, text in rows if about == "who sees what")
