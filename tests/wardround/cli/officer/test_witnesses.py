"""What a reader is told about who vouches for a ledger, and what a hospital reads out on the telephone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import OF_AUDITOR, ledger_path
from client_sdk.identity import Identity
from client_sdk.study.pinning import as_digits
from client_sdk.study.vouching import HeadAgreement, Voucher
from study_protocol.study.messages import LedgerHead
from study_protocol.study.witness import sign_head
from tests.factories.commands import Run, finished
from tests.factories.live_coordinator import Live
from tests.factories.lying_coordinator import forget_witnesses, ledger_of, rewrite
from wardround.cli.officer.witnesses import Witnesses


@pytest.mark.slow
def test_a_finished_study_is_vouched_for_and_what_was_seen_can_be_read_out(
    here: Live, run: Run, tmp_path: Path
) -> None:
    finished(run, here, tmp_path)
    fingerprint = here.operator("GET", "/v1/studies/sepsis/roster").json()["fingerprint"]
    alone = ["ledger", "verify", "sepsis", "--colluders", "0", "--roster", fingerprint]
    verified = json.loads(run(*alone, "--json").stdout)
    last = verified["entries"]
    assert verified["witnesses"] == {
        "signed": [{"client": "mercy", "entries": last, "why": None}],
        "outside": [],
        "needed": 1,
        "vouched": last,
        "colluders": 0,
        "roster_compared": True,
    }
    assert f"entries 1 to {last} are what the hospitals saw: at least 1 of 1 hospital signed them" in run(*alone).stdout
    # As people read it to each other.
    digits = as_digits(fingerprint)
    assert run(*alone[:-1], digits).stdout == run(*alone).stdout
    # One hospital may be the coordinator's friend, and nobody gave a fingerprint.
    shown = run("ledger", "verify", "sepsis").stdout
    assert "1 hospital: too few to confirm a ledger" in shown
    assert "the keys are those that the coordinator shows" in shown
    for wrong in ("0" * 64, " ".join(["00000"] * 12)):
        said = run("ledger", "verify", "sepsis", "--roster", wrong, code=4).stderr
        assert "another number than the one that you named" in said
    assert "twelve groups" in run("ledger", "verify", "sepsis", "--roster", "00000", code=1).stderr
    # What people read to each other is taken too, and a hospital's own pin needs no words.
    digits = as_digits(fingerprint)
    assert json.loads(run(*alone[:-1], digits, "--json").stdout)["witnesses"]["roster_compared"]
    run("roster", "pin", "sepsis", *digits.split(" "))
    assert "the keys are those of the roster that was compared" in run("ledger", "verify", "sepsis").stdout
    seen = json.loads(run("ledger", "seen", "sepsis", "--json").stdout)
    assert seen == {"study": "sepsis", "entry": last, "sha256": verified["head"]}
    first = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"][0]["sha256"]
    assert run("ledger", "seen", "sepsis", "--entry", "1").stdout.replace(" ", "").strip().endswith(first)
    assert "has seen no entry 99" in run("ledger", "seen", "sepsis", "--entry", "99", code=1).stderr


@pytest.mark.slow
def test_a_hospital_holds_the_ledger_against_what_it_saw_though_no_signature_is_shown(
    here: Live, run: Run, tmp_path: Path
) -> None:
    finished(run, here, tmp_path)
    last = len(ledger_of(here))
    assert f"entries 1 to {last} are those that this hospital saw" in run("ledger", "verify", "sepsis").stdout
    rewrite(here, lambda entry: None if entry.sequence == last else (entry.kind, dict(entry.body)))
    forget_witnesses(here)
    # On a good chain, under the coordinator's good signature: an operator can know nothing of it.
    run("ledger", "verify", "sepsis", operator=True)
    said = run("ledger", "verify", "sepsis", code=4).stderr
    assert f"this hospital saw {last} entries, and {last - 1} are shown" in said


@pytest.mark.slow
def test_a_data_set_that_takes_no_part_is_said_to_compare_nothing(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    said = run("ledger", "verify", "sepsis", "--dataset", "icu").stdout
    assert "data set icu takes no part here, so no knowledge of this hospital was compared" in said
    assert "--dataset names another one: records" in said
    assert "--dataset" not in run("ledger", "verify", "sepsis").stdout
    HospitalLedger.open(ledger_path(tmp_path / "mercy", "icu")).close()
    for command in (["own-budget"], ["egress-log"]):
        assert "--dataset names another one: records" in run(*command, "--dataset", "icu").stderr
    seen = run("ledger", "seen", "sepsis", "--dataset", "icu", code=1).stderr
    assert "with data set icu this hospital has seen no entry of the ledger of sepsis" in seen


@pytest.mark.slow
def test_a_missing_signature_is_shown_and_one_of_another_ledger_is_refused(
    here: Live, run: Run, tmp_path: Path
) -> None:
    finished(run, here, tmp_path)

    def change(statement: str, **values: Any) -> None:
        with here.coordinator.database.engine.begin() as connection:
            connection.execute(text(statement), values)

    other = LedgerHead(study="sepsis", entries=3, sha256="ab" * 32)
    signed = sign_head(Identity.open(tmp_path / "mercy").key, "mercy", other)
    values = {"entries": 3, "sha256": other.sha256, "signature": signed.signature}
    change("UPDATE witnesses SET entries = :entries, sha256 = :sha256, signature = :signature", **values)
    assert "mercy has signed another ledger than this one" in run("ledger", "verify", "sepsis", code=4).stderr
    change("DELETE FROM witnesses")
    shown = run("ledger", "verify", "sepsis", "--colluders", "0").stdout
    assert "no signature" in shown
    assert "no entry is signed by the 1 of 1 hospital that it takes" in shown


@pytest.mark.parametrize(("masking", "expected"), [(None, 1), ({"colluders": 3}, 3)])
def test_the_studys_own_number_of_colluders_is_assumed(masking: Any, expected: int) -> None:
    opening: Any = SimpleNamespace(body={"settings": {"privacy": {"masking": masking}, "schedule": {}}})
    roster: Any = SimpleNamespace(members=[])
    assert Witnesses.of([opening], roster, [], None, None).colluders == expected
    assert Witnesses.of([opening], roster, [], None, 7).colluders == 7


def test_what_is_vouched_for_in_part_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    found = [Voucher("grace", 9), Voucher("hope", 5), Voucher("mercy", 5), Voucher("state", 0, "no signature")]
    Witnesses(found, HeadAgreement(3, 5), True, 1).show()
    assert "entries 1 to 5 are what the hospitals saw: at least 3 of 4 hospitals signed them" in capsys.readouterr().out


def test_a_directory_of_nobody_is_no_proof_that_there_is_none(run: Run, tmp_path: Path) -> None:
    said = run("evidence", "--home", str(tmp_path / "mistyped"), code=1).stderr
    assert "no hospital's or auditor's directory" in said


def test_where_no_ledger_is_the_others_are_named(run: Run, tmp_path: Path) -> None:
    HospitalLedger.open(ledger_path(tmp_path, "lab")).close()
    for command in (["own-budget"], ["egress-log"], ["ledger", "seen", "sepsis"]):
        assert "--dataset names another one: lab" in run(*command, "--home", str(tmp_path), code=1).stderr


def test_what_an_auditor_saw_is_read_out_without_a_data_set(run: Run, tmp_path: Path) -> None:
    HospitalLedger.open(ledger_path(tmp_path, OF_AUDITOR)).close()
    said = run("ledger", "seen", "sepsis", "--home", str(tmp_path), code=1).stderr
    assert f"with data set {OF_AUDITOR} this hospital has seen no" in said
