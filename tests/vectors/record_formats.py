"""Write the vectors of the formats: inputs, and what the program makes of them.

    python -m tests.vectors.record_formats          writes tests/vectors/formats.json

A format that is meant to change is recorded anew. Any other change of this file breaks what is out there already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import Entry, append
from study_protocol.queries.kinds import QUESTION
from study_protocol.study.messages import LedgerHead
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.witness import sign_head, to_header
from study_protocol.wire import signing
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import encode

PATH = Path(__file__).with_name("formats.json")
Json = dict[str, Any]

SEED = bytes(range(32))
KEY = Ed25519PrivateKey.from_private_bytes(SEED)
HEAD = {"study": "sepsis-2027", "entries": 17, "sha256": "5e" * 32}
VALUES: list[Any] = [
    {"b": 1, "a": [True, None, "x"], "A": {}},
    {"straße": "日本", "𝒳": 1, "￮": 2, "quote": 'a"b\\c\n\u0001/'},
    [0.1, 1.0, -0.0, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 2.0**-30, 10000000000000000],
    [0, -1, 9007199254740993, 123456789012345678901234567890],
]
CLAIMS: list[Json] = [
    {
        "client": "h1",
        "study": "sepsis-2027",
        "audience": "https://study.example.org",
        "method": "PUT",
        "url": "https://study.example.org/v1/studies/sepsis-2027/rounds/3/updates/h1?a=b",
        "body_sha256": "0f" * 32,
        "now": 1_800_000_000.9,
        "token_id": None,
        "protocol": None,
    },
]
CLAIMS.append(CLAIMS[0] | {"method": "POST", "token_id": "abcdefghij_-0123", "protocol": 2})
ENTRIES: list[tuple[str, int | None, Json]] = [
    ("opened", None, {"study": "sepsis-2027", "plan": {"clip_norm": 1.0, "limits": []}, "members": 0}),
    ("reserved", 1, {"members": 4, "can_continue": True}),
    ("settled", 1, {"report": {"counts": [0, 3, 1]}, "members": 4, "can_continue": True}),
]
TENSORS: dict[str, tuple[str, list[int], list[float]]] = {
    "weight": ("F32", [2, 3], [0.5, -1.25, 3.0, 0.0, -0.0, 1.5e-42]),
    "bias": ("F64", [2], [0.1, -2.5e300]),
    "empty": ("F32", [0, 4], []),
}
METADATA: Json = {
    "study": "sepsis-2027",
    "round": 3,
    "task": "logistic-regression",
    "task_parameters": {"label": "ill", "column.age": "0..100", "column.größe": "0..250"},
    "columns": [{"name": "age", "encoding": "0..100"}, {"name": "größe", "encoding": "0..250"}],
    "settings_sha256": "ab" * 32,
    "ledger_entries": 12,
    "ledger_sha256": "cd" * 32,
}
# Of an earlier version: without the entry `centred`.
MOMENTS: Json = {
    "kind": "moments",
    "title": "",
    "noise_multiplier": 4.0,
    "where": [],
    "rows": "first",
    "numbers": [
        {"column": "age", "low": 0.0, "high": 100.0, "missing_values": []},
        {"column": "größe", "low": 50.0, "high": 250.0, "missing_values": []},
    ],
}
PATIENTS: dict[str, list[float | None]] = {
    "age": [61.0, 75.3, None, 250.0, 0.1],
    "größe": [161.5, None, 182.0, 49.0, 250.0],
}


def arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    types = {"F32": np.float32, "F64": np.float64}
    return {name: np.array(numbers, types[code]).reshape(shape) for name, (code, shape, numbers) in tensors.items()}


def token(seed: str, claims: Json, program: str) -> str:
    with patch.object(signing, "program_version", lambda: program):
        return signing.request_token(_key(seed), **claims)


def entry_hashes(entries: list[Any]) -> list[str]:
    found: list[Entry] = []
    for kind, round_, body in entries:
        found.append(append(found[-1] if found else None, kind, round_, body))
    return [entry.sha256 for entry in found]


def witness(seed: str, client: str, head: Json) -> str:
    return next(iter(to_header(sign_head(_key(seed), client, LedgerHead.model_validate(head))).values()))


def roster(study: str, members: list[list[str]]) -> list[str]:
    found = signing.roster_fingerprint(study, [(name, key) for name, key in members])
    return [found, signing.as_digits(found)]


def key(seed: str) -> list[str]:
    public = _key(seed).public_key()
    return [signing.encode_public_key(public), signing.fingerprint(public)]


def model_header(metadata: Json) -> dict[str, str]:
    return ModelMetadata.model_validate(metadata).header()


def summed(document: Json, columns: Mapping[str, list[float | None]]) -> list[Any]:
    """Digest of the question, the spacing of its grid, and the sum of these patients in grid steps."""
    question = QUESTION.validate_json(json.dumps(document))
    patients = {name: np.array(values, np.float64) for name, values in columns.items()}
    spacing = question.grid().spacing
    return [question.digest(), spacing, question.total(patients, spacing).tolist()]


# By format: from its inputs, as they stand in the file, to what they give.
PROGRAM: Mapping[str, Callable[..., Any]] = {
    "canonical-json": lambda value: signing.canonical_json(value).decode(),
    "key": key,
    "signed-document": lambda seed, label, document: signing.sign_document(_key(seed), label, document),
    "request-token": token,
    "witness-header": witness,
    "roster": roster,
    "ledger-entries": entry_hashes,
    "model-header": model_header,
    "tensors": lambda tensors: signing.to_base64url(encode(arrays(tensors))),
    "moments": summed,
    "model-file": lambda tensors, texts: signing.to_base64url(encode_model(arrays(tensors), texts)),
}


def _key(seed: str) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def inputs() -> list[tuple[str, list[Any]]]:
    seed, other = SEED.hex(), (b"\xff" * 32).hex()
    members = [["h2", key(other)[0]], ["h10", key(seed)[0]]]
    labels = (signing.LEDGER_HEAD, signing.ASSIGNMENT, signing.CERTIFICATE)
    return [
        *[("canonical-json", [value]) for value in VALUES],
        *[("key", [one]) for one in (seed, other)],
        *[("signed-document", [seed, label, HEAD]) for label in labels],
        ("signed-document", [other, signing.ENROLMENT, {"größe": 0.1, "a": [None, -0.0]}]),
        *[("request-token", [seed, claims, "1.2.3"]) for claims in CLAIMS],
        ("witness-header", [seed, "h1", HEAD]),
        ("roster", ["sepsis-2027", members]),
        ("roster", ["empty", []]),
        ("ledger-entries", [ENTRIES]),
        ("model-header", [METADATA]),
        ("tensors", [TENSORS]),
        ("model-file", [TENSORS, model_header(METADATA)]),
        ("moments", [MOMENTS, PATIENTS]),
        ("moments", [MOMENTS | {"centred": True}, PATIENTS]),
    ]


def record() -> None:
    vectors = [{"format": name, "inputs": given, "gives": PROGRAM[name](*given)} for name, given in inputs()]
    lines = ",\n".join(json.dumps(vector, ensure_ascii=False) for vector in vectors)
    PATH.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    record()
