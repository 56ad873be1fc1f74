"""OpenTelemetry's spans of one process. Imported only where traces are wanted: `wardround[traces]`.

A span holds templates, names of ours and numbers: no address, no client, no header, no body, no text of an exception.
The standard variables `OTEL_…` set the destination of spans and how many are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

_CONTINUED = ("traceparent", "tracestate")


class Spans:
    """One span a request, a transaction, a worker's step. Those of a request hang below the caller's `traceparent`."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("wardround")
        # Without baggage, which would carry what a caller wrote.
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def request(self, method: str, scope: Scope) -> Generator[Callable[[str, int], None]]:
        """Observe one request. The yielded function is told the template of the address and the status at the end."""
        # Headers are bytes in latin-1 by ASGI. In the list of pairs the last of a name counts.
        names = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        carrier = {name: names[name] for name in _CONTINUED if name in names}
        with self._tracer.start_as_current_span(
            method,
            self._propagator.extract(carrier),
            SpanKind.SERVER,
            attributes={"http.request.method": method},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def ended(route: str, status: int) -> None:
                span.update_name(f"{method} {route}")
                span.set_attributes({"http.route": route, "http.response.status_code": status})
                if status >= 500:
                    span.set_status(StatusCode.ERROR)

            yield ended

    @contextmanager
    def transaction(self, name: str) -> Generator[Callable[[int], None]]:
        """Observe one transaction. The yielded function is told at the end how often it was run again."""
        with self._span(f"transaction {name}") as span:
            yield lambda retries: span.set_attribute("wardround.retries", retries)

    @contextmanager
    def step(self, kind: str) -> Generator[None]:
        """Observe one step of a worker."""
        with self._span(f"step {kind}"):
            yield

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()

    @contextmanager
    def _span(self, name: str) -> Generator[Span]:
        with self._tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as span:
            try:
                yield span
            except Exception as error:
                # Its kind alone: the text may quote what a client sent.
                span.set_attribute("error.type", type(error).__name__)
                span.set_status(StatusCode.ERROR)
                raise


def exported_spans() -> Spans:
    """Return spans that go to the collector of `OTEL_EXPORTER_OTLP_ENDPOINT`, in batches, by their own thread."""
    # The variables describe the process, and the machine is not inspected.
    resource = Resource({SERVICE_NAME: "wardround"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Spans(provider)
