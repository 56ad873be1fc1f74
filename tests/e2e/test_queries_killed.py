"""A query whose hospitals or coordinator die at every failpoint, over real HTTP: answered once, charged once."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from accounting.budget.budget import replay
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.db.tables import ParticipantRow, SessionMessageRow
from server.services.secure_sum import lists
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.study.queries import Query
from study_protocol.wire.failpoints import names
from tests.factories.asking import NAMES, Site, document, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
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
    *("worker.before-scrub-files", "worker.after-scrub-files"),
]
# By which a query's round does not come: training alone, distrust, a person's own commands, and housekeeping.
ELSEWHERE = {
    *(f"hospital.{side}-{what}" for side in ("before", "after") for what in ("enrolment", "rotation")),
    *("hospital.after-checkpoint", "hospital.after-evidence", "hospital.after-terms", "hospital.after-joining"),
    *("worker.before-noise-file", "worker.before-model-file", "worker.after-model-file"),
    *(f"worker.{side}-{what}" for side in ("before", "after") for what in ("release", "noise")),
    *("api.before-model-file", "api.after-model-file", "api.after-model-commit"),
}
# Walked through in processes, and the same lines for queries: tests/e2e/test_masked_failpoints.py.
OF_SESSIONS_API = {
    *(f"api.{point}" for point in ("before-octets-file", "after-octets-file", "after-octets-commit")),
    *(f"api.{side}-session-message" for side in ("before", "after")),
}
# Of answers in the clear, and of answers whose files are gone: tests/server/services/queries/test_killed.py.
OF_THE_CLEAR = {
    *("worker.before-abandon", "worker.after-abandon"),
    *(f"api.{point}" for point in ("before-begin-commit", "after-begin-commit")),
    *(f"api.{point}" for point in ("before-update-file", "after-update-file", "after-update-commit")),
}
AT_A_DEADLINE = ["worker.before-advance", "worker.after-advance"]
REFUSING = ["before-refusal", "after-refusal"]
WITNESSING = ["before-witness", "after-witness"]
MODULES = {
    **dict.fromkeys(OF_WORK, "client_sdk.study.work"),
    "after-training": "client_sdk.study.answers",
    **dict.fromkeys(OF_SESSIONS, "client_sdk.secure_sum.round"),
    **dict.fromkeys(OF_PARTICIPATION, "client_sdk.study.participation"),
    "after-seen": "client_sdk.study.verifier",
    **dict.fromkeys([*REFUSING, *WITNESSING], "client_sdk.study.participation"),
}


def test_every_failpoint_is_walked_through_or_is_on_no_way_of_a_query() -> None:
    # Not all of them are imported before something runs.
    for module in ("server.app", "client_sdk.study.participation", "private_learning.training.checkpoint"):
        importlib.import_module(module)
    walked = {f"hospital.{point}" for point in (*OF_WORK, *OF_SESSIONS, *OF_PARTICIPATION, *REFUSING, *WITNESSING)}
    walked |= {*WORKER, *AT_A_DEADLINE}
    others = ELSEWHERE | OF_SESSIONS_API | OF_THE_CLEAR
    assert not walked & others
    assert walked | others == {name for name in names() if name.partition(".")[0] in ("hospital", "worker", "api")}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(database_url: str, tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    home = tmp_path / "home"
    with live(home, time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as coordinator:
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


@pytest.fixture
def victim(monkeypatch: pytest.MonkeyPatch) -> Victim:
    made = Victim()
    for module in set(MODULES.values()):
        monkeypatch.setattr(f"{module}.failpoint", made.come)
    return made


@dataclass
class Victim:
    """The hospital that dies at the failpoint that is set, once."""

    name: str = ""
    point: str = ""

    def come(self, name: str) -> None:
        if name == f"hospital.{self.point}" and threading.current_thread().name == self.name:
            self.point = ""
            raise Killed(name)

    def dies_and_comes_back(self, here: Live, sites: list[Site]) -> None:
        """The last of the sites."""
        drive(here, lambda: isinstance(sites[-1].error, Killed), sites=sites[:-1])
        sites[-1].join(30)
        sites[-1] = sites[-1].again()
        sites[-1].start()


@pytest.mark.slow
@SQLITE_FIRST
@pytest.mark.parametrize("masked", [True, False])
def test_a_hospital_dies_at_every_failpoint_and_comes_back(
    here: Live, tmp_path: Path, victim: Victim, masked: bool
) -> None:
    points = [*OF_WORK, *(OF_SESSIONS if masked else []), *OF_PARTICIPATION]
    chosen = statistics_settings(masked=masked, epsilon=15.0, max_queries=len(points) + 1)
    sites = enrolled(here, tmp_path, chosen, names=NAMES if masked else NAMES[:2])
    victim.name = sites[-1].name
    for site in sites:
        site.start()
    noises = [5.0 + place for place in range(len(points) + 1)]
    for point, noise in zip(points, noises, strict=False):
        victim.point = point
        with operator(here) as lead:
            number = lead.ask_query("registry", document(**count(noise))).number
        victim.dies_and_comes_back(here, sites)
        drive(here, lambda n=number: state_of(here, n).state == "answered", sites=sites)
    # Whoever died last takes part in the last one, too; and dies twice more, when the study has ended.
    with operator(here) as lead:
        lead.ask_query("registry", document(**count(noises[-1])))
    for point in WITNESSING:
        victim.point = point
        victim.dies_and_comes_back(here, sites)
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    assert charged(here) == len(noises)
    for site in sites:
        # Once for each query, whatever happened in between.
        assert charges(site) == noises
        if not masked:
            _require_one_draw_each(here, site)


def _require_one_draw_each(here: Live, site: Site) -> None:
    """What the coordinator has of every round is what the hospital has written down that it sent: one draw of noise."""
    received = here.coordinator.database.read(
        "look",
        lambda tx: tx.session.query(ParticipantRow.round, ParticipantRow.sha256).filter_by(client=site.name).all(),
    )
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        left = {one.round: one.sha256 for one in own.departures()}
    assert left == dict(received)


@pytest.mark.slow
@SQLITE_FIRST
def test_a_hospital_that_refuses_dies_and_comes_back(here: Live, tmp_path: Path, victim: Victim) -> None:
    """Its table lacks the column: it says so in the round. The others are enough, and it has paid nothing."""
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0, max_queries=len(REFUSING)))
    victim.name = sites[-1].name
    sites[-1] = sites[-1].again(Table.of({"other": np.ones(40)}))
    for site in sites:
        site.start()
    for place, point in enumerate(REFUSING):
        victim.point = point
        asked = document(kind="table", noise_multiplier=5.0 + place, variables=[{"column": "rate", "edges": [5.0]}])
        with operator(here) as lead:
            number = lead.ask_query("registry", asked).number
        victim.dies_and_comes_back(here, sites)
        drive(here, lambda n=number: state_of(here, n).state == "answered", sites=sites)
        stated = state_of(here, number).answered
        assert stated is not None
        assert stated.published.hospitals == 4
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    assert [len(charges(site)) for site in sites] == [len(REFUSING)] * 4 + [0]


@pytest.mark.slow
@SQLITE_FIRST
def test_the_worker_dies_when_a_deadline_has_passed(
    here: Live, tmp_path: Path, clock: FakeClock, victim: Victim
) -> None:
    """One hospital is lost after its keys: the session goes on without it, whatever becomes of the worker."""
    sites = enrolled(here, tmp_path, statistics_settings(epsilon=15.0, max_queries=len(AT_A_DEADLINE)))
    victim.name = sites[-1].name
    for site in sites:
        site.start()
    for place, point in enumerate(AT_A_DEADLINE):
        victim.point = "after-keys"
        with operator(here) as lead:
            number = lead.ask_query("registry", document(**count(5.0 + place))).number
        drive(here, lambda: isinstance(sites[-1].error, Killed), sites=sites[:-1])
        session = lists.read_session(here.coordinator, "registry", place + 1)[1]
        deadlines = SessionParameters.from_bytes(session.signed.parameters).deadlines
        drive(here, lambda n=place + 1: _shared(here, n) == 4, sites=sites[:-1])
        clock.seconds = float(deadlines.shares)
        with dying_at(point) as death, pytest.raises(Killed):
            drive(here, lambda d=death: d.hit, sites=sites[:-1])
        clock.seconds += 10.0
        drive(here, lambda n=number: state_of(here, n).state == "answered", sites=sites[:-1])
        sites[-1] = sites[-1].again()
        sites[-1].start()
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)
    assert charged(here) == len(AT_A_DEADLINE)
    assert [len(charges(site)) for site in sites] == [len(AT_A_DEADLINE)] * 4 + [0]


def _shared(here: Live, round: int) -> int:
    """How many have sent their shares."""
    said = {"round": round, "step": "shares"}
    return here.coordinator.database.read(
        "look", lambda tx: tx.session.query(SessionMessageRow).filter_by(**said).count()
    )


@pytest.mark.slow
@SQLITE_FIRST
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


@pytest.mark.slow
@SQLITE_FIRST
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


@pytest.mark.slow
@SQLITE_FIRST
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
