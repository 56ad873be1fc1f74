"""Models in and out: frozen once, addressed by hash, served whole, in part or not at all."""

from __future__ import annotations

import hashlib

import httpx
import numpy as np
import pytest

from client_sdk.protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live

BODY = encode(MODEL)
ETAG = f'"{hashlib.sha256(BODY).hexdigest()}"'


@pytest.fixture(scope="module")
def path(here: Live) -> str:
    here.open_study("models")
    return "/v1/studies/models/models/0"


def _get(here: Live, path: str, **headers: str) -> httpx.Response:
    return here.operator("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("version", ["0", "latest"])
def test_a_model_comes_whole_with_its_hash(here: Live, path: str, version: str) -> None:
    answer = _get(here, path.replace("models/0", f"models/{version}"))
    assert answer.content == BODY
    assert answer.headers["etag"] == ETAG
    assert answer.headers["x-model-version"] == "0"
    assert answer.headers["content-length"] == str(len(BODY))
    assert answer.headers["accept-ranges"] == "bytes"


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


def test_the_initial_model_freezes(here: Live, path: str) -> None:
    again = here.operator("PUT", path, content=BODY)
    assert again.status_code == 200
    other = here.operator("PUT", path, content=encode({"weight": np.ones(2, np.float32)}))
    assert (other.status_code, other.json()["code"]) == (409, "frozen")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "malformed-tensors"),
        (b"not tensors", "malformed-tensors"),
        (BODY[:-1], "malformed-tensors"),
        (encode(MODEL).replace(b"F32", b"I32"), "wrong-dtype"),
    ],
    ids=["empty", "text", "cut short", "integers"],
)
def test_a_bad_initial_model_is_refused(here: Live, study: str, body: bytes, code: str) -> None:
    here.open_study(study, model=False)
    answer = here.operator("PUT", f"/v1/studies/{study}/models/0", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert here.operator("GET", f"/v1/studies/{study}").json()["model"] is None


@pytest.mark.parametrize("version", ["1", "999999999"])
def test_no_such_version(here: Live, path: str, version: str) -> None:
    answer = _get(here, path.replace("models/0", f"models/{version}"))
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-model")


def test_metrics_stand_beside_a_model(here: Live, path: str) -> None:
    metrics = {"evaluation_set": "held-out wards", "values": {"accuracy": 0.9}}
    for status in (201, 200):
        answer = here.operator("PUT", f"{path}/metrics", json=metrics)
        assert (answer.status_code, answer.json()) == (status, metrics)
    missing = here.operator("PUT", path.replace("models/0", "models/9") + "/metrics", json=metrics)
    assert (missing.status_code, missing.json()["code"]) == (404, "unknown-model")
    for value in ("NaN", "Infinity"):
        text = '{"evaluation_set": "a", "values": {"accuracy": X}}'.replace("X", value)
        answer = here.operator("PUT", f"{path}/metrics", content=text, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
