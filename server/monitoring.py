"""Prometheus' endpoint of one process, on an address of its own: what the process counts, and what the database holds.

A separate listener, so that what monitors the coordinator needs no key, and the API's proxy never shows it.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Generic, TypeVar, get_args

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy.pool import QueuePool

from server.config import Settings
from server.domain.secure_sum_session import Failure
from server.services.coordinator import Coordinator
from server.services.measures import Measures, Past, measure, measure_past
from server.services.readiness import CHECK_SECONDS, Single

T = TypeVar("T")
# More frequent questions get the same reading again.
_FRESH_SECONDS = 5.0
# Of what has ended, whose whole history is counted.
_PAST_FRESH_SECONDS = 60.0


@contextmanager
def monitored(
    settings: Settings, coordinator: Coordinator, waiting: Callable[[], int] | None = None
) -> Generator[int | None]:
    """Answer Prometheus while the process works, and send the rest of the traces at the end.

    waiting: how many requests wait for news in this process, where it answers any.

    Yields:
        The port on which metrics are answered, None where metrics are off.

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
    """The current load of this process: requests that wait, connections to the database."""

    def __init__(self, coordinator: Coordinator, waiting: Callable[[], int] | None) -> None:
        self._coordinator = coordinator
        self._waiting = waiting

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges, read now."""
        if self._waiting is not None:
            text = "Requests that wait for news of a study."
            yield GaugeMetricFamily("wardround_waiting_requests", text, self._waiting())
        pool = self._coordinator.database.engine.pool
        if isinstance(pool, QueuePool):
            connections = {"in-use": pool.checkedout(), "idle": pool.checkedin()}
            yield _gauges("wardround_database_connections", "Connections to the database.", "state", connections)
            yield GaugeMetricFamily("wardround_database_pool_size", "Connections that are kept open.", pool.size())


class CachedReading(Generic[T]):
    """The last reading of the database. It is read again after `seconds`, by one thread at a time."""

    def __init__(self, name: str, look: Callable[[], T], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._reading = Single(name, self._read)
        self._newest: tuple[float, T] | None = None

    def fresh(self, wait_seconds: float) -> T:
        """Return a reading of the last `seconds`. Raises TimeoutError, and errors of the look."""
        reading = self._newest
        if reading is None or time.monotonic() >= reading[0] + self._seconds:
            reading = self._reading.ask().result(max(0.0, wait_seconds))
        return reading[1]

    def newest(self, wait_seconds: float) -> T | None:
        """Return as `fresh`. If that fails, the reading before, if there is one."""
        try:
            return self.fresh(wait_seconds)
        except Exception:  # noqa: BLE001 - whatever stands in the way, the rest must be answered
            return None if self._newest is None else self._newest[1]

    def _read(self) -> tuple[float, T]:
        value = self._look()
        self._newest = time.monotonic(), value
        return self._newest


class StoredState:
    """The contents of the database and the disk, read on demand. They are the same from every process.

    A database that is away or hangs does not hold up the rest: it is waited for as long as a readiness check is.
    """

    def __init__(self, settings: Settings, coordinator: Coordinator) -> None:
        self._home = settings.home
        self._now = CachedReading("measure", lambda: measure(coordinator), _FRESH_SECONDS)
        self._past = CachedReading("measure-past", lambda: measure_past(coordinator), _PAST_FRESH_SECONDS)
        self._lock = threading.Lock()
        self._failures = 0

    def collect(self) -> Iterable[Metric]:
        """Yield the numbers. Without a database only its absence."""
        until = time.monotonic() + CHECK_SECONDS
        measures = self._measures()
        text = "Whether the database's numbers could be read just now, within two seconds."
        yield GaugeMetricFamily("wardround_database_up", text, 0 if measures is None else 1)
        text = "Times that the database's numbers could not be read for a request for metrics."
        yield CounterMetricFamily("wardround_database_read_failures", text, self._failures)
        if measures is not None:
            # A long history may take longer, and a reading of a minute ago serves as well.
            yield from _stored(measures, self._past.newest(until - time.monotonic()))
        try:
            free = shutil.disk_usage(self._home).free
        except OSError:
            return
        yield GaugeMetricFamily("wardround_home_free_bytes", "Room on the disk of WARDROUND_HOME.", free)

    def _measures(self) -> Measures | None:
        try:
            return self._now.fresh(CHECK_SECONDS)
        except Exception:  # noqa: BLE001 - whatever stands in the way, the rest must be answered
            with self._lock:
                self._failures += 1
            return None


def _stored(measures: Measures, past: Past | None) -> Iterable[Metric]:
    # Gauges, even for numbers that only grow: a database that is put back to a backup has fewer. A counter that falls
    # counts as one that began anew.
    yield _gauges("wardround_studies", "Studies by state.", "state", measures.studies)
    yield _gauges("wardround_rounds_open", "Rounds under way, by state.", "state", measures.rounds)
    sessions = {**(past.sessions if past else {}), **measures.sessions}
    yield _gauges("wardround_sessions", "Secure sums by phase.", "phase", sessions)
    text = "Since anything happened in a study that runs."
    yield _gauges("wardround_study_idle_seconds", text, "study", measures.idle_seconds)
    bytes_by_kind = {"updates": measures.updates} | ({"models": past.models} if past else {})
    yield _gauges("wardround_blob_bytes", "Files that the database names, by what they hold.", "kind", bytes_by_kind)
    if past is not None:
        # A series that begins with its first one shows no difference there.
        ended = {outcome: past.rounds.get(outcome, 0) for outcome in ("released", "abandoned", "stopped")}
        yield _gauges("wardround_rounds_ended", "Rounds that ended, by outcome.", "outcome", ended)
        failures = dict.fromkeys(get_args(Failure), 0) | dict(past.failures)
        yield _gauges("wardround_sessions_failed", "Secure sums without a sum, by reason.", "failure", failures)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for word, value in values.items():
        family.add_metric((word,), value)
    return family
