"""Prometheus' endpoint of one process, on an address of its own: what the process counts, and what the database holds.

A separate listener, so that what monitors the coordinator needs no key, and the API's proxy never shows it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy.pool import QueuePool

from server.config import Settings
from server.services.coordinator import Coordinator
from server.services.measures import Measures, measure

# Whoever asks more often is given the same again.
_FRESH_SECONDS = 5.0


@contextmanager
def monitored(
    settings: Settings, coordinator: Coordinator, waiting: Callable[[], int] | None = None
) -> Generator[int | None]:
    """Answer Prometheus while the process works, and send what is left of the traces at the end.

    waiting: how many requests wait for news in this process, where it answers any.

    Yields:
        The port on which metrics are answered, None where nobody wants them.

    Raises:
        OSError: something else listens there.
    """
    observer = coordinator.observer
    try:
        if settings.metrics_port is None or observer.instruments is None:
            yield None
        else:
            with _listening(settings, coordinator, observer.instruments.registry, waiting) as port:
                yield port
    finally:
        if observer.spans is not None:
            observer.spans.close()


@contextmanager
def _listening(
    settings: Settings, coordinator: Coordinator, registry: CollectorRegistry, waiting: Callable[[], int] | None
) -> Generator[int]:
    collectors = (ProcessState(coordinator, waiting), StoredState(settings, coordinator))
    port = settings.metrics_port or 0
    server, thread = start_http_server(port, settings.metrics_host, registry)
    for collector in collectors:
        registry.register(collector)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for collector in collectors:
            registry.unregister(collector)


class ProcessState:
    """What this process holds now: requests that wait, connections to the database."""

    def __init__(self, coordinator: Coordinator, waiting: Callable[[], int] | None) -> None:
        self._coordinator = coordinator
        self._waiting = waiting

    def collect(self) -> Iterable[Metric]:
        """The gauges, read now."""
        if self._waiting is not None:
            text = "Requests that wait for news of a study."
            yield GaugeMetricFamily("wardround_waiting_requests", text, self._waiting())
        pool = self._coordinator.database.engine.pool
        if isinstance(pool, QueuePool):
            connections = {"in-use": pool.checkedout(), "idle": pool.checkedin()}
            yield _gauges("wardround_database_connections", "Connections to the database.", "state", connections)
            yield GaugeMetricFamily("wardround_database_pool_size", "Connections that are kept open.", pool.size())


class StoredState:
    """What the database and the disk hold, looked up when it is asked for; the same from every process."""

    def __init__(self, settings: Settings, coordinator: Coordinator) -> None:
        self._home = settings.home
        self._coordinator = coordinator
        self._lock = threading.Lock()
        self._found: Measures | None = None
        self._looked_at = 0.0

    def collect(self) -> Iterable[Metric]:
        """The counts; without a database only that there is none."""
        found = self._measures()
        yield GaugeMetricFamily("wardround_database_up", "Whether the database answers.", 0 if found is None else 1)
        if found is not None:
            yield from _stored(found)
        try:
            free = shutil.disk_usage(self._home).free
        except OSError:
            return
        yield GaugeMetricFamily("wardround_home_free_bytes", "Room on the disk of WARDROUND_HOME.", free)

    def _measures(self) -> Measures | None:
        with self._lock:
            if time.monotonic() >= self._looked_at + _FRESH_SECONDS or self._found is None:
                try:
                    self._found = measure(self._coordinator)
                except Exception:  # noqa: BLE001 - whatever stands in the way, the rest must be answered
                    self._found = None
                self._looked_at = time.monotonic()
            return self._found


def _stored(found: Measures) -> Iterable[Metric]:
    yield _gauges("wardround_studies", "Studies by state.", "state", found.studies)
    ended = ("released", "abandoned", "stopped")
    rounds = CounterMetricFamily("wardround_rounds", "Rounds that ended, by outcome.", labels=("outcome",))
    for outcome in ended:
        rounds.add_metric((outcome,), found.rounds.get(outcome, 0))
    yield rounds
    under_way = {state: number for state, number in found.rounds.items() if state not in ended}
    yield _gauges("wardround_rounds_open", "Rounds under way, by state.", "state", under_way)
    yield _gauges("wardround_sessions", "Secure sums by phase.", "phase", found.sessions)
    failures = CounterMetricFamily("wardround_session_failures", "Secure sums without a sum.", labels=("failure",))
    for failure, number in found.failures.items():
        failures.add_metric((failure,), number)
    yield failures
    text = "Since anything happened in a study that runs."
    yield _gauges("wardround_study_idle_seconds", text, "study", found.idle_seconds)
    yield _gauges("wardround_blob_bytes", "Files that the database names, by what they hold.", "kind", found.blob_bytes)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for word, value in values.items():
        family.add_metric((word,), value)
    return family
