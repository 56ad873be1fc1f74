"""Attacks on the edge over real HTTP: weak keys, ambiguous documents, strangers' bodies, replays, and who has left."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from server.api import auth
from server.api.lookups import Lookups
from study_protocol.wire.signing import (
    ENROLMENT,
    encode_public_key,
    sign_document,
    to_base64url,
    verify_request_token,
)
from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL, Hospital, update
from tests.factories.live_coordinator import ORIGIN, Live, code_of
from tests.factories.settings import settings as study_settings
from tests.factories.weak_keys import SECOND_ENCODINGS, SMALL_ORDER

NEUTRAL = (1).to_bytes(32, "little")


def _signature_of_nobody(message: bytes) -> bytes:
    """Under the neutral element S·B = R + h·A holds for every message whose R is S·B: here S = 1."""
    # The base point (RFC 8032, 5.1): y = 4/5, x even.
    base = bytes.fromhex("58" + "66" * 31)
    return base + (1).to_bytes(32, "little")


def test_under_the_neutral_element_anybody_signs_anything() -> None:
    """Why such keys are refused: the library itself accepts them."""
    Ed25519PublicKey.from_public_bytes(NEUTRAL).verify(_signature_of_nobody(b"anything"), b"anything")


def _forged_token(study: str, path: str) -> str:
    claims = {"iss": "north", "sub": study, "aud": ORIGIN, "htm": "GET", "htu": ORIGIN + path}
    now = int(time.time())
    claims |= {"bh": hashlib.sha256(b"").hexdigest(), "iat": now, "exp": now + 60}  # type: ignore[dict-item]
    head, body, _ = jwt.encode(claims, Ed25519PrivateKey.generate(), algorithm="EdDSA").split(".")
    return f"{head}.{body}.{to_base64url(_signature_of_nobody(b''))}"


def test_a_key_that_anybody_signs_for_does_not_enrol(here: Live, study: str) -> None:
    here.open_study(study)
    request = {"token": here.invite(study, "north"), "public_key": to_base64url(NEUTRAL)}
    answer = here.send("POST", "/v1/enrolments", json=request | {"proof": to_base64url(_signature_of_nobody(b""))})
    path = f"/v1/studies/{study}/budget"
    # What a stranger could do with it.
    assert here.send("GET", path, _forged_token(study, path)).status_code == 401
    assert code_of(answer) == (422, "invalid-request")
    assert answer.json()["fields"] == ["body.public_key"]


@pytest.mark.quick("00000000_0", "01000000_0", "c7176a70_0", "eeffffff0", "f0ffffff0")
@pytest.mark.parametrize("raw", [*SMALL_ORDER, *SECOND_ENCODINGS, b"\2" + bytes(31)], ids=lambda raw: raw.hex()[:8])
def test_no_weak_key_enrols_or_is_rotated_to(here: Live, study: str, raw: bytes) -> None:
    here.open_study(study)
    who, weak = here.enrol(study, "north"), to_base64url(raw)
    proof = sign_document(who.key, ENROLMENT, {"client": "north", "study": study, "key": weak})
    body = json.dumps({"public_key": weak, "proof": proof}).encode()
    token = "rotation-to-a-weak-key"
    answer = here.signed(who, "PUT", f"/v1/studies/{study}/clients/north/key", body, token_id=token)
    assert (code_of(answer), answer.json()["fields"]) == ((422, "invalid-request"), ["body.public_key"])
    request = {"token": here.invite(study, "south"), "public_key": weak, "proof": proof}
    assert code_of(here.send("POST", "/v1/enrolments", json=request)) == (422, "invalid-request")


@pytest.mark.parametrize(
    "body",
    [
        '{"study": "NAME", "study": "other", "settings": {}}',
        '{"study": "NAME", "st\\u0075dy": "other", "settings": {}}',
        '{"study": "NAME", "settings": {"privacy": {"clip_norm": 1, "clip_norm": 2}}}',
        '{"study": NaN}',
        "[" * 100_000,
    ],
    ids=["twice", "twice, spelled otherwise", "twice, inside", "no number", "deep"],
)
def test_a_document_that_reads_in_two_ways_is_refused(here: Live, study: str, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    sent = here.operator("POST", "/v1/studies", content=body.replace("NAME", study), headers=headers)
    assert code_of(sent) == (422, "invalid-request")
    assert "one way only" in sent.json()["detail"]
    assert here.operator("GET", f"/v1/studies/{study}").status_code == 404


def _doubled(body: bytes) -> bytes:
    """The same tensors; the header names the first one twice, the first time with an empty shape."""
    (length,) = struct.unpack("<Q", body[:8])
    header = body[8 : 8 + length].decode().strip()
    name = next(iter(json.loads(header)))
    doubled = "".join(['{"', name, '":{"dtype":"F32","shape":[],"data_offsets":[0,0]},', header[1:]])
    doubled += " " * (-len(doubled) % 8)
    return struct.pack("<Q", len(doubled)) + doubled.encode() + body[8 + length :]


def test_a_tensor_that_is_named_twice_is_refused(here: Live, study: str) -> None:
    who, _ = here.running(study, "north", "south")
    assert code_of(here.put_update(who, 1, _doubled(update()))) == (422, "malformed-tensors")
    fresh = f"{study}-b"
    here.open_study(fresh, model=False)
    sent = here.operator("PUT", f"/v1/studies/{fresh}/models/0", content=_doubled(encode(MODEL)))
    assert code_of(sent) == (422, "malformed-tensors")
    assert here.put_update(who, 1, update()).status_code == 201


def test_a_stranger_learns_nothing_from_the_answers(here: Live, study: str) -> None:
    here.open_study(study)
    north = here.enrol(study, "north")
    gone = here.enrol(study, "gone")
    here.invite(study, "late")
    here.operator("PUT", f"/v1/studies/{study}/clients/gone/revoked")
    forgers = {
        "bad signature": Hospital(north.way, study, "north"),
        "of a revoked client": Hospital(gone.way, study, "gone"),
        "unknown client": here.hospital(study, "nobody"),
        "invited only": here.hospital(study, "late"),
        "unknown study": here.hospital("nowhere", "north"),
        "no name": here.hospital("no\0where", "Nörth"),
    }
    answers = {what: here.signed(who, "GET", f"/v1/studies/{study}/budget") for what, who in forgers.items()}
    seen = {what: {**answer.json(), "request_id": ""} for what, answer in answers.items()}
    assert {answer.status_code for answer in answers.values()} == {401}
    assert seen == dict.fromkeys(forgers, seen["bad signature"])
    assert seen["bad signature"]["code"] == "bad-signature"


def test_a_stranger_learns_nothing_from_the_time(here: Live, study: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same work for every name: one look-up and one check of a signature. Time itself would fail a busy machine."""
    here.open_study(study)
    north = here.enrol(study, "north")
    work = list[str]()
    ask = Lookups.ask

    def verifying(token: str, key: Ed25519PublicKey, **claims: Any) -> Any:
        work.append("verify")
        return verify_request_token(token, key, **claims)

    async def asking(lookups: Lookups[Any, Any], key: Any) -> Any:
        work.append("ask")
        return await ask(lookups, key)

    monkeypatch.setattr(auth, "verify_request_token", verifying)
    monkeypatch.setattr(Lookups, "ask", asking)
    forgers = [Hospital(north.way, study, "north"), here.hospital(study, "nobody"), here.hospital("nowhere", "north")]
    for who in forgers:
        work.clear()
        assert here.signed(who, "GET", f"/v1/studies/{study}/budget").status_code == 401
        assert work == ["ask", "verify"]


