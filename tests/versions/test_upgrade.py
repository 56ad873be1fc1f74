"""What the version before left behind in the middle of a round goes on under this one, and states the same ε.

`make_dumps.py` wrote the dumps: coordinator, database, and the hospitals with their ledgers and outboxes.
"""

from __future__ import annotations

import copy
import json
import math
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from dp_accounting.pld import privacy_loss_distribution
from sqlalchemy import text

from accounting.budget.budget import Budget
from client_sdk.api.client import ServerClock
from client_sdk.api.config import Connection
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.identity import Identity
from client_sdk.secure_sum.store import FileStore
from client_sdk.study.hospital import Hospital
from server.db.session import connect
from server.worker import Worker
from study_protocol.documents.compare import in_form_of
from study_protocol.study.any_settings import settings_from
from study_protocol.study.plan_of import plan_of
from tests.conftest import Postgres
from tests.factories.live_coordinator import Live, live
from tests.versions.make_dumps import KINDS, NAMES, ROUND, ROUNDS, STUDY, Kind
from wardround import load_records

SECONDS = 240.0
pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Since:
    """Time goes on from where the dump was made."""

    behind: float

    def now(self) -> float:
        return time.time() - self.behind


@dataclass(frozen=True)
class Upgraded:
    here: Live
    home: Path
    stated: dict[str, Any]
    clock: Since

    def hospital(self, name: str) -> Hospital:
        directory = self.home / "hospitals" / name / "wardround"
        clock = ServerClock(self.clock.now)
        address = self.here.url
        return Hospital(Identity.open(directory), connection=lambda _: Connection(url=address), clock=clock)

    def join(self, name: str) -> None:
        records = load_records(self.home / "hospitals" / name / "records.csv", patient_column="who")
        self.hospital(name).join(STUDY, None, records)

    def departures(self, name: str) -> list[tuple[int, str]]:
        path = ledger_path(self.home / "hospitals" / name / "wardround", "records")
        with HospitalLedger.open(path, read_only=True) as ledger:
            return [(one.round, one.sha256) for one in ledger.departures(STUDY)]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.path.stem)
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    kind: Kind = request.param
    _unpack(kind.path, tmp_path)
    stated = json.loads((tmp_path / "stated.json").read_text())
    clock = Since(time.time() - stated["time"])
    with (
        _restored(kind, tmp_path, request) as settings,
        live(tmp_path / "coordinator", time_of_day=clock, **settings) as here,
    ):
        yield Upgraded(here, tmp_path, stated, clock)


