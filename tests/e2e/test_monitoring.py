"""A released model on later patients, over real HTTP: a file that grows, windows that are asked once, nobody twice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.budget.budget import replay
from client_sdk.errors import ConflictError, InvalidRequestError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.study.events import RoundEvent
from private_learning.records import Table
from server.db.ledger_store import entries
from server.db.rows import find_study
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.settings import StudySettings
from tests.e2e.test_evaluation import Seen, cells, drive, policy_that, queries
from tests.factories.asking import Site, enrolled, operator
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import limit, settings_json
from tests.factories.studies import FakeClock

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
QUESTION = {"noise_multiplier": 0.02, "edges": [0.3, 0.5], "centre": 0.4}
MONITORING = {"column": "seen", "first_day": "2026-01-01", "every_days": 90, "windows": 2, "question": QUESTION}
# The clock stands at 15 January 2027.
ENDS = ("2026-04-01", "2026-06-30")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def here(tmp_path: Path, clock: FakeClock) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=clock, long_poll_seconds=0.2) as coordinator:
        yield coordinator


class Left(Exception):
    """Somebody at the hospital ends `join`."""


class Monitored(Site):
    """A hospital whose records have a data version, and that leaves after so many answered rounds."""

    def __init__(self, *arguments: Any, version: str, rounds: int) -> None:
        super().__init__(*arguments)
        self.version, self.rounds = version, rounds

    def run(self) -> None:
        try:
            self.outcome = self.hospital().join(
                *("registry", None, self._data),
                policy=self._policy,
                dataset="icu",
                data_version=self.version,
                accepts_records=lambda _: True,
                on_round=self._count,
            )
        except Left:
            pass
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def _count(self, _: RoundEvent) -> None:
        self.rounds -= 1
        if self.rounds == 0:
            raise Left

    def with_records(self, data: Table, version: str, rounds: int) -> Monitored:
        return Monitored(self._here, self.directory, self.name, data, self._policy, version=version, rounds=rounds)


def study() -> StudySettings:
    values = settings_json(
        statistics={"max_queries": 2, "max_cells": 100},
        limits=[limit("instance", epsilon=1e6)],
        max_steps=3,
        schedule={"min_clients": 4},
    )
    return StudySettings.model_validate(values | {"monitoring": MONITORING})


def dated(seed: int, days: Sequence[str], names: Sequence[str]) -> Table:
    draw = np.random.default_rng(seed)
    age, rate = draw.uniform(0, 100, len(days)), draw.uniform(0, 10, len(days))
    ill = (age / 100 + rate / 10 + draw.normal(0, 0.2, len(days)) > 1).astype(float)
    columns = {"age": age, "rate": rate, "ill": ill, "seen": list(days), "patient": list(names)}
    return Table.of(columns, patient_column="patient")


def file_of(seed: int, *, grown: bool) -> Table:
    """20 patients before the first day, 10 in window 1; later also 7 in window 2, and one whose date was corrected."""
    days = ["2025-05-01"] * 20 + ["2026-01-01", "2026-03-31"] * 5
    names = [f"p{place}" for place in range(30)]
    if grown:
        # Trained on, and found to have come later: in no window.
        days[0] = "2026-05-01"
        days += ["2026-04-01"] * 6 + ["2026-06-29", "2026-06-30", ""]
        names += [f"p{place}" for place in range(30, 39)]
    return dated(seed, days, names)


def join(here: Live, sites: list[Monitored]) -> None:
    for site in sites:
        site.start()


def test_windows_are_asked_once_of_patients_who_were_never_trained_on(
    here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, monitoring = Seen(monkeypatch), MonitoringSettings.model_validate(MONITORING)
    enrolled_sites = enrolled(
        here, tmp_path, study(), policy=policy_that("ask"), names=("alpha", "beta", "gamma", "delta")
    )
    first = [
        Monitored(
            here, site.directory, site.name, file_of(place, grown=False), policy_that("ask"), version=ENDS[0], rounds=4
        )
        for place, site in enumerate(enrolled_sites)
    ]
    join(here, first)
    drive(here, lambda: _trained(here) == 3, sites=first, seconds=120)
    model = _model(here)
    with operator(here) as lead:
        number = lead.ask_query("registry", monitoring.document(1, model)).number
        # Only then is the second window known to be waited for.
        lead.ask_query("registry", monitoring.document(2, model))
        drive(here, lambda: lead.query("registry", number).state == "answered", sites=first, seconds=120)
        assert lead.query("registry", number + 1).state == "waiting"
        for odd in ({"first_day": "2026-02-01"}, {"end": "2026-04-02"}, {"column": "other"}):
            document = monitoring.document(1, model).model_dump(mode="json")
            document["question"]["first_record"] |= odd
            with pytest.raises((ConflictError, InvalidRequestError), match="first_record"):
                lead.ask_query("registry", type(monitoring.document(1, 1)).model_validate(document))
    drive(here, lambda: not any(site.is_alive() for site in first), sites=first, seconds=60)
    second = [site.with_records(file_of(place, grown=True), ENDS[1], 1) for place, site in enumerate(first)]
    join(here, second)
    drive(here, lambda: not any(site.is_alive() for site in second), sites=second, seconds=120)
    asked = queries(here)
    assert [query.state for query in asked] == ["answered", "answered"]
    # Exact counts: four hospitals with 10, then 7 patients each.
    assert [round(sum(cells(query))) for query in asked] == [40, 28]
    for site in first:
        trained = set[str]().union(*seen.trained[site.name])
        assert trained == {f"p{place}" for place in range(20)}
        one, two = seen.evaluated[site.name]
        assert one == {f"p{place}" for place in range(20, 30)}
        assert two == {f"p{place}" for place in range(30, 37)}
        with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as ledger:
            assert [charge.bears for charge in ledger.charges()] == ["all"] * 3 + ["monitored"] * 2
    found = here.coordinator.database.read("look", lambda tx: entries(tx, find_study(tx, "registry").id, 0, 10_000))
    budget = replay(found)
    assert (budget.charged_rounds, budget.charged_queries) == (3, 2)


def _trained(here: Live) -> int:
    with operator(here) as lead:
        rounds = lead.rounds("registry").rounds
    return sum(view.state == "released" and view.query is None for view in rounds)


def _model(here: Live) -> int:
    with operator(here) as lead:
        model = lead.study("registry").model
    assert model is not None
    return model.version
