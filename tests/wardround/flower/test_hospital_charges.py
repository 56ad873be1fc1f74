"""The charges of runs in a hospital's ledger, and the deaths in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from client_sdk.errors import OwnBudgetExceeded, Refused
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import SitePolicy
from study_protocol.wire.failpoints import EXIT_CODE
from wardround.flower.hospital_charges import HospitalCharges, unkept_rules
from wardround.flower.round_terms import RoundTerms

TERMS = RoundTerms(noise_multiplier=4.0)
MODEL = "a" * 64
PAYS = """
import sys
from pathlib import Path
from wardround.flower.hospital_charges import HospitalCharges
from wardround.flower.round_terms import RoundTerms
charges = HospitalCharges(Path(sys.argv[1]), "records", "flower")
number = charges.pay("run", RoundTerms(noise_multiplier=4.0), None, "a" * 64)
charges.ready("run", number, "b" * 64, 10, "")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("place", "left"), [("hospital-mod.after-charge", 0), ("hospital-mod.after-ready", 1)])
def test_a_hospital_that_dies_in_a_round_has_paid_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, left: int
) -> None:
    monkeypatch.setenv("WARDROUND_FAILPOINT", place)
    done = subprocess.run([sys.executable, "-c", PAYS, str(tmp_path)], check=False)
    assert done.returncode == EXIT_CODE
    # This process goes through the same place below.
    monkeypatch.delenv("WARDROUND_FAILPOINT")
    with HospitalLedger.open(ledger_path(tmp_path, "records")) as ledger:
        assert len(ledger.charges()) == 1
        assert len(ledger.departures()) == left
    # A message that is sent again is a new round, with new noise and a new charge.
    assert HospitalCharges(tmp_path, "records", "flower").pay("run", TERMS, None, MODEL) == 2


def test_a_run_that_is_over_its_limit_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[limits.client]\nepsilon = 0.1\ndelta = 1e-5\n")
    with pytest.raises(OwnBudgetExceeded):
        HospitalCharges(tmp_path, "records", "flower").pay("run", TERMS, None, MODEL)
    with HospitalLedger.open(ledger_path(tmp_path, "records")) as ledger:
        assert ledger.charges() == []


def test_studies_and_runs_share_the_limit_of_one_data_set(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[limits.client]\nepsilon = 1.5\ndelta = 1e-5\n")
    charges = HospitalCharges(tmp_path, "records", "flower")
    assert charges.pay("first", TERMS, None, MODEL) == 1
    # At its order, ε = 1.5 has room for one round of noise multiplier 4 and not for two.
    with pytest.raises(OwnBudgetExceeded):
        charges.pay("second", TERMS, None, MODEL)


def test_the_strict_policy_has_no_rule_that_runs_cannot_keep() -> None:
    assert not any(unkept_rules(SitePolicy()).values())


def test_every_rule_that_is_not_kept_is_named(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('needs_masking = true\nunpinned_roster = "refused"\n')
    with pytest.raises(Refused, match="needs_masking, unpinned_roster"):
        HospitalCharges(tmp_path, "records", "flower").pay("run", TERMS, None, MODEL)


def test_a_patient_who_objects_while_a_round_is_charged_ends_it(tmp_path: Path) -> None:
    """The letter on the objection may not know this round."""
    charges = HospitalCharges(tmp_path, "records", "flower")
    (tmp_path / "objections.txt").write_text("p1\n")
    with pytest.raises(Refused, match="objected"):
        charges.pay("run", TERMS, None, MODEL)
    with pytest.raises(Refused, match="excluded_patients"):
        HospitalCharges(tmp_path, "records", "flower").pay("run", TERMS, None, MODEL)
