"""The event stream: everything so far, then what comes, in order and without gaps."""

from __future__ import annotations

import json
import threading

import httpx
import pytest

from tests.factories.live_coordinator import Live


def _events(answer: httpx.Response) -> list[dict[str, object]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def test_what_happened_is_told_in_order(here: Live, study: str) -> None:
    here.open_study(study)
    for name in ("north", "south"):
        here.enrol(study, name)
    here.operator("POST", f"/v1/studies/{study}/start")
    events = _events(here.operator("GET", f"/v1/studies/{study}/events?wait=0"))
    assert [event["id"] for event in events] == list(range(1, len(events) + 1))
    assert all(event["study"] == study for event in events)


def test_a_reader_goes_on_where_it_stopped(here: Live, study: str) -> None:
    here.open_study(study)
    path = f"/v1/studies/{study}/events?wait=0"
    everything = _events(here.operator("GET", path))
    assert _events(here.operator("GET", path, headers={"Last-Event-ID": "1"})) == everything[1:]
    assert _events(here.operator("GET", f"{path}&after=1")) == everything[1:]
    bad = here.operator("GET", path, headers={"Last-Event-ID": "x"})
    assert (bad.status_code, bad.json()["code"]) == (422, "invalid-request")


def test_news_arrive_while_the_stream_is_open(here: Live, study: str) -> None:
    here.open_study(study)
    for name in ("north", "south"):
        here.enrol(study, name)
    last = len(_events(here.operator("GET", f"/v1/studies/{study}/events?wait=0")))
    starting = threading.Timer(0.2, here.operator, ["POST", f"/v1/studies/{study}/start"])
    starting.start()
    answer = here.operator("GET", f"/v1/studies/{study}/events?wait=2&after={last}")
    starting.join()
    assert [event["kind"] for event in _events(answer)][:1] == ["study-running"]


def test_a_silent_stream_says_that_it_is_still_there(here: Live, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies close a connection on which nothing comes."""
    monkeypatch.setattr("server.api.events.KEEP_ALIVE_SECONDS", 0.1)
    here.open_study(study)
    newest = len(_events(here.operator("GET", f"/v1/studies/{study}/events?wait=0")))
    answer = here.operator("GET", f"/v1/studies/{study}/events?wait=0.5&after={newest}")
    assert _events(answer) == []
    assert answer.text.count(": still here\n\n") >= 2
