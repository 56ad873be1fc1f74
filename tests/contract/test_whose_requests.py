"""Every operation lets in whom its description names, and nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from study_protocol.secure_sum.messages import MANIFEST_HEADER
from tests.contract.test_openapi import _document, _operations
from tests.factories.live_coordinator import Live, live

_PARTS = {"client": "north", "round": "1", "version": "0", "query": "1", "key": "0" * 16, "name": "auditor"}
_PARTS["session"] = "0" * 16


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.0, event_stream_seconds=0.0) as coordinator:
        yield coordinator


def _refused(answer: httpx.Response) -> bool:
    """Whether it is not for whoever asked; what else is wrong with the request is another matter."""
    problem: dict[str, Any] = answer.json() if "problem" in answer.headers.get("content-type", "") else {}
    return problem.get("code") in ("forbidden", "bad-token")


@pytest.mark.parametrize(("path", "method", "operation"), _operations(), ids=[name for _, _, name in _operations()])
def test_an_operation_lets_in_whom_it_names(here: Live, path: str, method: str, operation: str) -> None:
    # What is asked for in it may end it.
    study, verb = operation.replace("_", "-"), method.upper()
    here.open_study(study, model=False)
    north = here.enrol(study, "north")
    address = path.format(study=study, **_PARTS)
    more = {"Content-Type": "application/json", MANIFEST_HEADER: "e30"}
    described = _document()["paths"][path][method]
    named = {name for one in described.get("security", []) for name in one}

    anybody = here.send(verb, address, headers=more, content=b"")
    assert _refused(anybody) is ("security" in described)
    if "security" not in described:
        return
    viewer = here.send(verb, address, here.viewer_key, headers=more, content=b"")
    assert _refused(viewer) or "key" in named
    signed = here.signed(north, verb, address, more=more, token_id="0" * 12 + f"{len(study):04}")
    assert _refused(signed) is ("client" not in named)
    assert _refused(here.send(verb, address, here.operator_key, headers=more, content=b"")) is ("key" not in named)