def _head(method: str, path: str, token: str, length: int) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {length}", "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Authorization: Bearer {token}", "", ""]).encode()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/studies"),
        ("PUT", "/v1/studies/{study}/rounds/1/refusals/north"),
        ("PUT", "/v1/studies/{study}/rounds/1/secure-sum/keys/north"),
        ("PUT", "/v1/studies/{study}/models/0"),
        ("PUT", "/v1/studies/{study}/models/0/metrics"),
        ("PUT", "/v1/studies/{study}/clients/north/key"),
        ("POST", "/v1/api-keys"),
    ],
)
def test_a_strangers_body_is_not_waited_for(here: Live, study: str, method: str, path: str) -> None:
    here.open_study(study)
    here.enrol(study, "north")
    path = path.format(study=study)
    for token in ("wrk_0123456789abcdef_" + "0" * 64, here.token(here.hospital(study, "north"), method, path)):
        with here.connect() as peer:
            # The head alone: a coordinator that reads first would wait for 900 kB until its patience ends, and say so.
            peer.sendall(_head(method, path, token, 900_000))
            assert peer.recv(65_536).startswith(b"HTTP/1.1 401 ")


def test_an_enrolment_is_as_long_as_enrolments_are(here: Live) -> None:
    with here.connect() as peer:
        peer.sendall(_head("POST", "/v1/enrolments", "x", 900_000))
        assert peer.recv(65_536).startswith(b"HTTP/1.1 413 ")