def _unpack(path: Path, home: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            found = Path(archive.extract(entry, home))
            found.chmod(entry.external_attr >> 16)
    for state in home.glob("hospitals/*/wardround/outbox/*/secure-sum"):
        # An upgrade moves nothing; a dump had to be carried here.
        store = FileStore(state)
        store.settle()
        store.close()


@contextmanager
def _restored(kind: Kind, home: Path, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    if kind.database == "sqlite":
        yield {}
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create(template="template0")
    url = server.url(name).render_as_string(hide_password=False)
    with psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://", 1)) as connection:
        connection.execute((home / "database.sql").read_bytes())
    yield {"database_url": url}
    server.drop(name)


def _budget_goes_on(stated: dict[str, Any], now: dict[str, Any], settings: dict[str, Any]) -> None:
    """State, rounds, ε, δ and what is spent are exactly what they were; what was not stated before is what it must be.

    The chance of a right guess was what ε and δ so far allow. It is now that of everything the study may release.
    """
    stated, now = copy.deepcopy(stated), copy.deepcopy(now)
    in_old_form = [in_form_of(old, new) for old, new in zip(stated["limits"], now["limits"], strict=True)]
    old_reports, new_reports = (_epsilons_of_reports(limits) for limits in (stated["limits"], in_old_form))
    # Processors differ in the last bits of a Fourier transform. Nothing is decided by these numbers.
    assert new_reports == pytest.approx(old_reports, rel=1e-9)
    assert now | {"limits": in_old_form} == stated
    bounded, unbounded = now["limits"]
    assert unbounded == stated["limits"][1]
    assert set(bounded) == set(stated["limits"][0])
    certificates = [bounded["certificate"], *(report["certificate"] for report in bounded["reports"])]
    added = [("loss-distribution", None, None), *[(None, None, None)] * len(bounded["reports"])]
    assert [(one["guess_from"], one["allowed"], one["used"]) for one in certificates] == added
    assert set(certificates[0]) - set(stated["limits"][0]["certificate"]) == {"guess_from", "allowed", "used"}
    # Its grid rounds up: so near is enough, and the statement's own bound is tested where it is computed.
    assert abs(bounded["attack_success"] - _chance_by_dp_accounting(settings["privacy"])) < 1e-6
    assert bounded["attack_success"] < stated["limits"][0]["attack_success"]


def _epsilons_of_reports(limits: list[dict[str, Any]]) -> list[float]:
    """Take ε out of the reports of these limits."""
    reports = [report for limit in limits for report in limit["reports"]]
    return [one.pop("epsilon") for report in reports for one in (report["certificate"], report)]


def _chance_by_dp_accounting(privacy: dict[str, Any]) -> float:
    """(1 + δ(0)) / 2 of all rounds; under masks the noise of those who are surely honest counts together."""
    masking = privacy["masking"]
    honest = 1 if masking is None else masking["min_survivors"] - masking["colluders"]
    step = privacy_loss_distribution.from_gaussian_mechanism(
        privacy["noise_multiplier"] * math.sqrt(honest), sampling_prob=privacy["sampling_rate"]
    )
    return (1 + float(step.self_compose(ROUNDS).get_delta_for_epsilon(0.0))) / 2


def _epsilon(upgraded: Upgraded) -> float:
    """Of all rounds, computed here from the settings in the ledger."""
    plan = plan_of(settings_from(upgraded.stated["entries"][0]["body"]["settings"]))
    budget = Budget(plan)
    for round in range(1, ROUNDS + 1):
        budget.reserve(round)
        budget.settle(round, None)
    return budget.accounts[0].epsilon()


@pytest.mark.quick("clear-sqlite")
def test_a_round_under_way_goes_on_with_the_same_epsilon(upgraded: Upgraded) -> None:
    here, path = upgraded.here, f"/v1/studies/{STUDY}"
    before = here.operator("GET", f"{path}/budget").json()
    _budget_goes_on(upgraded.stated["budget"], before, upgraded.stated["entries"][0]["body"]["settings"])
    assert here.operator("GET", f"{path}/ledger").json()["entries"] == upgraded.stated["entries"]
    engine = connect(here.coordinator.database.engine.url)
    with engine.connect() as connection:
        # Created before there were numbers, it needs none.
        assert connection.execute(text("SELECT protocol FROM studies")).scalar_one() == 1
    engine.dispose()
    finished = {name: upgraded.departures(name) for name in NAMES}
    assert all(ROUND in dict(departures) for departures in finished.values())

    worker = Worker(here.coordinator)
    working = threading.Thread(target=worker.run)
    working.start()
    try:
        with ThreadPoolExecutor(len(NAMES)) as pool:
            for done in [pool.submit(upgraded.join, name) for name in NAMES]:
                done.result(SECONDS)
    finally:
        worker.stop()
        working.join()

    after = here.operator("GET", f"{path}/budget").json()
    assert (after["round"], after["state"]) == (ROUNDS, "finished")
    (spent,) = (limit["spent"] for limit in after["limits"] if limit["spent"])
    assert spent == _epsilon(upgraded)
    entries = here.operator("GET", f"{path}/ledger").json()["entries"]
    assert entries[: len(upgraded.stated["entries"])] == upgraded.stated["entries"]
    kinds = [(entry["kind"], entry["round"]) for entry in entries if entry["round"] is not None]
    assert kinds == [(kind, round) for round in range(1, ROUNDS + 1) for kind in ("reserved", "settled")]
    for name in NAMES:
        # What was finished in the outbox has been sent as it was, and nothing else for that round.
        assert [one for one in upgraded.departures(name) if one[0] <= ROUND] == finished[name]
