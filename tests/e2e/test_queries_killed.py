"""A query whose hospitals or coordinator die at every failpoint, over real HTTP: answered once, charged once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.budget.budget import replay
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.protocol.study.queries import Query
from server.db.ledger_store import entries
from server.db.rows import find_study
from tests.factories.asking import Site, document, drive, enrolled, operator
from tests.factories.dying import Killed, dying_at
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)

OF_WORK = ["before-charge", "after-charge", "after-training", "after-bytes", "after-settle"]
OF_SESSIONS = ["after-keys", "after-shares", "after-octets", "after-consistency", "after-unmask"]
OF_PARTICIPATION = ["after-seen", "after-send", "after-answer"]
WORKER = [
    *(f"worker.{side}-{point}" for point in ("reserve", "settle", "answer", "scrub") for side in ("before", "after")),
    *("worker.before-sum-files", "worker.after-sum-files", "worker.before-sum", "worker.after-sum"),
]
MODULES = {
    **dict.fromkeys(OF_WORK, "client_sdk.study.work"),
    "after-training": "client_sdk.study.answers",
    **dict.fromkeys(OF_SESSIONS, "client_sdk.secure_sum.round"),
    **dict.fromkeys(OF_PARTICIPATION, "client_sdk.study.participation"),
    "after-seen": "client_sdk.study.verifier",
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=0.2) as coordinator:
        yield coordinator


def count(noise_multiplier: float) -> dict[str, object]:
    return {"kind": "count", "noise_multiplier": noise_multiplier}


def state_of(here: Live, number: int) -> Query:
    with operator(here) as lead:
        return lead.query("registry", number)


def charges(site: Site) -> list[float]:
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        return [round(charge.noise_multiplier, 6) for charge in own.charges()]


def charged(here: Live) -> int:
    """Queries that the coordinator's ledger charges, by a replay of all of it."""
    found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
    return replay(found).charged_queries


def test_a_hospital_dies_at_every_failpoint_and_comes_back(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = [*OF_WORK, *OF_SESSIONS, *OF_PARTICIPATION]
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0, max_queries=len(points) + 1))
    victim, armed, died = sites[-1].name, list[str](), list[str]()

    def die(name: str) -> None:
        if name in armed and threading.current_thread().name == victim:
            armed.clear()
            died.append(name)
            raise Killed(name)

    for module in set(MODULES.values()):
        monkeypatch.setattr(f"{module}.failpoint", die)
    for site in sites:
        site.start()
    noises = [5.0 + place for place in range(len(points) + 1)]
    for point, noise in zip(points, noises, strict=False):
        armed.append(f"hospital.{point}")
        with operator(here) as lead:
            number = lead.ask_query("registry", document(**count(noise))).number
        drive(here, lambda: bool(died), sites=sites[:-1])
        sites[-1].join(30)
        assert isinstance(sites[-1].error, Killed), (point, sites[-1].error)
        sites[-1] = sites[-1].again()
        died.clear()
        sites[-1].start()
        drive(here, lambda n=number: state_of(here, n).state == "answered", sites=sites)
    # Whoever died last takes part in the last one, too.
    with operator(here) as lead:
        lead.ask_query("registry", document(**count(noises[-1])))
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    assert charged(here) == len(noises)
    for site in sites:
        # Once for each query, whatever happened in between.
        assert charges(site) == noises


def test_the_worker_dies_at_every_failpoint_and_another_one_goes_on(
    here: Live, tmp_path: Path, clock: FakeClock
) -> None:
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0, max_queries=len(WORKER)))
    for site in sites:
        site.start()
    noises = [5.0 + place for place in range(len(WORKER))]
    for point, noise in zip(WORKER, noises, strict=True):
        with operator(here) as lead:
            number = lead.ask_query("registry", document(**count(noise))).number
        with dying_at(point) as death, pytest.raises(Killed):
            drive(here, lambda d=death: d.hit, sites=sites)
        # Past the dead worker's lease.
        clock.seconds += 10.0
        drive(here, lambda n=number: state_of(here, n).state == "answered", sites=sites)
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    assert charged(here) == len(noises)
    for site in sites:
        assert charges(site) == noises


def test_with_too_few_hospitals_a_query_waits_and_costs_nothing(here: Live, tmp_path: Path, clock: FakeClock) -> None:
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0))
    for site in sites[:3]:
        site.start()
    with operator(here) as lead:
        number = lead.ask_query("registry", document(**count(5.0))).number
        drive(here, lambda: lead.query("registry", number).allowed == 3, sites=sites[:3])
        clock.seconds += 1000.0
        here.work()
        assert lead.query("registry", number).state == "waiting"
        assert lead.budget("registry").limits[0].spent == 0
        # The fourth is enough; the fifth, who says nothing, has been waited for long enough.
        sites[3].start()
        drive(here, lambda: lead.query("registry", number).state == "answered", sites=sites[:4])
        stated = lead.query("registry", number).answered
        assert stated is not None
        assert stated.published.hospitals == 4
        lead.move_study("registry", "stop")
    drive(here, lambda: not any(site.is_alive() for site in sites[:4]), sites=sites[:4])


def test_hospitals_that_say_no_end_the_query_and_nothing_is_charged(here: Live, tmp_path: Path) -> None:
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0))
    strict = {"statistics": {"queries": "allow", "denied_columns": ["age"]}}
    for site in sites:
        site.set_policy(**(strict if site.name in ("alpha", "beta") else {}))
        site.start()
    asked = document(kind="table", noise_multiplier=5.0, variables=[{"column": "age", "edges": [50.0]}])
    with operator(here) as lead:
        number = lead.ask_query("registry", asked).number
        drive(here, lambda: lead.query("registry", number).state == "failed", sites=sites)
        shown = lead.query("registry", number)
        assert shown.reason == "refused-by-hospitals"
        refused = {one.client: one.consent.code for one in shown.consents or () if not one.consent.allowed}
        assert refused == {"alpha": "policy-columns", "beta": "policy-columns"}
        assert lead.budget("registry").limits[0].spent == 0
        # Another question, about other columns, is answered by all of them.
        other = document(kind="table", noise_multiplier=5.0, variables=[{"column": "rate", "edges": [5.0]}])
        second = lead.ask_query("registry", other).number
        drive(here, lambda: lead.query("registry", second).state == "answered", sites=sites)
        lead.move_study("registry", "stop")
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
