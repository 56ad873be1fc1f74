"""Synthetic records from four masked hospitals over real HTTP, each stage with a hospital and a worker that die."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from accounting.budget.budget import replay
from client_sdk.api.answered import Answered
from server.db.ledger_store import entries
from server.db.rows import find_study
from study_protocol.study.queries import SignedAnswer
from synthesis.chain import follow
from synthesis.file import made, verify, write
from tests.factories.asking import NAMES, Site, answering_policy, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.dying import Killed, dying_at
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock
from tests.factories.synthesis import section

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COLUMNS = [
    {"column": "age", "edges": [20, 40, 60, 80]},
    {"column": "rate", "edges": [2.5, 5.0, 7.5]},
    {"column": "ill", "categories": ["0", "1"]},
]
SECTION = {"columns": COLUMNS, "outcome": "ill", "allowance": 0.5, "patients": 5000, "rows": 1000}
# A hospital dies at one of these in each stage, and the worker at another.
DYING = (
    ("hospital.after-charge", "worker.before-reserve"),
    ("hospital.after-bytes", "worker.before-answer"),
    ("hospital.after-settle", "worker.after-answer"),
)


@SQLITE_FIRST
def test_three_stages_end_in_a_file_whatever_dies(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, points = FakeClock(), [hospital for hospital, _ in DYING]
    chosen = statistics_settings(epsilon=5.0, synthesis=SECTION)
    synthesis = section(**SECTION)

    def come(name: str) -> None:
        if points and name == points[0] and threading.current_thread().name == NAMES[3]:
            points.pop(0)
            raise Killed(name)

    monkeypatch.setattr("client_sdk.study.work.failpoint", come)
    with live(tmp_path / "home", time_of_day=clock, database_url=database_url, long_poll_seconds=0.2) as here:
        # Nobody is asked again: who joined has agreed to the rule.
        asking = answering_policy(statistics={"queries": "ask"})
        sites = enrolled(here, tmp_path, chosen, names=NAMES[:4], policy=asking)
        for site in sites:
            site.start()
        with operator(here) as lead:
            lead.ask_query("registry", synthesis.first_question())
            for number, (_, worker) in enumerate(DYING, 1):
                for each in (worker, ""):
                    _drive_past(
                        here, sites, each, clock, lambda n=number: lead.query("registry", n).state == "answered"
                    )
            results = [lead.ask("registry", lead.query("registry", number).document) for number in (1, 2, 3)]
            assert len(lead.queries("registry").queries) == 3
        assert not points
        answers: list[SignedAnswer] = [_signed(result) for result in results]
        chain = follow(synthesis, {one.published.sha256: one.published for one in answers}.get)
        assert chain.document is None
        found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
        assert replay(found).charged_queries == 3
        path = tmp_path / "synthetic.csv"
        write(path, made("registry", chosen.digest(), synthesis, answers, results[0].key))
        assert verify(path).synthesis == synthesis


def _drive_past(here: Live, sites: list[Site], point: str, clock: FakeClock, done: Callable[[], bool]) -> None:
    """Drive until `done`, or until the worker dies at `point`. The last hospital comes back when it has died."""

    def came_back() -> bool:
        if isinstance(sites[3].error, Killed):
            sites[3] = sites[3].again()
            sites[3].start()
        return done()

    if not point:
        drive(here, came_back, seconds=120.0, sites=sites[:3])
        return
    with dying_at(point) as death, pytest.raises(Killed):
        drive(here, lambda: came_back() and death.hit, seconds=120.0, sites=sites[:3])
    clock.seconds += 10.0


def _signed(result: Answered) -> SignedAnswer:
    assert result.query.answered is not None
    return result.query.answered