def _rotation(study: str, name: str, key: Ed25519PrivateKey) -> bytes:
    public = encode_public_key(key.public_key())
    proof = sign_document(key, ENROLMENT, {"client": name, "study": study, "key": public})
    return json.dumps({"public_key": public, "proof": proof}).encode()


def test_a_rotation_that_was_undone_is_not_replayed(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    first, second = who.key, Ed25519PrivateKey.generate()
    path = f"/v1/studies/{study}/clients/north/key"
    forth = _rotation(study, "north", second)
    token = here.token(who, "PUT", path, forth, token_id="the-rotation-that-is-copied")

    def send() -> tuple[int, str]:
        answer = here.send("PUT", path, token, content=forth, headers={"Content-Type": "application/json"})
        return answer.status_code, answer.json().get("code", "")

    assert send()[0] == 200
    who.key = second
    assert here.signed(who, "PUT", path, _rotation(study, "north", first), token_id="back-to-the-first-key").is_success
    who.key = first
    assert send() == (401, "replayed")
    assert here.signed(who, "GET", f"/v1/studies/{study}/budget").status_code == 200


def test_a_rotation_without_an_identity_of_its_own_is_refused(here: Live, study: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    body = _rotation(study, "north", Ed25519PrivateKey.generate())
    assert code_of(here.signed(who, "PUT", f"/v1/studies/{study}/clients/north/key", body)) == (401, "bad-token")


# The clocks may differ by 5 seconds. A loaded machine takes a few more before it looks.
@pytest.mark.parametrize("ahead", [15, 30, 59])
def test_a_token_lives_for_its_minute_and_no_longer(here: Live, study: str, ahead: int) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    path = f"/v1/studies/{study}/budget"
    # One that was made for later would live longer than a minute from now.
    token = here.token(who, "GET", path, now=time.time() + ahead)
    assert code_of(here.send("GET", path, token)) == (401, "clock-skew")


READS = ("", "/budget", "/ledger", "/rounds", "/roster", "/models/0", "/assignment?wait=0", "/events?wait=0")
LEFT: dict[str, Callable[[Live, Hospital], Any]] = {
    "revoked": lambda here, who: here.operator("PUT", f"/v1/studies/{who.study}/clients/{who.name}/revoked"),
    "withdrawn": lambda here, who: here.signed(who, "PUT", f"/v1/studies/{who.study}/clients/{who.name}/withdrawn"),
}


@pytest.mark.parametrize("how", LEFT)
def test_who_has_left_reads_nothing(here: Live, study: str, how: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    assert LEFT[how](here, who).status_code == 200
    for noun in READS:
        assert code_of(here.signed(who, "GET", f"/v1/studies/{study}{noun}")) == (403, "revoked"), noun
    assert code_of(here.signed(who, "GET", f"/dashboard/{study}.json")) == (403, "revoked")
    # Whoever did not hear the answer asks again.
    assert here.signed(who, "PUT", f"/v1/studies/{study}/clients/north/withdrawn").json()["state"] == how


@pytest.mark.quick("revoked")
@pytest.mark.parametrize("how", LEFT)
def test_the_event_stream_of_who_has_left_ends(here: Live, study: str, how: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    # A request of its own connection: the stream holds this one.
    leaving = threading.Timer(0.3, lambda: LEFT[how](here, who))
    leaving.start()
    began = time.monotonic()
    answer = here.signed(who, "GET", f"/v1/studies/{study}/events?wait=20")
    leaving.join()
    assert time.monotonic() - began < 10
    told = [json.loads(line[6:])["kind"] for line in answer.text.splitlines() if line.startswith("data: ")]
    assert "client-enrolled" in told
    # Not even that it has left: it left before that was read.
    assert f"client-{how}" not in told


@pytest.mark.quick("revoked")
@pytest.mark.parametrize("how", LEFT)
def test_the_long_poll_of_who_has_left_ends(here: Live, study: str, how: str) -> None:
    here.open_study(study)
    who = here.enrol(study, "north")
    leaving = threading.Timer(0.3, lambda: LEFT[how](here, who))
    leaving.start()
    began = time.monotonic()
    answer = here.signed(who, "GET", f"/v1/studies/{study}/assignment?wait=20")
    leaving.join()
    assert code_of(answer) == (403, "revoked")
    assert time.monotonic() - began < 10


def test_the_event_stream_of_a_rotated_key_ends(here: Live, study: str) -> None:
    here.open_study(study)
    who, path = here.enrol(study, "north"), f"/v1/studies/{study}/clients/north/key"
    body = _rotation(study, "north", Ed25519PrivateKey.generate())
    rotating = threading.Timer(0.3, lambda: here.signed(who, "PUT", path, body, token_id="while-a-stream-is-open"))
    rotating.start()
    began = time.monotonic()
    here.signed(who, "GET", f"/v1/studies/{study}/events?wait=20")
    rotating.join()
    assert time.monotonic() - began < 10


BAD_TEXTS = {"escape": "\x1b[2J", "C1": "\x9b31m", "line": "a\nb", "override": "a\u202eb", "isolate": "\u2067b"}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
def test_no_text_of_anybody_moves_a_cursor(here: Live, study: str, text: str) -> None:
    who, _ = here.running(study, "north", "south")
    refusal = json.dumps({"code": "policy", "detail": text}).encode()
    settings = study_settings().as_json()
    settings["training"]["task_parameters"] = {"column." + text: "0..1"}
    answers = {
        "body.title": here.operator("POST", "/v1/studies", json={"study": "x", "title": text, "settings": {}}),
        "body.name": here.operator("POST", "/v1/api-keys", json={"role": "viewer", "name": text}),
        "body.detail": here.signed(who, "PUT", f"/v1/studies/{study}/rounds/1/refusals/north", refusal),
        "body.evaluation_set": here.operator(
            "PUT", f"/v1/studies/{study}/models/0/metrics", json={"evaluation_set": text, "values": {"a": 1.0}}
        ),
        "body.settings.training.task_parameters": here.operator(
            "POST", "/v1/studies", json={"study": "x", "settings": settings}
        ),
    }
    for field, answer in answers.items():
        assert code_of(answer) == (422, "invalid-request"), field
        assert any(named.startswith(field) for named in answer.json()["fields"]), answer.json()
        assert text not in answer.text
    assert here.operator("POST", "/v1/api-keys", json={"role": "viewer", "name": "Zoë 王 – حسن"}).is_success


def test_a_packed_request_is_not_unpacked(here: Live, study: str) -> None:
    import gzip

    packed = gzip.compress(json.dumps({"role": "viewer"}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = here.operator("POST", "/v1/api-keys", content=packed, headers=headers)
    assert answer.status_code in (400, 415, 422)
