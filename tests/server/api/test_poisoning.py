"""Over real HTTP: a hospital that sends 1e30 moves nothing; its round goes on, and what was seen stays charged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from study_protocol.wire.tensors import decode, spec_of
from tests.factories.hospital_double import MODEL, Hospital, update
from tests.factories.live_coordinator import Live, code_of, live
from tests.factories.settings import ORDERS, settings, settings_json
from tests.factories.studies import FakeClock

COSTS = tuple(1e-4 for _ in range(1 + len(ORDERS)))


def ledger(here: Live, study: str) -> list[str]:
    entries = here.operator("GET", f"/v1/studies/{study}/ledger").json()["entries"]
    return [entry["kind"] for entry in entries if entry["kind"] not in ("roster", "operated", "released")]


def model(here: Live, study: str, version: int) -> dict[str, np.ndarray]:
    answer = here.operator("GET", f"/v1/studies/{study}/models/{version}")
    assert answer.status_code == 200, answer.text
    return decode(answer.content, spec_of(MODEL))


def files_of(here: Live) -> list[Path]:
    return [path for path in (here.home / "blobs").rglob("*") if path.is_file() and path.name.startswith("update.")]


@pytest.mark.quick("1e+30")
@pytest.mark.parametrize("value", [1e30, 3e38, -1e30, 40.0])
def test_a_long_update_is_refused_and_the_round_goes_on_without_it(here: Live, study: str, value: float) -> None:
    north, south, west = here.running(study, "north", "south", "west")
    before = files_of(here)
    answer = here.put_update(north, 1, update(value))
    assert code_of(answer) == (422, "norm-exceeded")
    assert "sum_radius" in answer.json()["detail"]
    # Nothing of it is kept, and nobody else's part is touched.
    assert files_of(here) == before
    for honest in (south, west):
        assert here.put_update(honest, 1, update(0.25)).status_code == 201
    states = {c["client"]: c["state"] for c in here.operator("GET", f"/v1/studies/{study}/rounds/1").json()["clients"]}
    assert states == {"north": "sampled", "south": "received", "west": "received"}
    # It may still say no, so that nobody waits for the deadline.
    north.refuse(1, "training-stopped")
    here.work()
    assert here.operator("GET", f"/v1/studies/{study}/rounds/1").json()["state"] == "released"
    # Fedsgd with expected_clients 4 and rate 1: −(0.25 + 0.25)/4.
    for values in model(here, study, 1).values():
        np.testing.assert_allclose(values, -0.125, rtol=1e-6)
    assert ledger(here, study)[:3] == ["opened", "reserved", "settled"]


def test_what_was_seen_of_it_stays_charged(tmp_path: Path) -> None:
    """Nobody else sends: the round comes to nothing, and its charge stands in full, because a noised update came in."""
    clock = FakeClock()
    with live(tmp_path / "home", time_of_day=clock) as here:
        north, *_ = here.running("sepsis", "north", "south")
        assert code_of(here.put_update(north, 1, update(1e30))) == (422, "norm-exceeded")
        clock.seconds += 700.0
        here.work()
        round = here.operator("GET", "/v1/studies/sepsis/rounds/1").json()
        assert (round["state"], round["reason"]) == ("abandoned", "too-few-clients")
        assert ledger(here, "sepsis")[:3] == ["opened", "reserved", "charged-in-full"]
        # The next round begins, for the same hospitals.
        clock.seconds += 5.0
        here.work()
        assert north.assignment() is not None


def test_a_report_that_is_missing_is_charged_at_the_worst_case(tmp_path: Path) -> None:
    """With Bayesian costs: the refused hospital has told none, and the largest may be its own."""
    clock, chosen = FakeClock(), settings(bayesian=True)
    with live(tmp_path / "home", time_of_day=clock) as here:
        hospitals = here.running("sepsis", "north", "south", "west", settings=chosen)
        assert code_of(here.put_update(hospitals[0], 1, update(1e30, log_moments=COSTS))) == (422, "norm-exceeded")
        for honest in hospitals[1:]:
            assert here.put_update(honest, 1, update(0.1, log_moments=COSTS)).status_code == 201
        clock.seconds += 700.0
        here.work()
        entries = here.operator("GET", "/v1/studies/sepsis/ledger").json()["entries"]
        assert [entry["body"]["report"] for entry in entries if entry["kind"] == "settled"] == [None]


def test_the_bound_is_the_settings_own(here: Live, study: str) -> None:
    """R = 5, B = 20, deviation 1/20, eight coordinates: 0.25 and √(8 + 2√(8·27.6) + 55.3)/20 = 0.48 are let in."""
    chosen = settings(robustness={"sum_radius": 5.0})
    north, _ = here.running(study, "north", "south", settings=chosen)
    assert code_of(here.put_update(north, 1, update(0.75 / np.sqrt(8)))) == (422, "norm-exceeded")
    assert here.put_update(north, 1, update(0.70 / np.sqrt(8))).status_code == 201


def test_a_median_does_not_follow_one_that_stays_within_the_bound(here: Live, study: str) -> None:
    chosen = settings(robustness={"aggregation": "median"}, schedule={"min_clients": 3})
    hospitals: list[Hospital] = here.running(study, "north", "south", "west", settings=chosen)
    for hospital, value in zip(hospitals, (0.5, 0.01, 0.02), strict=True):
        assert here.put_update(hospital, 1, update(value)).status_code == 201
    here.work()
    for values in model(here, study, 1).values():
        np.testing.assert_allclose(values, -0.02, rtol=1e-6)


@pytest.mark.parametrize(
    ("robustness", "options", "said"),
    [
        ({"aggregation": "median"}, {"masked": True}, "updates in the clear"),
        (
            {"aggregation": "trimmed-mean", "trim": 4},
            {"schedule": {"min_clients": 8}},
            "min_clients must be at least 9",
        ),
        ({"sum_radius": 0.1}, {}, "robustness.sum_radius must be at least privacy.clip_norm"),
    ],
)
def test_studies_that_make_no_sense_are_not_created(
    here: Live, study: str, robustness: dict, options: dict, said: str
) -> None:
    asked = settings_json(**options) | {"robustness": robustness}
    answer = here.operator("POST", "/v1/studies", json={"study": study, "settings": asked})
    assert code_of(answer) == (422, "invalid-request")
    assert said in answer.json()["detail"]
