"""Whom a study has trained on: kept for ever, by keyed digests, for each study by itself."""

from __future__ import annotations

from pathlib import Path

from client_sdk.guard.ledger import HospitalLedger


def test_patients_stay_known_after_a_restart_and_in_no_other_study(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with HospitalLedger.open(path) as ledger:
        assert not ledger.knows_trained("sepsis")
        assert ledger.are_trained("sepsis", ["a"]).tolist() == [False]
        ledger.keep_trained("sepsis", ["a", "17"])
    with HospitalLedger.open(path) as ledger:
        ledger.keep_trained("sepsis", ["b"])
        assert ledger.knows_trained("sepsis")
        # One patient under two spellings.
        assert ledger.are_trained("sepsis", ["a", "17.0", "b", "c"]).tolist() == [True, True, True, False]
        assert ledger.are_trained("other", ["a", "17", "b", "c"]).tolist() == [False] * 4


def test_no_identifier_is_written(tmp_path: Path) -> None:
    with HospitalLedger.open(tmp_path / "one") as ledger:
        ledger.keep_trained("sepsis", ["patient-4711"])
    with HospitalLedger.open(tmp_path / "two") as ledger:
        ledger.keep_trained("sepsis", ["patient-4711"])
    stored = [b"".join(path.read_bytes() for path in sorted(tmp_path.glob(f"{name}*"))) for name in ("one", "two")]
    assert all(b"patient-4711" not in data for data in stored)
    # Another key, so that digests of two hospitals do not match.
    assert stored[0] != stored[1]
