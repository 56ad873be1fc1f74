"""Spans of a real study: templates and names of ours, below the caller's own trace, and never a client or a text."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from server.app import create_app
from server.config import Settings
from server.coordinator import open_coordinator, prepare
from server.db.session import Database
from server.observation.observer import ProcessObserver
from server.observation.spans import Spans
from server.services.coordinator import Coordinator
from server.worker import Worker
from tests.factories.hospital_double import Hospital, UseCases, update
from tests.factories.studies import open_study

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(provider)


@pytest.fixture
def observed(tmp_path: Path, spans: Spans) -> Iterator[Coordinator]:
    settings = Settings(home=tmp_path)
    prepare(settings)
    observer = ProcessObserver(spans=spans)
    plain = open_coordinator(settings)
    plain.database.dispose()
    coordinator = replace(plain, database=Database(settings.database(), observer=observer), observer=observer)
    yield coordinator
    coordinator.database.dispose()


async def _ask(coordinator: Coordinator, *addresses: str, headers: dict[str, str] | None = None) -> None:
    app = create_app(Settings(worker=False), coordinator=coordinator)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://here", headers=headers) as http:
        for address in addresses:
            await http.get(address)


def _named(exporter: InMemorySpanExporter, start: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name.startswith(start)]


def _all_text(exporter: InMemorySpanExporter) -> str:
    return json.dumps([json.loads(span.to_json()) for span in exporter.get_finished_spans()])


@pytest.mark.anyio
async def test_a_request_continues_its_caller_s_trace(observed: Coordinator, exporter: InMemorySpanExporter) -> None:
    await _ask(observed, "/readyz", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    (request,) = _named(exporter, "GET /readyz")
    (transaction,) = _named(exporter, "transaction readiness")
    assert request.parent is not None
    assert request.context is not None
    assert transaction.parent is not None
    assert (f"{request.parent.trace_id:032x}", f"{request.parent.span_id:016x}") == (TRACE, PARENT)
    assert transaction.parent.span_id == request.context.span_id
    assert dict(request.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/readyz",
        "http.response.status_code": 200,
    }
    assert dict(transaction.attributes or {}) == {"wardround.retries": 0}


@pytest.mark.anyio
async def test_no_span_holds_who_asked_or_for_what(observed: Coordinator, exporter: InMemorySpanExporter) -> None:
    open_study(observed, "sepsis")
    addresses = ("/v1/studies/sepsis/rounds/1/updates/h0?secret=1", "/v1/studies/sepsis/rounds/h0", "/nowhere/h0")
    await _ask(observed, *addresses, headers={"authorization": "Bearer wrk_a_b", "baggage": "who=h0"})
    assert [span.name for span in _named(exporter, "GET")] == [
        "GET /v1/studies/{study}/rounds/{round}/updates/{client}",
        "GET /v1/studies/{study}/rounds/{round}",
        "GET unknown",
    ]
    told = _all_text(exporter)
    assert all(word not in told for word in ("h0", "sepsis", "wrk_", "secret", "testclient", "127.0.0.1"))


def test_a_worker_s_steps_hold_their_transactions(observed: Coordinator, exporter: InMemorySpanExporter) -> None:
    hospitals = open_study(observed, clients=2)
    worker = Worker(observed)
    worker.step()
    for hospital in hospitals:
        Hospital(UseCases(observed), "sepsis", hospital.name, hospital.key).send(1, update())
    while worker.step():
        pass
    assert {"step open", "step close", "step release", "step scrub"} <= {s.name for s in _named(exporter, "step")}
    (step, *_) = _named(exporter, "step release")
    assert step.context is not None
    below = [s.name for s in exporter.get_finished_spans() if s.parent and s.parent.span_id == step.context.span_id]
    assert "transaction worker-release" in below


def test_what_goes_wrong_is_named_by_its_kind_alone(spans: Spans, exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError), spans.transaction("show-study"):
        raise ValueError("patient 4711")
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes or {}) == {"error.type": "ValueError"}
    assert span.status.status_code is StatusCode.ERROR
    assert span.events == ()
    assert "4711" not in _all_text(exporter)


def test_a_server_error_marks_its_request(spans: Spans, exporter: InMemorySpanExporter) -> None:
    for status in (499, 500):
        with spans.request("GET", {"type": "http", "headers": []}) as ended:
            ended("/livez", status)
    assert [s.status.status_code for s in exporter.get_finished_spans()] == [StatusCode.UNSET, StatusCode.ERROR]


@pytest.mark.slow
def test_spans_go_to_the_collector_that_the_standard_variables_name(tmp_path: Path) -> None:
    """A process of its own, whose spans arrive when it ends."""
    arrived: list[tuple[str, bytes]] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            arrived.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        program = (
            "from pathlib import Path\nfrom server.config import Settings\nfrom server.coordinator import *\n"
            "from server.monitoring import monitored\n"
            f"settings = Settings(home=Path({str(tmp_path)!r}), traces=True)\nprepare(settings)\n"
            "coordinator = open_coordinator(settings)\n"
            "with monitored(settings, coordinator):\n"
            "    coordinator.database.read('readiness', lambda tx: tx.now())\n"
            "coordinator.database.dispose()\n"
        )
        chosen = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_SERVICE_NAME": "ward-seven", "NO_PROXY": "*"}
        subprocess.run([sys.executable, "-c", program], env={**os.environ, **chosen}, check=True)
        server.shutdown()
    assert {path for path, _ in arrived} == {"/v1/traces"}
    told = b"".join(body for _, body in arrived)
    assert b"transaction readiness" in told
    assert b"ward-seven" in told


@pytest.mark.slow
def test_nothing_of_it_is_imported_unless_asked(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom server.config import Settings\nfrom server.coordinator import *\n"
        "from server.app import create_app\n"
        f"settings = Settings(home=Path({str(tmp_path)!r}))\nprepare(settings)\n"
        "app = create_app(settings)\n"
        "print([name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.anyio
async def test_the_framework_s_own_telemetry_stays_off(
    observed: Coordinator, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its spans would hold whole addresses with hospitals' names."""
    monkeypatch.setenv("FASTAPI_OTEL_AUTO_CONFIGURE", "true")
    everywhere = TracerProvider(shutdown_on_exit=False)
    everywhere.add_span_processor(SimpleSpanProcessor(exporter))
    # What any package of the installation may do: a provider for the whole process.
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: everywhere)
    plain = replace(observed, observer=ProcessObserver())
    await _ask(plain, "/v1/studies/sepsis/rounds/1/updates/h0")
    assert [span.name for span in exporter.get_finished_spans() if not span.name.startswith("transaction")] == []


def test_traces_without_their_packages_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from server.config import SettingsError

    monkeypatch.setitem(sys.modules, "server.observation.spans", None)
    with pytest.raises(SettingsError, match=r"wardround\[traces\]"):
        open_coordinator(Settings(home=tmp_path, traces=True))


def test_the_last_header_of_a_name_counts(spans: Spans, exporter: InMemorySpanExporter) -> None:
    parents = [(b"traceparent", f"00-{TRACE}-{span}-01".encode()) for span in ("a" * 16, PARENT)]
    with spans.request("GET", {"type": "http", "headers": parents}) as ended:
        ended("/livez", 200)
    parent = exporter.get_finished_spans()[0].parent
    assert parent is not None
    assert f"{parent.span_id:016x}" == PARENT
