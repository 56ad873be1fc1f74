"""Answers as the coordinator writes them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import httpx

from study_protocol.study.messages import RoundClient, RoundView
from study_protocol.versions import PROTOCOL, PROTOCOL_HEADER, STUDY_PROTOCOL_HEADER


def reply(message: Any, status: int = 200) -> httpx.Response:
    spoken = dict.fromkeys((PROTOCOL_HEADER, STUDY_PROTOCOL_HEADER), str(PROTOCOL))
    headers = {"X-Request-Id": "r-1"} | spoken
    return httpx.Response(status, json=json.loads(message.model_dump_json()), headers=headers)


def problem(status: int, code: str, headers: dict[str, str] | None = None, **members: Any) -> httpx.Response:
    body = {"type": f"urn:wardround:problem:{code}", "title": code, "status": status, "code": code}
    body |= {"detail": f"{code}: do something about it", "request_id": "r-1", **members}
    kind = {"Content-Type": "application/problem+json", "X-Request-Id": "r-1"}
    return httpx.Response(status, content=json.dumps(body).encode(), headers=kind | (headers or {}))


def round_view(number: int, client: str, received: bool) -> RoundView:
    """A released round as `client` sees it: its own part alone."""
    own = [RoundClient(client=client, state="received", sha256=None, refusal=None)] if received else []
    return RoundView(
        round=number,
        state="released",
        model_version=number,
        started_at=datetime.now(UTC),
        deadline=None,
        ended_at=None,
        reason=None,
        metrics=None,
        spent=None,
        clients=own,
    )
