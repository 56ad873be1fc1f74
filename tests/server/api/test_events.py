"""The event stream: everything so far, then what comes, in order and without gaps."""

from __future__ import annotations

import json
import threading

import httpx
import pytest
from sqlalchemy import text

from server.services.people.keys import create_key
from study_protocol.study.people import ApiKeyCreate
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


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_a_key_that_ends_ends_its_stream(here: Live, study: str, end: str) -> None:
    """It gets no event that happened after its end."""
    here.open_study(study)
    made = create_key(here.coordinator, ApiKeyCreate(role="viewer", study=study, name="Ada"))
    lines: list[str] = []
    began = threading.Event()

    def read() -> None:
        headers = {"Authorization": f"Bearer {made.key}"}
        path = f"{here.url}/v1/studies/{study}/events?wait=300"
        with httpx.stream("GET", path, headers=headers, timeout=60, trust_env=False) as answer:
            for line in answer.iter_lines():
                lines.append(line)
                began.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert began.wait(30)
    if end == "revoked":
        here.operator("DELETE", f"/v1/api-keys/{made.id}")
    else:
        past = text("UPDATE api_keys SET created_at = 1, expires_at = 2 WHERE id = :id")
        here.coordinator.database.write("expire", lambda tx: tx.session.execute(past, {"id": made.id}))
    here.enrol(study, "late")
    reader.join(30)
    assert not reader.is_alive()
    assert not any("late" in line or "enrolled" in line for line in lines)
