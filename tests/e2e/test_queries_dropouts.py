"""Hospitals that fall silent at every step of a query's secure sum, and the same question asked again afterwards.

Real hospitals over real HTTP, each with its own ledger. Deadlines cost no time: everybody lives by a clock that the
test moves.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from accounting.budget.budget import replay
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from server.db.tables import SessionMessageRow
from server.services.secure_sum import lists
from study_protocol.secure_sum.messages import SessionParameters
from study_protocol.study.queries import Query
from tests.factories.asking import Site, document, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.dying import Killed
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

pytestmark = pytest.mark.timeout(300)

STUDY = "registry"
# t = 4 and at least 4 survivors: two may go. Who is in a sum shows in it.
NAMES = tuple(f"h{i}" for i in range(6))
SIZES = {name: 200 * 2**place for place, name in enumerate(NAMES)}
SPARE, HONEST, NOISE = 2, 3, 5.0
# Who is lost before a step dies at this failpoint, which is the last one before it.
DIES_AT = {
    "keys": "after-seen",
    "shares": "after-keys",
    "masked": "after-shares",
    "consistency": "after-octets",
    "unmask": "after-consistency",
}
# The phases of a session, each with what everybody alive has said when it may end.
PHASES = {"keys": "keys", "shares": "shares", "masked": "manifest", "consistency": "consistency", "unmask": "unmask"}
STEPS = tuple(PHASES)
# With one more gone than can be borne: (the session's failure, the ledger's entry). Opened shares alone cost anything.
TOO_MANY = {
    "keys": ("too-few-keys", "cancelled"),
    "shares": ("too-few-shares", "cancelled"),
    "masked": ("too-few-survivors", "cancelled"),
    "consistency": ("expired", "cancelled"),
    "unmask": ("expired", "charged-in-full"),
}


@dataclass
class Deaths:
    """Kills whoever is to die at a failpoint."""

    at: str = ""
    who: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def come(self, name: str) -> None:
        me = threading.current_thread().name
        if me in self.who - self.gone and name == f"hospital.{self.at}":
            self.gone.add(me)
            raise Killed(name)


@dataclass
class Scene:
    """One study in which everything happens, and the clock that its deadlines pass by."""

    here: Live
    clock: FakeClock
    deaths: Deaths
    sites: dict[str, Site]
    round: int = 0

    def ask(self, noise: float, step: str = "keys", lost: frozenset[str] = frozenset()) -> Query:
        """The next round, from which `lost` fall silent before `step`; they come back after it."""
        self.deaths.at, self.deaths.who, self.deaths.gone = DIES_AT[step], set(lost), set()
        with operator(self.here) as lead:
            number = lead.ask_query(STUDY, document(kind="count", noise_multiplier=noise)).number
        return self.follow(number, lost, step)

    def follow(self, number: int, lost: frozenset[str], step: str) -> Query:
        """The next round, of a query that is asked already. `deaths` says who dies in it, and at what."""
        with operator(self.here) as lead:
            self.round += 1
            self._until(lambda: lead.query(STUDY, number).state == "asked", "it is asked")
            for phase, said in PHASES.items():
                self._play(phase, said, step, lost)
            self._until(lambda: lead.query(STUDY, number).state in ("answered", "failed"), "it ends")
            found = lead.query(STUDY, number)
        for name in lost:
            self.sites[name].join(30)
            assert isinstance(self.sites[name].error, Killed), self.sites[name].error
            self.sites[name] = self.sites[name].again()
            self.sites[name].start()
        return found

    def _play(self, phase: str, said: str, step: str, lost: frozenset[str]) -> None:
        if self._phase() == "failed":
            return
        silent = lost if STEPS.index(step) <= STEPS.index(phase) else frozenset()
        self._until(lambda: self._said(said) >= len(self.sites) - len(silent) or self._phase() == "failed", phase)
        self._until(lambda: self.deaths.gone >= silent, f"{silent} die before {phase}")
        if silent and self._phase() == phase:
            self._pass_deadline(phase)

    def _pass_deadline(self, phase: str) -> None:
        view = lists.read_session(self.here.coordinator, STUDY, self.round)[1]
        parameters = SessionParameters.from_bytes(view.signed.parameters)
        due = parameters.deadlines.model_dump().get(phase, parameters.expires + 1)
        # While shares are opened the session waits for the worker, unless too few have replied.
        if phase != "unmask" or self._said(phase) < parameters.threshold:
            self.clock.seconds = float(due)

    def _phase(self) -> str:
        return lists.read_session(self.here.coordinator, STUDY, self.round)[1].phase

    def _said(self, step: str) -> int:
        rows = self.here.coordinator.database.read(
            "look", lambda tx: tx.session.query(SessionMessageRow.step).filter_by(round=self.round).all()
        )
        return sum(one.step == step for one in rows)

    def _until(self, done, what: str) -> None:  # type: ignore[no-untyped-def]
        end = time.monotonic() + 60
        while not done():
            broken = [
                (one.name, one.error) for one in self.sites.values() if one.error and one.name not in self.deaths.who
            ]
            assert not broken, broken
            assert time.monotonic() < end, (self.deaths, what)
            self.here.work()
            time.sleep(0.03)

    def ending(self) -> str:
        """The ledger's entry for what became of the round."""
        found = self.here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, STUDY).id, 0, 10_000))
        self.charged = replay(found).charged_queries
        (kind,) = [one.kind for one in found if one.round == self.round and one.kind != "asked"]
        return kind

    def own_charges(self) -> dict[str, int]:
        """How many rounds each hospital has paid for itself."""
        found = dict[str, int]()
        for name, site in self.sites.items():
            with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
                found[name] = len(own.charges())
        return found


