"""A request is told by the template of its address; nothing that a caller made up becomes a label."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from server.observation.instruments import Instruments
from server.observation.observer import ProcessObserver
from server.observation.requests import ObservedRequests


async def _reads_and_answers(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    scope["route"] = SimpleNamespace(path="/v1/studies/{study}")
    await send({"type": "http.response.start", "status": 201})
    await send({"type": "http.response.body", "body": b"12345", "more_body": True})
    await send({"type": "http.response.body"})


async def _breaks(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError


def _ask(app: Any, method: str = "PUT", kind: str = "http") -> Instruments:
    instruments = Instruments()
    parts = [b"123", b"4567"]

    async def receive() -> Message:
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(_: Message) -> None:
        return None

    scope = {"type": kind, "method": method, "path": "/v1/studies/sepsis", "headers": []}
    asyncio.run(ObservedRequests(app, ProcessObserver(instruments))(scope, receive, send))
    return instruments


def _labels(instruments: Instruments) -> list[dict[str, str]]:
    samples = [sample for metric in instruments.registry.collect() for sample in metric.samples]
    return [sample.labels for sample in samples if sample.name == "wardround_requests_total"]


def test_bytes_both_ways_and_the_status_are_counted_by_template() -> None:
    found = _ask(_reads_and_answers)
    labels = {"method": "PUT", "route": "/v1/studies/{study}"}
    assert _labels(found) == [{**labels, "status": "201"}]
    assert found.registry.get_sample_value("wardround_request_bytes_total", labels) == 7
    assert found.registry.get_sample_value("wardround_response_bytes_total", labels) == 5


def test_a_method_that_is_made_up_is_not_repeated() -> None:
    assert _labels(_ask(_reads_and_answers, "NORTH"))[0]["method"] == "_OTHER"


def test_what_ends_without_an_answer_has_failed() -> None:
    instruments = Instruments()
    observed = ObservedRequests(_breaks, ProcessObserver(instruments))

    async def nothing(*_: Any) -> Any:
        return {}

    with pytest.raises(RuntimeError):
        asyncio.run(observed({"type": "http", "method": "GET", "headers": []}, nothing, nothing))
    assert _labels(instruments) == [{"method": "GET", "route": "unknown", "status": "500"}]


def test_what_is_no_request_is_let_through() -> None:
    assert _labels(_ask(_reads_and_answers, kind="lifespan")) == []
