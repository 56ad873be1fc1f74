"""Tensors on their way in and out: whole, in part or not at all, and never held whole."""

from __future__ import annotations

import hashlib

import httpx
import numpy as np
import pytest

from study_protocol.wire.tensors import UPDATE, encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live

BODY = encode(MODEL)
ETAG = f'"{hashlib.sha256(BODY).hexdigest()}"'


@pytest.fixture(scope="module")
def path(here: Live) -> str:
    here.open_study("bodies")
    return "/v1/studies/bodies/models/0"


def _get(here: Live, path: str, **headers: str) -> httpx.Response:
    return here.operator("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("tags", [ETAG, f"W/{ETAG}", f'"other", {ETAG}'], ids=["same", "weak", "among others"])
def test_who_has_it_gets_nothing(here: Live, path: str, tags: str) -> None:
    answer = _get(here, path, If_None_Match=tags)
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", ETAG)


def test_who_has_another_gets_it(here: Live, path: str) -> None:
    assert _get(here, path, If_None_Match='"other"').content == BODY


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-7", len(BODY) - 7, None), ("bytes=5-100000", 5, None)],
)
def test_a_range_comes_in_part(here: Live, path: str, wanted: str, start: int, stop: int | None) -> None:
    answer = _get(here, path, Range=wanted)
    assert (answer.status_code, answer.content) == (206, BODY[start:stop])
    assert answer.headers["content-range"] == f"bytes {start}-{(stop or len(BODY)) - 1}/{len(BODY)}"


def test_an_interrupted_download_goes_on_only_with_the_same_model(here: Live, path: str) -> None:
    assert _get(here, path, Range="bytes=10-", If_Range=ETAG).status_code == 206
    assert _get(here, path, Range="bytes=10-", If_Range='"other"').content == BODY


@pytest.mark.parametrize(
    "wanted", [f"bytes={len(BODY)}-", "bytes=-0", "bytes=9-3"], ids=["past the end", "none", "reversed"]
)
def test_a_range_outside_is_refused(here: Live, path: str, wanted: str) -> None:
    answer = _get(here, path, Range=wanted)
    assert (answer.status_code, answer.json()["code"]) == (416, "range-not-satisfiable")
    assert answer.headers["content-range"] == f"bytes */{len(BODY)}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,4-5", "lines=1-2", "bytes=x", "bytes", "bytes=" + "9" * 40 + "-"])
def test_a_range_that_is_not_understood_is_ignored(here: Live, path: str, wanted: str) -> None:
    assert _get(here, path, Range=wanted).content == BODY


def test_a_large_update_streams_through(here: Live, study: str) -> None:
    large = {"weight": np.zeros(1_500_000, np.float32)}
    here.open_study(study, model=False)
    assert here.operator("PUT", f"/v1/studies/{study}/models/0", content=encode(large)).status_code == 201
    hospitals = [here.enrol(study, name) for name in ("north", "south")]
    here.operator("POST", f"/v1/studies/{study}/start")
    here.work()
    body = encode({UPDATE + "weight": np.full(1_500_000, 1e-4, np.float32)})
    answer = here.put_update(hospitals[0], 1, body)
    assert answer.status_code == 201
    assert answer.json()["sha256"] == hashlib.sha256(body).hexdigest()
    again = here.put_update(hospitals[0], 1, body)
    assert again.status_code == 200
