"""Prometheus' counters and histograms of one process, in a registry of their own.

A label never holds a hospital's name, an address or a word of a study's privacy. Metrics are copied to systems of other
operators, and kept there.
"""

from __future__ import annotations

import functools
import re
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

# Whole words, as they stand in the templates of addresses and in the names of transactions.
_OF_PRIVACY = re.compile(r"(?<![a-z])(?:budget|cost|delta|epsilon|noised?|norm|privacy|spent)(?![a-z])")
_REQUEST_SECONDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TRANSACTION_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_STEP_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)


@functools.lru_cache(maxsize=1024)
def neutral(name: str) -> str:
    """Return `name` as a label: each word of privacy is replaced by `*`."""
    return _OF_PRIVACY.sub("*", name)


class Instruments:
    """The instruments that count events where they happen. `registry` also holds values that are read on demand."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        labels, transaction, kind = ("method", "route"), ("transaction",), ("kind",)
        self._requests = counter("wardround_requests", "Requests that were answered.", (*labels, "status"))
        self._request_seconds = histogram(
            "wardround_request_seconds",
            "From a request's first byte to its answer's last, including all waits.",
            labels,
            buckets=_REQUEST_SECONDS,
        )
        self._request_bytes = counter("wardround_request_bytes", "Bytes of bodies that came in.", labels)
        self._response_bytes = counter("wardround_response_bytes", "Bytes of bodies that went out.", labels)
        self._transaction_seconds = histogram(
            "wardround_transaction_seconds",
            "Database transactions, from the first attempt to the end of the last.",
            transaction,
            buckets=_TRANSACTION_SECONDS,
        )
        self._retries = counter(
            "wardround_transaction_retries",
            "Times that a transaction was run again because the database asked for it.",
            transaction,
        )
        self._step_seconds = histogram(
            "wardround_worker_step_seconds",
            "Steps that this worker took, successful or not.",
            kind,
            buckets=_STEP_SECONDS,
        )
        self._failures = counter("wardround_worker_step_failures", "Steps that failed and will be tried again.", kind)
        self._looked = Gauge(
            "wardround_worker_look_timestamp_seconds",
            "When a worker of this process last found out what is due, in seconds since the epoch.",
            registry=registry,
        )
        # Finding a child by its labels costs more than counting with it.
        self._request = functools.cache(self._find_request)
        self._answer = functools.cache(lambda *words: self._requests.labels(*words))
        self._transaction = functools.cache(self._find_transaction)

    def answered(
        self, method: str, route: str, status: int, seconds: float, request_bytes: int, response_bytes: int
    ) -> None:
        """Count one request, by the template of its address. The bytes are those of the bodies."""
        duration, into, out_of = self._request(method, route)
        self._answer(method, neutral(route), status).inc()
        duration.observe(seconds)
        if request_bytes:
            into.inc(request_bytes)
        if response_bytes:
            out_of.inc(response_bytes)

    def committed(self, name: str, seconds: float, retries: int) -> None:
        """Count one transaction, however it ended."""
        duration, retry_counter = self._transaction(name)
        duration.observe(seconds)
        if retries:
            retry_counter.inc(retries)

    def stepped(self, kind: str, seconds: float) -> None:
        """Count one step of a worker, however it ended."""
        self._step_seconds.labels(neutral(kind)).observe(seconds)
        # A series that begins at its first failure shows no increase there.
        self._failures.labels(neutral(kind))

    def failed(self, kind: str) -> None:
        """Count a step that will be tried again."""
        self._failures.labels(neutral(kind)).inc()

    def looked(self) -> None:
        """Count a worker's look for due steps."""
        self._looked.set_to_current_time()

    def _find_request(self, method: str, route: str) -> tuple[Histogram, Counter, Counter]:
        words = (method, neutral(route))
        return (
            self._request_seconds.labels(*words),
            self._request_bytes.labels(*words),
            self._response_bytes.labels(*words),
        )

    def _find_transaction(self, name: str) -> tuple[Histogram, Counter]:
        return self._transaction_seconds.labels(neutral(name)), self._retries.labels(neutral(name))
