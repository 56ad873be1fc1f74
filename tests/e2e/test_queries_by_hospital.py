"""Questions by hospital under masks, over real HTTP: whose numbers are there, what they cost, who can falsify them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from numpy.typing import NDArray

from private_learning.records import Table
from server.services.queries import ask
from study_protocol.queries.by_hospital import HospitalQuestion
from study_protocol.study.queries import Consent, Query
from tests.factories.asking import Site, answered, answering_policy, document, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.live_coordinator import Live, live
from tests.factories.recomputed import charged
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STUDY, NOISE, HONEST, DELTA = "registry", 5.0, 3, 1e-5
NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")
SIZES = {name: 200 * (place + 1) for place, name in enumerate(NAMES)}
COUNT = document(kind="count", noise_multiplier=NOISE, by="hospital")
OPEN = answering_policy()


def records(place: int) -> Table:
    size = SIZES[NAMES[place]]
    return Table.of({"age": np.full(size, 40.0), "patient": [f"p{i}" for i in range(size)]}, patient_column="patient")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(database_url: str, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    home = tmp_path / "home"
    with live(home, time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def opened(here: Live, home: Path, names: Sequence[str]) -> dict[str, Site]:
    sites = enrolled(here, home, statistics_settings(epsilon=15.0), names=names, data=records, policy=OPEN)
    return {site.name: site for site in sites}


def estimates(found: Query) -> dict[str, Any]:
    assert found.answered is not None, found
    (table,) = [one for one in found.answered.published.answer.tables if one.name == "count-by-hospital"]
    return {str(row[0]): row[table.columns.index("estimate")] for row in table.rows}


def require_numbers(found: Query, there: Sequence[str], silent: str = "") -> None:
    """Everybody's own number within six deviations of the noise, of which every survivor adds a share."""
    spread = NOISE * math.sqrt(len(there) / HONEST)
    numbers = estimates(found)
    for name in there:
        assert abs(numbers[name] - SIZES[name]) < 6 * spread, numbers
    assert found.answered is not None
    stated = found.answered.published
    assert stated.noise.present == pytest.approx(spread, rel=1e-6)
    if silent:
        assert numbers[silent] is None
        assert any(note.startswith(f"{silent}: no answer") for note in stated.answer.notes)
    in_all = next(one for one in stated.answer.tables if one.name == "count")
    number = float(in_all.rows[0][in_all.columns.index("estimate")] or 0)
    assert abs(number - sum(SIZES[name] for name in there)) < 6 * spread * math.sqrt(len(there))


def require_cost_of_one_question(here: Live) -> None:
    """As of the pooled question: one Gaussian mechanism, whatever the number of hospitals."""
    budget = here.operator("GET", f"/v1/studies/{STUDY}/budget").json()
    entries = here.operator("GET", f"/v1/studies/{STUDY}/ledger").json()["entries"]
    found = charged(entries)
    assert found.asked["all"] == pytest.approx((NOISE,), rel=1e-6)
    accountant = PLDAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(found.asked["all"][0]))
    (reports,) = (one["reports"] for one in budget["limits"] if one["epsilon"] is not None)
    (stated,) = (one["epsilon"] for one in reports if one["name"] == "privacy-loss distribution")
    assert stated == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)


@SQLITE_FIRST
def test_one_that_drops_out_has_no_number(here: Live, tmp_path: Path, clock: FakeClock) -> None:
    """It has agreed, and is gone before the sum. Its block holds the others' noise, which nobody reads as zero."""
    sites = opened(here, tmp_path, NAMES)
    with operator(here) as lead:
        number = lead.ask_query(STUDY, COUNT).number
        ask.consent(here.coordinator, STUDY, number, "epsilon", Consent(allowed=True))
        there = [sites[name] for name in NAMES[:4]]
        for site in there:
            site.start()
        drive(here, lambda: lead.query(STUDY, number).state == "asked", sites=there)
        passed = 0

        def done() -> bool:
            nonlocal passed
            passed += 1
            if passed % 50 == 0:
                # Past the deadline of the phase that waits for the fifth one.
                clock.seconds += 61.0
            return lead.query(STUDY, number).state in ("answered", "failed")

        drive(here, done, sites=there, seconds=120.0)
        require_numbers(lead.query(STUDY, number), NAMES[:4], silent="epsilon")
    require_cost_of_one_question(here)


@SQLITE_FIRST
def test_one_that_refuses_by_its_policy_has_no_number(here: Live, tmp_path: Path) -> None:
    sites = opened(here, tmp_path, NAMES)
    sites["gamma"].set_policy(statistics={"queries": "allow", "by_hospital": "refuse"})
    for site in sites.values():
        site.start()
    found = answered(here, list(sites.values()), COUNT)
    require_numbers(found, [name for name in NAMES if name != "gamma"], silent="gamma")
    with operator(here) as lead:
        words = {one.client: one.consent for one in lead.query(STUDY, found.number).consents or ()}
    assert (words["gamma"].allowed, words["gamma"].code) == (False, "policy-by-hospital")
    require_cost_of_one_question(here)


@SQLITE_FIRST
@pytest.mark.parametrize("foreign", [8, 400])
def test_one_that_writes_into_anothers_block_is_seen_beyond_the_noise_alone(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, foreign: int
) -> None:
    """Under masks nothing tells who wrote what. The other one can compare its number with its own records, no more."""
    placed = HospitalQuestion.placed

    def dishonest(self: HospitalQuestion, total: NDArray[np.int64], hospital: str) -> NDArray[np.int64]:
        honest = placed(self, total, hospital)
        if threading.current_thread().name == "alpha":
            honest[self.hospitals.index("beta")] += foreign * round(1 / self.grid().spacing)
        return honest

    monkeypatch.setattr(HospitalQuestion, "placed", dishonest)
    sites = opened(here, tmp_path, NAMES[:4])
    for site in sites.values():
        site.start()
    found = answered(here, list(sites.values()), COUNT)
    numbers, spread = estimates(found), NOISE * math.sqrt(4 / HONEST)
    assert found.answered is not None
    assert any(
        "A hospital can write into another hospital's numbers" in n for n in found.answered.published.answer.notes
    )
    assert abs(numbers["beta"] - SIZES["beta"] - foreign) < 6 * spread
    noticed = abs(numbers["beta"] - SIZES["beta"]) > 6 * spread
    assert noticed is (foreign > 100)
    for name in ("alpha", "gamma", "delta"):
        assert abs(numbers[name] - SIZES[name]) < 6 * spread
