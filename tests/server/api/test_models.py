"""Models in and out: frozen once, addressed by hash, served whole, in part or not at all."""

from __future__ import annotations

import hashlib

import httpx
import numpy as np
import pytest

from server.db.rows import find_study
from server.db.session import Transaction
from server.db.tables import ModelRow
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.model_file import ModelMetadata
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import settings

BODY = encode(MODEL)
LARGE = "weights-out-of-bounds"
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
        (encode({**MODEL, "weight": np.full(3, np.nextafter(-MAX_WEIGHT, -np.inf, dtype=np.float32))}), LARGE),
    ],
    ids=["empty", "text", "cut short", "integers", "a large number"],
)
def test_a_bad_initial_model_is_refused(here: Live, study: str, body: bytes, code: str) -> None:
    here.open_study(study, model=False)
    answer = here.operator("PUT", f"/v1/studies/{study}/models/0", content=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert here.operator("GET", f"/v1/studies/{study}").json()["model"] is None


def test_an_initial_model_that_says_it_is_another_is_refused(here: Live, study: str) -> None:
    here.open_study(study, model=False)
    true = ModelMetadata.of(study, settings(), 0)
    lies = [
        true.model_copy(update={"study": "flu"}),
        true.model_copy(update={"round": 3}),
        true.model_copy(update={"settings_sha256": "0" * 64}),
        true.model_copy(update={"ledger_entries": 1}),
    ]
    for lie in lies:
        answer = here.operator("PUT", f"/v1/studies/{study}/models/0", content=encode_model(MODEL, lie.header()))
        assert (answer.status_code, answer.json()["code"]) == (422, "wrong-metadata")
    answer = here.operator("PUT", f"/v1/studies/{study}/models/0", content=encode_model(MODEL, true.header()))
    assert answer.status_code == 201


@pytest.mark.parametrize("version", ["1", "999999999"])
def test_no_such_version(here: Live, path: str, version: str) -> None:
    answer = _get(here, path.replace("models/0", f"models/{version}"))
    assert (answer.status_code, answer.json()["code"]) == (404, "unknown-model")


@pytest.mark.parametrize("change", [{"bytes": len(BODY) + 1}, {"sha256": "ab" * 32}], ids=["bytes", "sha256"])
def test_a_file_that_the_ledger_does_not_name_is_not_shown(here: Live, study: str, change: dict[str, object]) -> None:
    here.open_study(study)

    def other(tx: Transaction) -> None:
        row = tx.session.get_one(ModelRow, (find_study(tx, study).id, 0))
        for name, value in change.items():
            setattr(row, name, value)

    here.coordinator.database.write("swap", other)
    assert code_of(_get(here, f"/v1/studies/{study}/models/0")) == (409, "study-finished")
