"""Wire, ledger and certificate as bytes: the program gives its vectors, and so does a second reader.

A vector that the program no longer gives is a change of the wire: it breaks ledgers, tokens and files that are out
there.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from study_protocol.study.certificate import SignedCertificate
from study_protocol.wire.signing import (
    CERTIFICATE,
    SigningError,
    canonical_json,
    claimed_identity,
    decode_public_key,
    verify_document,
    verify_request_token,
)
from study_protocol.wire.tensors import decode, spec_of
from tests.vectors import record, record_formats
from tests.vectors import second_formats as second
from tests.vectors.test_second_reader import numbers_in

VECTORS = json.loads(record_formats.PATH.read_text())
LIFETIME = 60
Json = dict[str, Any]


def _token(seed: str, claims: Json, program: str) -> str:
    names = {"client": "iss", "study": "sub", "audience": "aud", "method": "htm", "url": "htu", "body_sha256": "bh"}
    said = {short: claims[name] for name, short in names.items()}
    now = int(claims["now"])
    said |= {"iat": now, "exp": now + LIFETIME}
    said |= {} if claims["token_id"] is None else {"jti": claims["token_id"]}
    said |= {} if claims["protocol"] is None else {"pro": claims["protocol"], "ver": program}
    return second.request_token(bytes.fromhex(seed), said)


def _entries(entries: list[Any]) -> list[str]:
    previous, found = "0" * 64, list[str]()
    for sequence, (kind, round_, body) in enumerate(entries, start=1):
        entry = {"sequence": sequence, "kind": kind, "round": round_, "body": body, "previous": previous}
        found.append(previous := second.entry_hash(entry))
    return found


def _roster(study: str, members: list[Any]) -> list[str]:
    found = second.roster_fingerprint(study, [(name, key) for name, key in members])
    return [found, second.roster_number(found)]


def _model_header(metadata: Json) -> dict[str, str]:
    texts = ("study", "task", "settings_sha256", "ledger_sha256")
    written = {name: value if name in texts else second.canonical(value).decode() for name, value in metadata.items()}
    return {"wardround": "1", **written}


def _file(tensors: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> str:
    # Wider types first, then by name.
    ordered = sorted(tensors.items(), key=lambda item: (item[1][0] != "F64", item[0]))
    return second.to_text(second.tensors_body(dict(ordered), None if texts is None else dict(sorted(texts.items()))))


def _key(seed: str) -> list[str]:
    key = second.public_key(bytes.fromhex(seed))
    return [key, second.key_fingerprint(key)]


SECOND: Mapping[str, Callable[..., Any]] = {
    "canonical-json": lambda value: second.canonical(value).decode(),
    "key": _key,
    "signed-document": lambda seed, label, document: second.sign_document(bytes.fromhex(seed), label, document),
    "request-token": _token,
    "witness-header": lambda seed, client, head: second.witness_header(bytes.fromhex(seed), client, head),
    "roster": _roster,
    "ledger-entries": _entries,
    "model-header": _model_header,
    "tensors": _file,
    "model-file": _file,
    "moments": second.moments,
}
each_vector = pytest.mark.parametrize(
    "vector", VECTORS, ids=[f"{vector['format']}-{place}" for place, vector in enumerate(VECTORS)]
)


@each_vector
def test_the_program_gives_the_vector(vector: Json) -> None:
    assert record_formats.PROGRAM[vector["format"]](*vector["inputs"]) == vector["gives"]


@each_vector
def test_a_reader_without_the_program_gives_the_vector(vector: Json) -> None:
    assert SECOND[vector["format"]](*vector["inputs"]) == vector["gives"]


def test_every_format_has_a_vector() -> None:
    assert {vector["format"] for vector in VECTORS} == set(record_formats.PROGRAM) == set(SECOND)


def test_either_reads_the_tensors_that_the_other_writes() -> None:
    (vector,) = [vector for vector in VECTORS if vector["format"] == "tensors"]
    arrays = record_formats.arrays(vector["inputs"][0])
    found, texts = second.read_tensors(second.from_text(vector["gives"]))
    assert texts == {}
    assert set(found) == set(arrays)
    for name, (_, shape, numbers) in found.items():
        assert arrays[name].shape == tuple(shape)
        assert arrays[name].reshape(-1).tolist() == numbers
    # In another order than the program writes.
    written = second.tensors_body(vector["inputs"][0], None)
    assert {name: array.tolist() for name, array in decode(written, spec_of(arrays)).items()} == {
        name: array.tolist() for name, array in arrays.items()
    }


def test_the_program_takes_the_tokens_that_the_reader_makes() -> None:
    for vector in VECTORS:
        if vector["format"] == "request-token":
            seed, claims, _ = vector["inputs"]
            token = SECOND["request-token"](*vector["inputs"])
            assert claimed_identity(token) == (claims["client"], claims["study"])
            places = {"audience": claims["audience"], "method": claims["method"], "url": claims["url"]}
            key = decode_public_key(_key(seed)[0])
            found = verify_request_token(token, key, **places, now=claims["now"])
            assert (found.body_sha256, found.token_id) == (claims["body_sha256"], claims["token_id"])


# -- Ed25519 of the reader


# RFC 8032, section 7.1, TEST 1 to 3: seed, key, message, signature.
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.quick("3")
@pytest.mark.parametrize(("seed", "key", "message", "signature"), RFC_8032, ids=["1", "2", "3"])
def test_the_readers_signatures_are_those_of_rfc_8032(seed: str, key: str, message: str, signature: str) -> None:
    text, signed = second.public_key(bytes.fromhex(seed)), bytes.fromhex(signature)
    assert second.from_text(text).hex() == key
    assert second.sign(bytes.fromhex(seed), bytes.fromhex(message)) == signed
    assert second.is_signed(text, bytes.fromhex(message), signed)
    for place in range(64):
        other = bytearray(signed)
        other[place] ^= 1
        assert not second.is_signed(text, bytes.fromhex(message), bytes(other))
    assert not second.is_signed(text, bytes.fromhex(message) + b"\0", signed)


# -- one certificate with its key


CERTIFICATE_TEXT = (record.FOLDER / "parallel-finished.certificate.json").read_text()


def test_the_program_and_the_reader_verify_the_certificate() -> None:
    told = json.loads(CERTIFICATE_TEXT)
    document, key = told["certificate"], second.public_key(record.SEED)
    assert document["coordinator_key"] == key
    assert document["coordinator_fingerprint"] == second.key_fingerprint(key)
    assert second.is_document_signed(key, "wardround/1/certificate", document, told["signature"])
    assert second.sign_document(record.SEED, "wardround/1/certificate", document) == told["signature"]
    # As the program reads and writes it: nothing is lost on the way.
    read = SignedCertificate.model_validate_json(CERTIFICATE_TEXT)
    verify_document(decode_public_key(key), CERTIFICATE, read.certificate.model_dump(mode="json"), read.signature)
    assert canonical_json(read.certificate.model_dump(mode="json")) == second.canonical(document)


def test_the_certificate_is_that_of_its_recorded_ledger() -> None:
    """The signed head in it is the ledger's, and each ε is the one that the statement has and the reader computes."""
    document = json.loads(CERTIFICATE_TEXT)["certificate"]
    lines = [json.loads(line) for line in (record.FOLDER / "parallel-finished.jsonl").read_text().splitlines()]
    statement = json.loads((record.FOLDER / "parallel-finished.statement.json").read_text())
    head = lines[-1]["head"]["head"]
    assert (document["ledger"]["entries"], document["ledger"]["sha256"]) == (head["entries"], head["sha256"])
    signed = document["ledger"]["signature"]
    assert second.is_document_signed(document["coordinator_key"], "wardround/1/ledger-head", head, signed)
    assert document["settings_sha256"] == second.digest(lines[0]["body"]["settings"])
    stated = [{name: part for name, part in one.items() if name != "meaning"} for one in document["limits"]]
    assert stated == statement["limits"]
    assert document["percentiles"] == statement["percentiles"]


def test_a_certificate_with_another_number_is_refused_by_both() -> None:
    told = json.loads(CERTIFICATE_TEXT)
    key = told["certificate"]["coordinator_key"]
    for path in numbers_in(told["certificate"])[::7]:
        changed = copy.deepcopy(told["certificate"])
        holder: Any = changed
        for part in path[:-1]:
            holder = holder[part]
        holder[path[-1]] += 1
        assert not second.is_document_signed(key, "wardround/1/certificate", changed, told["signature"])
        with pytest.raises(SigningError):
            verify_document(decode_public_key(key), CERTIFICATE, changed, told["signature"])
