"""Heads that are held back, forked or rolled back, over real HTTP with four hospitals and an auditor."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from accounting.budget.ledger import Entry
from client_sdk.errors import EvidenceKept
from client_sdk.identity import Identity
from client_sdk.study.hospital import Hospital
from client_sdk.study.participation import Outcome
from client_sdk.study.pinning import pin_roster
from study_protocol.study.messages import LedgerHead
from study_protocol.study.settings import StudySettings
from study_protocol.study.witness import sign_head
from tests.factories.hospitals import plain_policy
from tests.factories.live_coordinator import Live, live
from tests.factories.lying_coordinator import (
    Ward,
    forget_witnesses,
    ledger_of,
    rewrite,
    started,
    together,
    working,
)
from tests.factories.settings import settings
from wardround.cli.main import build

pytestmark = pytest.mark.timeout(300)
NAMES = ("mercy", "grace", "hope", "faith")
WATCHFUL = plain_policy(min_witnesses=1, witness_window=1)


@pytest.fixture
def here(tmp_path: Path, database_url: str) -> Iterator[Live]:
    with live(tmp_path / "coordinator", database_url=database_url, long_poll_seconds=0.2) as running:
        (tmp_path / "viewer.key").write_text(running.viewer_key + "\n")
        yield running


def study(tmp_path: Path, *, auditor: bool = True, rounds: int = 4) -> StudySettings:
    """Of this many rounds; the auditor's key is made on the auditor's machine."""
    key = Identity.create(tmp_path / "auditor").public_key
    witnesses = [{"name": "auditor", "public_key": key}] if auditor else []
    schedule = {"min_clients": 1, "round_deadline_seconds": 600.0, "witnesses": witnesses}
    return settings(max_steps=rounds, expected_clients=4.0, schedule=schedule)


def pinned(here: Live, folder: Path, chosen: StudySettings) -> list[Ward]:
    wards = started(here, folder, chosen, *NAMES)
    number = here.operator("GET", "/v1/studies/sepsis/roster").json()["fingerprint"]
    for ward in wards:
        pin_roster(Hospital.open(ward.home), "sepsis", number)
    return wards


def run(*arguments: str | Path, code: int = 0) -> str:
    app = build()
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def audit(here: Live, tmp_path: Path, *more: str, code: int = 0) -> str:
    home, key = tmp_path / "auditor", tmp_path / "viewer.key"
    where = ("--home", home, "--server", here.url, "--key-file", key)
    return run("witness", "sign", "sepsis", *where, *more, code=code)


def forked(entry: Entry) -> tuple[Any, dict[str, Any]]:
    """The same numbers, and another past: other hashes from the first settled round on."""
    body = dict(entry.body)
    return entry.kind, body | ({"statement_sha256": "0" * 64} if entry.kind == "settled" else {})


@pytest.mark.slow
def test_an_honest_study_with_drop_outs_and_restarts_is_never_blocked(here: Live, tmp_path: Path) -> None:
    wards = pinned(here, tmp_path, study(tmp_path))
    assert together(*(lambda ward=ward: ward.join(until=1, policy=WATCHFUL) for ward in wards)) == [None] * 4
    # Faith leaves for good, and the others were switched off between two rounds.
    assert here.operator("PUT", "/v1/studies/sepsis/clients/faith/revoked").is_success
    with working(here):
        outcomes = together(*(lambda ward=ward: ward.join(policy=WATCHFUL) for ward in wards[:3]))
    assert all(isinstance(outcome, Outcome) and outcome.rounds_refused == 0 for outcome in outcomes), outcomes
    key = ("--coordinator-key", here.coordinator.signer.fingerprint)
    assert "checked and signed as auditor" in audit(here, tmp_path, *key)
    signed = here.operator("GET", "/v1/studies/sepsis/ledger").json()["witnesses"]
    assert {one["client"] for one in signed} == {"auditor", *NAMES}


@pytest.mark.slow
def test_hospitals_to_which_no_signature_is_passed_on_refuse_and_say_who_has_not_signed(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wards = pinned(here, tmp_path, study(tmp_path, auditor=False))
    monkeypatch.setattr("server.services.ledger_pages.witnesses", lambda *_: [])
    said: list[Any] = []

    def stop_once_refused() -> None:
        while len(said) < len(NAMES):
            time.sleep(0.1)
            clients = here.operator("GET", "/v1/studies/sepsis/rounds/2").json().get("clients") or []
            said[:] = [one["refusal"] for one in clients if one["refusal"] is not None]
        here.operator("POST", "/v1/studies/sepsis/stop")

    with working(here):
        *outcomes, _ = together(*(lambda ward=ward: ward.join(policy=WATCHFUL) for ward in wards), stop_once_refused)
    # The first round; then nobody else has signed in the window.
    assert [outcome.rounds_sent for outcome in outcomes] == [1] * 4
    assert {one["code"] for one in said} == {"policy-witnesses"}
    assert all("since round 1, entry" in one["detail"] for one in said)
    assert all(sum(f"{name} (never)" in one["detail"] for name in NAMES) == 3 for one in said)


@pytest.mark.quick("sqlite")
def test_a_fork_is_found_by_a_head_that_goes_from_hand_to_hand(here: Live, tmp_path: Path) -> None:
    wards = pinned(here, tmp_path, study(tmp_path, auditor=False))
    mercy, grace = wards[:2]
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None] * 4
    here.work()
    assert mercy.join(until=2) is None
    rewrite(here, forked, models=True)
    forget_witnesses(here)
    # Its signature is held back: grace goes on on the other ledger, and sees nothing of it.
    assert grace.join(until=2) is None
    head = tmp_path / "mercy.json"
    run("witness", "export", "sepsis", "-o", head, "--home", mercy.home, "--dataset", "icu")
    said = run("witness", "compare", head, "--home", grace.home, "--dataset", "icu", code=4)
    assert "the coordinator shows two ledgers: mercy was shown one" in said
    proof = json.loads(grace.proof.read_bytes())
    assert proof["witness"]["witness"]["client"] == "mercy"
    assert proof["witness"]["shown"]["signature"] != proof["seen"]["signed"]["signature"]
    with pytest.raises(EvidenceKept):
        grace.join()


@pytest.mark.slow
def test_a_hospital_that_is_shown_less_learns_it_from_another_one(here: Live, tmp_path: Path) -> None:
    wards = pinned(here, tmp_path, study(tmp_path, auditor=False))
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None] * 4
    here.work()
    assert wards[0].join(until=2) is None
    head = tmp_path / "mercy.json"
    run("witness", "export", "sepsis", "-o", head, "--home", wards[0].home, "--dataset", "icu")
    said = run("witness", "compare", head, "--home", wards[1].home, "--dataset", "icu")
    assert "entries more than are seen here" in said
    # Once the ledger has come so far it is the same one.
    assert wards[1].join(until=2) is None
    assert "is the same for mercy and here" in run(
        "witness", "compare", head, "--home", wards[1].home, "--dataset", "icu"
    )
    assert "it proves nothing" in run(
        "witness", "compare", _made_up(head), "--home", wards[1].home, "--dataset", "icu", code=1
    )


def _made_up(head: Path) -> Path:
    value = json.loads(head.read_text())
    value["witness"]["head"]["sha256"] = "0" * 64
    path = head.with_name("made-up.json")
    path.write_text(json.dumps(value))
    return path


@pytest.mark.slow
def test_a_member_that_lies_about_a_head_accuses_nobody(here: Live, tmp_path: Path) -> None:
    wards = pinned(here, tmp_path, study(tmp_path, auditor=False))
    mercy, grace = wards[:2]
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None] * 4
    head = tmp_path / "mercy.json"
    run("witness", "export", "sepsis", "-o", head, "--home", mercy.home, "--dataset", "icu")
    value = json.loads(head.read_text())
    for entries in (value["witness"]["head"]["entries"], 10**6):
        other = LedgerHead(study="sepsis", entries=entries, sha256="0" * 64)
        lie = sign_head(Identity.open(mercy.home).key, "mercy", other).model_dump(mode="json")
        head.write_text(json.dumps(value | {"witness": lie}))
        said = run("witness", "compare", head, "--home", grace.home, "--dataset", "icu", code=1)
        assert "mercy alone signed this head" in said
    assert not grace.proof.exists()
    here.work()
    assert grace.join(until=2) is None


@pytest.mark.slow
@pytest.mark.parametrize("lie", ["forked", "rolled back"])
def test_an_auditor_finds_a_ledger_that_was_forked_or_rolled_back(here: Live, tmp_path: Path, lie: str) -> None:
    wards = pinned(here, tmp_path, study(tmp_path))
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None] * 4
    here.work()
    key = ("--coordinator-key", here.coordinator.signer.fingerprint)
    assert "name the coordinator's key" in audit(here, tmp_path, code=1)
    assert "checked and signed" in audit(here, tmp_path, *key)
    entries = ledger_of(here)
    verify = ("ledger", "verify", "sepsis", "--server", here.url, "--key-file", tmp_path / "viewer.key")
    signed = json.loads(run(*verify, "--json"))["witnesses"]
    assert signed["outside"] == [{"client": "auditor", "entries": len(entries), "why": None}]
    assert {one["client"] for one in signed["signed"]} == set(NAMES)
    if lie == "forked":
        rewrite(here, forked, models=True)
        # Hospitals' signatures may be held back; the auditor's own word is enough.
        forget_witnesses(here, but="auditor")
        assert "auditor has signed another ledger than this one" in run(*verify, code=4)
        assert "was rewritten" in audit(here, tmp_path, code=4)
        assert json.loads((tmp_path / "auditor" / "evidence" / "sepsis.json").read_bytes())["client"] == "auditor"
        assert "stopped signing sepsis" in audit(here, tmp_path, code=4)
    else:
        rewrite(here, lambda entry: (entry.kind, dict(entry.body)) if entry.sequence < len(entries) - 2 else None)
        assert "restored from an older copy" in audit(here, tmp_path, code=4)


@pytest.mark.slow
def test_nobody_else_signs_as_the_auditor(here: Live, tmp_path: Path) -> None:
    pinned(here, tmp_path, study(tmp_path))
    key = ("--coordinator-key", here.coordinator.signer.fingerprint)
    other = tmp_path / "other"
    Identity.create(other)
    where = ("--home", other, "--server", here.url, "--key-file", tmp_path / "viewer.key")
    assert "name no witness with the key" in run("witness", "sign", "sepsis", *where, *key, code=1)
    assert audit(here, tmp_path, *key)
    signed = here.operator("GET", "/v1/studies/sepsis/ledger").json()["witnesses"]
    path = "/v1/studies/sepsis/outside-witnesses/"
    body = {"head": signed[0]["head"], "signature": signed[0]["signature"]}
    assert here.operator("PUT", f"{path}nobody", json=body).status_code == 404
    wrong = body | {"signature": "A" * 86}
    assert here.operator("PUT", f"{path}auditor", json=wrong).status_code in (400, 401, 403, 422)
    assert here.operator("PUT", f"{path}auditor", json=body).status_code == 200
    assert here.operator("POST", "/v1/studies/sepsis/invitations", json={"client": "auditor"}).status_code == 409
