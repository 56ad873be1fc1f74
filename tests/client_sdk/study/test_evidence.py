"""A proof is kept once, and keeps the hospital away until a person has moved it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError, EvidenceKept, LedgerContradicted, LedgerForked, LedgerNotExtended
from client_sdk.identity import Membership
from client_sdk.study.evidence import Evidence, proofs_in
from study_protocol.files.private import exposure

HERE = Membership(study="sepsis", client="mercy", url="https://x", origin="https://x", coordinator_key="k" * 43)


def test_proofs_are_listed_by_study(tmp_path: Path) -> None:
    assert proofs_in(tmp_path / "none") == {}
    Evidence(tmp_path, "sepsis").keep(LedgerContradicted("entry 7 is not true", {"shown": 1}), HERE, 6)
    found = proofs_in(tmp_path)
    assert list(found) == ["sepsis"]
    assert (found["sepsis"]["code"], found["sepsis"]["shown"]) == ("ledger-contradicted", 1)
    (tmp_path / "other.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"other\.json"):
        proofs_in(tmp_path)


def test_the_first_proof_stays_and_says_whom_to_call(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path / "evidence", "sepsis")
    evidence.require_none()
    first = LedgerContradicted("entry 7 is not true", {"shown": 1})
    evidence.keep(first, HERE, 6)
    assert str(first) == (
        f"entry 7 is not true. The proof is in {evidence.path} (wardround evidence sepsis). "
        "Nothing more is sent to this study. Do not settle it "
        "with the operator alone: call the privacy officers of the other hospitals, by numbers that you have from "
        "elsewhere, and compare entry 6 of your ledgers (wardround ledger seen sepsis --entry 6, with --dataset as in "
        "join)"
    )
    evidence.keep(LedgerForked("another", {"shown": 2}), HERE, 6)
    kept = json.loads(evidence.path.read_bytes())
    assert (kept["code"], kept["said"], kept["shown"]) == ("ledger-contradicted", "entry 7 is not true", 1)
    assert exposure(evidence.path) is None
    with pytest.raises(EvidenceKept, match="entry 7 is not true"):
        evidence.require_none()
    Evidence(tmp_path / "evidence", "stroke").require_none()
    evidence.path.rename(tmp_path / "kept.json")
    evidence.require_none()


def test_a_suspicion_is_no_proof(tmp_path: Path) -> None:
    evidence, error = Evidence(tmp_path, "sepsis"), LedgerNotExtended("restored from an older copy")
    evidence.keep(error, HERE, 6)
    assert str(error) == "restored from an older copy"
    evidence.require_none()


def test_a_proof_that_cannot_be_read_keeps_the_hospital_away_too(tmp_path: Path) -> None:
    evidence = Evidence(tmp_path, "sepsis")
    evidence.path.write_bytes(b"{")
    with pytest.raises(EvidenceKept, match="cannot be read"):
        evidence.require_none()


def test_an_auditor_is_told_what_an_auditor_can_do(tmp_path: Path) -> None:
    evidence, error = Evidence(tmp_path, "sepsis", auditor=True), LedgerForked("two ledgers", {"shown": 1})
    evidence.keep(error, HERE, 6)
    assert "Nothing more is signed for this study" in str(error)
    assert str(error).endswith("compare entry 6 of your ledgers (wardround ledger seen sepsis --entry 6)")
    with pytest.raises(EvidenceKept, match=r"this auditor stopped signing sepsis .* move that file elsewhere and sign"):
        evidence.require_none()