def records(place: int) -> Table:
    size = SIZES[NAMES[place]]
    return Table.of({"age": np.full(size, 40.0), "patient": [f"p{i}" for i in range(size)]}, patient_column="patient")


@pytest.fixture
def scene(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    clock, deaths = FakeClock(), Deaths()
    for module in ("client_sdk.secure_sum.round", "client_sdk.study.verifier"):
        monkeypatch.setattr(f"{module}.failpoint", deaths.come)
    # Between a session that has ended and the next look for work.
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    home = tmp_path / "home"
    with live(home, time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here:
        chosen = statistics_settings(epsilon=15.0, max_queries=50)
        sites = enrolled(here, tmp_path, chosen, names=NAMES, data=records)
        for site in sites:
            site.start()
        yield Scene(here, clock, deaths, {site.name: site for site in sites})


@pytest.mark.slow
@SQLITE_FIRST
def test_as_many_may_go_as_were_promised_and_one_more_ends_the_query(scene: Scene) -> None:
    charged, own = 0, dict.fromkeys(NAMES, 0)
    for place, step in enumerate(STEPS):
        for gone in (SPARE, SPARE + 1):
            # Everybody is lost some time. Another noise for each: another query.
            lost, noise = frozenset(NAMES[(place + i) % len(NAMES)] for i in range(gone)), NOISE + place + gone / 8
            found, case = scene.ask(noise, step, lost), (step, gone)
            ending = scene.ending()
            if gone <= SPARE:
                counted = set(NAMES) if step in ("consistency", "unmask") else set(NAMES) - lost
                charged += 1
                assert (found.state, ending) == ("answered", "settled"), case
                _require_sum_of(found, counted, noise)
            else:
                charged += TOO_MANY[step][1] == "charged-in-full"
                assert (found.state, found.reason, ending) == ("failed", *TOO_MANY[step]), case
                assert found.answered is None
                # The same question anew: a draw of its own, charged for itself, whatever became of the first one.
                again = scene.ask(noise)
                charged += 1
                assert (again.state, again.number, again.round) == ("answered", found.number, scene.round), case
                assert scene.ending() == "settled"
                _require_sum_of(again, set(NAMES), noise)
            assert scene.charged == charged, case
            # And once answered it is the stored answer, over whatever survivors it was.
            _require_stored(scene, found if gone <= SPARE else again, charged)
            own, before = scene.own_charges(), own
            _require_paid(
                {name: own[name] - before[name] for name in NAMES}, step, lost, rounds=1 if gone <= SPARE else 2
            )
    scene.deaths.who = set()
    with operator(scene.here) as lead:
        lead.move_study(STUDY, "stop")
    for site in scene.sites.values():
        site.join(30)
        assert site.error is None


def _require_sum_of(found: Query, counted: set[str], noise: float) -> None:
    """The estimate is these hospitals' patients: they differ by 200 at least, and six standard errors are below 100."""
    assert found.answered is not None
    stated = found.answered.published
    spread = noise * math.sqrt(len(counted) / HONEST)
    assert stated.hospitals == len(counted)
    assert stated.noise.guaranteed == pytest.approx(noise, rel=1e-6)
    assert stated.noise.present == pytest.approx(spread, rel=1e-6)
    assert abs(float(stated.answer.tables[0].rows[0][0] or 0) - sum(SIZES[name] for name in counted)) < 6 * spread < 100


def _require_stored(scene: Scene, found: Query, charged: int) -> None:
    with operator(scene.here) as lead:
        assert lead.ask_query(STUDY, found.document) == found
    scene.ending()
    assert scene.charged == charged


def _require_paid(paid: dict[str, int], step: str, lost: frozenset[str], rounds: int) -> None:
    """Hospitals pay once their shares are out and before they compute, and never twice for a round."""
    for name, rounds_paid in paid.items():
        first = 0 if step in ("keys", "shares") and (rounds == 2 or name in lost) else 1
        first = 0 if step == "masked" and name in lost else first
        assert rounds_paid == first + rounds - 1, (step, name, paid)
