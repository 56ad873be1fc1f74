"""Queries over real HTTP: five hospitals in threads, masked and in the clear, on both databases."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.errors import ConflictError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from tests.factories.asking import answered, document, drive, enrolled, operator
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

COUNT = {"kind": "count", "noise_multiplier": 5.0}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    home = tmp_path / "home"
    with live(home, time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as coordinator:
        yield coordinator


@pytest.mark.quick("sqlite-False")
@pytest.mark.parametrize("masked", [True, False])
def test_a_count_is_answered_charged_once_and_ends_the_study(here: Live, tmp_path: Path, masked: bool) -> None:
    sites = enrolled(here, tmp_path, statistics_settings(masked=masked, max_queries=2))
    for site in sites:
        site.start()
    found = answered(here, sites, document(**COUNT))
    assert found.state == "answered"
    assert found.answered is not None
    stated = found.answered.published
    row = dict(zip(stated.answer.tables[0].columns, stated.answer.tables[0].rows[0], strict=True))
    # Five hospitals of 40 patients; the noise of five survivors where three honest ones are enough, or of each.
    spread = 5.0 * math.sqrt(5 / 3 if masked else 5)
    assert stated.noise.present == pytest.approx(spread, rel=1e-6)
    assert abs(float(row["estimate"] or 0) - 200) < 6 * spread
    _limit_is_stated(here, used=1 / 25)
    # Asked again it is the same answer, at no cost.
    with operator(here) as lead:
        before = lead.budget("registry").limits[0].spent
        assert lead.ask_query("registry", document(**COUNT)).answered == found.answered
        assert lead.budget("registry").limits[0].spent == before
    # Another one is the last that the study takes, and ends it.
    second = answered(here, sites, document(**COUNT | {"noise_multiplier": 6.0}))
    assert second.state == "answered"
    _limit_is_stated(here, used=1 / 25 + 1 / 36)
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    for site in sites:
        with HospitalLedger.open(ledger_path(site.directory, "icu")) as own:
            assert [charge.noise_multiplier for charge in own.charges()] == pytest.approx([5.0, 6.0])
    with operator(here) as lead, pytest.raises(ConflictError, match="finished"):
        lead.ask_query("registry", document(**COUNT | {"noise_multiplier": 7.0}))


def _limit_is_stated(here: Live, used: float) -> None:
    """A stop may depend on answers: the limit holds whatever it is, the ε so far only under a condition, in words."""
    with operator(here) as lead:
        limit = lead.budget("registry").limits[0]
    certificate = limit.certificate or {}
    assert limit.spent == limit.epsilon == certificate["epsilon"]
    assert certificate["used"] == pytest.approx(used, rel=1e-6)
    assert limit.spent_share == pytest.approx(used / certificate["allowed"], rel=1e-6)
    (running,) = limit.reports
    assert running.epsilon is not None
    assert limit.spent is not None
    assert running.epsilon < limit.spent
    assert "do not depend on its answers" in running.certificate["assumption"]


@pytest.mark.quick("sqlite")
def test_a_query_that_could_overspend_asks_nobody(here: Live, tmp_path: Path) -> None:
    enrolled(here, tmp_path, statistics_settings(epsilon=1.0))
    with operator(here) as lead:
        forecast = lead.forecast_query("registry", document(**COUNT | {"noise_multiplier": 3.0}))
        assert not forecast.allowed
        # The analytic Gaussian's s for ε = 1, δ = 1e-5 is 3.7306; to three digits, rounded up.
        assert forecast.least_noise_multiplier == pytest.approx(3.74, abs=0.011)
        with pytest.raises(ConflictError, match="would fit"):
            lead.ask_query("registry", document(**COUNT | {"noise_multiplier": 3.0}))
        assert lead.queries("registry").queries == []
        assert lead.ask_query("registry", document(**COUNT | {"noise_multiplier": 3.74})).state == "waiting"
