"""A hospital's part in studies that measure an accounting sample: what it pays, what it sends, what it refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import AuthenticationError, ConfigurationError, PolicyRefused
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.participation import Outcome
from study_protocol.wire.tensors import TERMS, UPDATE, decode, prefixed, spec_of, terms_spec
from tests.client_sdk.study.test_participation import stop_after
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, plain_policy, records
from tests.factories.settings import ORDERS, settings

ACCOUNTING_SAMPLE = {
    "accounting_sample": {"records": 30, "source": "members"},
    "bayesian": True,
    "max_steps": 5,
    "noise_multiplier": 4.0,
}
HELD_OUT = ACCOUNTING_SAMPLE | {"accounting_sample": {"records": 30, "source": "held-out"}}
NOISED = ACCOUNTING_SAMPLE | {"disclosure": "noised", "histogram_noise": {"std": 12.0, "every": 2}}


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def study(chosen: dict[str, Any]):
    return settings(**chosen)


def join(other: Coordinator, directory: Path, count: int = 60, **policy: Any) -> Outcome:
    here = hospital(other, directory)
    return here.join("sepsis", "logistic-regression", records(count), policy=plain_policy(**policy), dataset="icu")


def filters(other: Coordinator) -> list[float]:
    spec = prefixed(spec_of(other.initial), UPDATE) | terms_spec(len(ORDERS))
    bodies = [other.updates[round]["mercy"] for round in sorted(other.updates)]
    return [float(decode(body, spec)[TERMS + "filter"][0]) for body in bodies]


def test_histograms_are_paid_for_in_the_own_ledger_and_in_the_study(tmp_path: Path) -> None:
    other = coordinator(study(NOISED))
    outcome = join(other, tmp_path)
    assert (outcome.reason, outcome.rounds_sent) == ("max-steps-reached", 5)
    with HospitalLedger.open(ledger_path(tmp_path, "icu"), read_only=True) as ledger:
        charges = ledger.charges()
    assert [charge.histograms for charge in charges] == [0, 1, 0, 1, 0]
    assert charges[1].histogram_noise == pytest.approx(12.0 / np.sqrt(2))
    reported = filters(other)
    # Between checkpoints nothing but the worst case of a step is added.
    assert reported[2] - reported[1] == pytest.approx(reported[4] - reported[3], rel=1e-6)
    assert other.budget.accounts[0].published == 2


def test_a_restarted_hospital_has_the_same_sample(tmp_path: Path) -> None:
    other = coordinator(study(HELD_OUT))
    stop_after(other, 2)
    with pytest.raises(AuthenticationError):
        join(other, tmp_path)
    sums = _sums(tmp_path)
    other.meddle = None
    join(other, tmp_path)
    assert _sums(tmp_path)["accounting_sample"] == sums["accounting_sample"]
    assert len(set(sums["accounting_sample"])) == 30
    assert other.budget.accounts[0].certificate(finished=True).sample == "held-out"


def _sums(directory: Path) -> dict[str, Any]:
    with HospitalLedger.open(ledger_path(directory, "icu"), read_only=True) as ledger:
        return json.loads(ledger.sums("sepsis") or b"")


def test_too_few_records_to_hold_out_stay_a_matter_of_this_building(tmp_path: Path) -> None:
    other = coordinator(study(HELD_OUT))
    with pytest.raises(ConfigurationError, match="do not take part"):
        join(other, tmp_path, count=30)
    assert (other.updates, other.refusals) == ({1: {}}, {1: {}})
    with HospitalLedger.open(ledger_path(tmp_path, "icu"), read_only=True) as ledger:
        assert ledger.charges() == []


def test_patients_own_limits_refuse_a_noised_histogram_of_records(tmp_path: Path) -> None:
    other = coordinator(study(NOISED))
    with pytest.raises(PolicyRefused, match=r"\[individual\] is set, and patients' own limits") as refused:
        join(other, tmp_path, individual={"epsilon": 500.0, "delta": 1e-5})
    assert refused.value.code == "individual-limit"
    assert (other.updates, other.refusals) == ({}, {})
    with HospitalLedger.open(ledger_path(tmp_path, "icu"), read_only=True) as ledger:
        assert ledger.charges() == []
