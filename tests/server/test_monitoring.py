"""The endpoint of Prometheus: what a real round exports, and what it never does."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.db.session import Database
from server.monitoring import monitored
from server.services.coordinator import Coordinator
from server.services.measures import Past
from server.services.readiness import CHECK_SECONDS
from server.worker import Worker
from tests.conftest import Postgres
from tests.factories.hospital_double import MODEL, update
from tests.factories.live_coordinator import Live, live
from tests.factories.masked_studies import STEPS, MaskedHospital
from tests.factories.settings import settings as study_settings
from wardround.demo.processes import free_port

HOSPITALS = ("saint-mary", "bethel", "charite", "rigshospitalet")
PRIVATE = re.compile("ε|δ|epsilon|delta|cost|budget|nois|norm|privacy|spent", re.IGNORECASE)


def read(port: int) -> str:
    answer = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
    assert answer.status_code == 200
    return answer.text


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def one(text: str, name: str, **labels: str) -> float:
    (value,) = [value for found, value in samples(text)[name] if labels.items() <= found.items()]
    return value


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """After one round in the clear and one masked, over HTTP and through a worker."""
    port = free_port()
    with live(tmp_path_factory.mktemp("home"), metrics_port=port) as here:
        for hospital in here.running("plain", *HOSPITALS[:2]):
            assert here.signed(hospital, "GET", "/v1/studies/plain/assignment").status_code == 200
            hospital.send(1, update())
        _masked_round(here)
        here.work()
        assert here.operator("GET", "/v1/studies/plain/budget").status_code == 200
        assert here.operator("GET", "/v1/studies/plain/roster").status_code == 200
        return read(port)


def _masked_round(here: Live) -> None:
    chosen = study_settings(masked=True)
    small = {name: np.full_like(array, 0.01) for name, array in MODEL.items()}
    hospitals = here.running("masked", *HOSPITALS, settings=chosen)
    turns = [MaskedHospital(who, small).session(here.coordinator, chosen, 1) for who in hospitals]
    for step in STEPS:
        for turn in turns:
            turn.now = int(time.time())
            turn.take(step)
        here.work()


def test_no_hospital_is_named_in_anything_that_is_exported(exported: str) -> None:
    assert [name for name in HOSPITALS if name in exported.lower()] == []


def test_no_word_of_privacy_is_in_anything_that_is_exported(exported: str) -> None:
    # The client library's own sentences about the process speak of time that was spent.
    ours = "\n".join(line for line in exported.splitlines() if not line.startswith("# HELP process_"))
    assert PRIVATE.findall(ours) == []


def test_labels_are_templates_and_words_of_ours(exported: str) -> None:
    labels = {
        name: {found[name] for found, _ in pairs if name in found} for pairs in [_all(exported)] for name in NAMES
    }
    assert "/v1/studies/{study}/*" in labels["route"]
    assert all(re.fullmatch(r"(/[a-z0-9*{}-]*)+|unknown", route) for route in labels["route"])
    assert labels["study"] == {"plain", "masked"}
    used = {name for found, _ in _all(exported) for name in found}
    assert used == NAMES


NAMES = {"method", "route", "status", "transaction", "kind", "state", "outcome", "phase", "study", "failure", "le"}


def _all(text: str) -> list[tuple[dict[str, str], float]]:
    return [pair for pairs in samples(text).values() for pair in pairs]


def test_a_round_is_counted_from_end_to_end(exported: str) -> None:
    assert one(exported, "wardround_rounds_ended", outcome="released") == 2
    assert one(exported, "wardround_rounds_ended", outcome="abandoned") == 0
    assert one(exported, "wardround_sessions", phase="summed") == 1
    assert one(exported, "wardround_studies", state="running") == 2
    assert one(exported, "wardround_worker_step_seconds_count", kind="release") == 2
    route = "/v1/studies/{study}/rounds/{round}/updates/{client}"
    assert one(exported, "wardround_requests_total", method="PUT", route=route, status="201") == 2
    assert one(exported, "wardround_request_bytes_total", route=route) == 2 * len(update())
    assert one(exported, "wardround_transaction_seconds_count", transaction="submit-update") == 2
    assert one(exported, "wardround_database_up") == 1
    assert one(exported, "wardround_waiting_requests") == 0
    assert one(exported, "wardround_blob_bytes", kind="models") > 0
    assert one(exported, "wardround_home_free_bytes") > 0
    assert one(exported, "process_resident_memory_bytes") > 0
    assert one(exported, "process_cpu_seconds_total") > 0


@contextmanager
def _opened(home: Path, **settings: object) -> Iterator[tuple[Settings, Coordinator]]:
    chosen = Settings.model_validate({"home": home, **settings})
    prepare(chosen)
    coordinator = open_coordinator(chosen)
    try:
        yield chosen, coordinator
    finally:
        coordinator.database.dispose()


def test_nobody_listens_unless_asked(tmp_path: Path) -> None:
    with _opened(tmp_path) as (settings, coordinator), monitored(settings, coordinator) as port:
        assert port is None
        assert coordinator.observer.idle


def test_a_worker_alone_has_an_endpoint_that_ends_with_it(tmp_path: Path) -> None:
    with _opened(tmp_path, metrics_port=0) as (settings, coordinator):
        with monitored(settings, coordinator) as port:
            assert port is not None
            assert Worker(coordinator).step() is False
            text = read(port)
            assert one(text, "wardround_transaction_seconds_count", transaction="find-due") == 1
            assert "wardround_waiting_requests" not in samples(text)
        with pytest.raises(httpx.ConnectError):
            read(port)


def test_only_this_machine_may_ask_by_default(tmp_path: Path) -> None:
    assert Settings(home=tmp_path).metrics_host == "127.0.0.1"


def test_without_its_database_the_process_says_so_and_the_rest(tmp_path: Path) -> None:
    with _opened(tmp_path, metrics_port=0) as (settings, coordinator), monitored(settings, coordinator) as port:
        coordinator.database.dispose()
        (tmp_path / "wardround.db").rename(tmp_path / "away")
        assert port is not None
        text = read(port)
        assert one(text, "wardround_database_up") == 0
        assert "wardround_rounds_ended" not in samples(text)
        assert one(text, "process_cpu_seconds_total") > 0


@pytest.mark.slow
def test_a_database_that_hangs_costs_a_scrape_two_seconds_and_one_thread(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back, begun, found = threading.Event(), list[str](), Database.read

    def hangs(database: Database, name: str, work: Any) -> Any:
        begun.append(name)
        back.wait(30)
        return found(database, name, work)

    with (
        _opened(tmp_path, metrics_port=0, database_url=database_url) as (settings, coordinator),
        monitored(settings, coordinator) as port,
    ):
        assert port is not None
        monkeypatch.setattr(Database, "read", hangs)
        for number in (1, 2):
            text, seconds = _timed(port)
            assert seconds < 5 * CHECK_SECONDS
            assert one(text, "wardround_database_up") == 0
            assert one(text, "wardround_database_read_failures_total") == number
            assert "wardround_rounds_ended" not in samples(text)
            assert one(text, "process_cpu_seconds_total") > 0
        assert begun == ["measure"]
        back.set()
        text, _ = _timed(port)
        assert one(text, "wardround_database_up") == 1
        assert one(text, "wardround_database_read_failures_total") == 2
        assert one(text, "wardround_rounds_ended", outcome="released") == 0


@pytest.mark.slow
def test_a_stopped_server_of_postgresql_is_told_in_time(tmp_path: Path, postgres: Postgres) -> None:
    name = postgres.create()
    url = postgres.url(name).render_as_string(hide_password=False)
    with (
        _opened(tmp_path, metrics_port=0, database_url=url) as (settings, coordinator),
        monitored(settings, coordinator) as port,
    ):
        assert port is not None
        with postgres.frozen(name):
            text, seconds = _timed(port)
        assert seconds < 5 * CHECK_SECONDS
        assert one(text, "wardround_database_up") == 0
    postgres.drop(name)


@pytest.mark.slow
def test_a_history_that_takes_long_to_count_does_not_make_the_database_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = threading.Event()

    def slow(_: Coordinator) -> Past:
        counted.wait(30)
        return Past({"released": 7}, {}, {}, 5)

    monkeypatch.setattr("server.monitoring.measure_past", slow)
    with _opened(tmp_path, metrics_port=0) as (settings, coordinator), monitored(settings, coordinator) as port:
        assert port is not None
        text, seconds = _timed(port)
        assert seconds < 5 * CHECK_SECONDS
        assert one(text, "wardround_database_up") == 1
        assert "wardround_rounds_ended" not in samples(text)
        counted.set()
        assert one(read(port), "wardround_rounds_ended", outcome="released") == 7


def test_the_history_is_not_counted_at_every_scrape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, found = list[str](), Database.read

    def noted(database: Database, name: str, work: Any) -> Any:
        asked.append(name)
        return found(database, name, work)

    monkeypatch.setattr(Database, "read", noted)
    monkeypatch.setattr("server.monitoring._FRESH_SECONDS", 0.0)
    with _opened(tmp_path, metrics_port=0) as (settings, coordinator), monitored(settings, coordinator) as port:
        assert port is not None
        for _ in range(3):
            read(port)
    assert asked.count("measure") == 3
    assert asked.count("measure-past") == 1


def _timed(port: int) -> tuple[str, float]:
    began = time.monotonic()
    return read(port), time.monotonic() - began


def test_a_taken_port_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            _opened(tmp_path, metrics_port=port) as (settings, coordinator),
            pytest.raises(OSError, match="in use"),
            monitored(settings, coordinator),
        ):
            raise AssertionError("nobody can listen there")


@pytest.mark.slow
def test_those_who_wait_are_counted(tmp_path: Path) -> None:
    port = free_port()
    with live(tmp_path / "home", metrics_port=port) as here:
        who = (here.open_study("ward"), here.enrol("ward", "north"))[1]
        path = "/v1/studies/ward/assignment?wait=20"
        headers = {"Authorization": f"Bearer {here.token(who, 'GET', path)}"}

        async def wait_and_read() -> None:
            async with httpx.AsyncClient(trust_env=False, timeout=30) as http:
                waiting = asyncio.create_task(http.get(here.url + path, headers=headers))
                while one((await http.get(f"http://127.0.0.1:{port}/metrics")).text, "wardround_waiting_requests") < 1:
                    assert not waiting.done()
                waiting.cancel()

        asyncio.run(wait_and_read())
