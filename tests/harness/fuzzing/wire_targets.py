"""Parsers of what travels between hospitals and the coordinator."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import jwt
import numpy as np
from pydantic import BaseModel

from client_sdk.api.attempts import retry_after_seconds
from client_sdk.errors import LedgerDamaged
from client_sdk.secure_sum import delivery
from study_protocol.secure_sum import messages as session_messages
from study_protocol.secure_sum.messages import ParameterFault, SessionParameters, require_sound
from study_protocol.secure_sum.shamir import SHARE_BYTES, SharingError, combine, parse_share, weights_at
from study_protocol.study import certificate, messages, queries
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.witness import from_header, require_witnessed
from study_protocol.versions import PROTOCOL
from study_protocol.wire.documents import load_json, read_document
from study_protocol.wire.signing import (
    SigningError,
    canonical_json,
    claimed_identity,
    decode_public_key,
    from_base64url,
    request_token,
    sign_document,
    to_base64url,
    verify_request_token,
)
from study_protocol.wire.tensor_files import TensorFile, read
from study_protocol.wire.tensors import Spec, TensorError, decode, encode, metadata_in
from tests.harness.fuzzing import example_study
from tests.harness.fuzzing.target import Target, choose, chosen_seeds

_ORIGIN, _NOW = "https://study.example.org", 1_767_300_000.0
_SPEC: Spec = {"linear.bias": ((1,), "float32"), "linear.weight": ((1, 4), "float64")}


def _messages() -> tuple[type[BaseModel], ...]:
    """Every message of the wire, in order of their names."""
    modules = (messages, queries, session_messages, certificate)
    classes = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__.startswith("study_protocol.")
    }
    return tuple(sorted(classes, key=lambda message_class: message_class.__qualname__))


_MESSAGES = _messages()


def _parse_message(data: bytes) -> None:
    """Read a message. What was read and written again must be read as the same."""
    number, body = choose(data, len(_MESSAGES))
    kind = _MESSAGES[number]
    message = read_document(kind, body)
    reread = read_document(kind, message.model_dump_json().encode())
    assert reread == message, f"{kind.__name__} is read otherwise when it is written again"


def _message_seeds() -> Iterable[bytes]:
    examples = example_study.messages()
    parameters = _session_parameters().to_bytes()
    for number, kind in enumerate(_MESSAGES):
        body = parameters if kind is SessionParameters else examples.get(kind.__name__, b"{}")
        yield bytes([number]) + body


def _parse_json(data: bytes) -> None:
    value = load_json(data)
    try:
        text = canonical_json(value)
    except ValueError:
        return
    assert load_json(text) == value


def _session_parameters(version: int = 2) -> SessionParameters:
    vector = {"name": "update", "encoding": "signed", "length": 5, "ring_bits": 64, "scale_bits": 20, "cap": 1 << 30}
    values: dict[str, Any] = {
        "version": version,
        "study": "tiny",
        "round": 1,
        "session": to_base64url(bytes(32)),
        "settings": "c" * 64,
        "ledger_entries": 3,
        "ledger_sha256": "d" * 64,
        "roster": "a" * 64,
        "model": "b" * 64,
        "clients": 5,
        "colluders": 1,
        "threshold": 4,
        "neighbours": 4,
        "min_survivors": 4,
        "vectors": [vector],
        "deadlines": {"keys": 10, "shares": 20, "masked": 30},
        "expires": 40,
    }
    if version == 1:
        del values["settings"], values["ledger_entries"], values["ledger_sha256"]
    return read_document(SessionParameters, canonical_json(values))


def _parse_parameters(data: bytes) -> None:
    parameters = SessionParameters.from_bytes(data)
    require_sound(parameters)
    assert parameters.to_bytes() == data


def _parse_shares(data: bytes) -> None:
    """Read shares of one holder each and combine them."""
    parts = [parse_share(data[at : at + SHARE_BYTES]) for at in range(0, min(len(data), 4 * SHARE_BYTES), SHARE_BYTES)]
    if parts:
        combine(weights_at(list(range(1, len(parts) + 1))), np.stack(parts))


def _parse_tensors(data: bytes) -> None:
    arrays = decode(data, _SPEC, metadata=1 << 16)
    assert all(np.isfinite(array).all() for array in arrays.values())
    metadata_in(data)
    decode(encode(arrays), _SPEC)


def _tensor_seeds() -> Iterable[bytes]:
    yield encode({name: np.zeros(shape, dtype) for name, (shape, dtype) in _SPEC.items()})
    yield example_study.model_file()


def _parse_tensor_file(data: bytes) -> None:
    """Read a file of unknown tensors in pieces, as a coordinator reads an initial model."""
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        opened = TensorFile(file.fileno())
        read_bytes = sum(piece.nbytes for _, _, piece in read(opened))
        assert read_bytes <= os.fstat(file.fileno()).st_size
        ModelMetadata.within(opened.metadata)


def _parse_finished_vectors(data: bytes) -> None:
    words, clear = delivery.from_bytes(data)
    assert not words.keys() & clear.keys()


_PARSED_WITH = {"audience": _ORIGIN, "method": "PUT", "url": f"{_ORIGIN}/v1/studies/tiny"}


def _parse_token(data: bytes) -> None:
    """Read a token as it came, or one with these claims and a good signature."""
    number, body = choose(data, 2)
    token = body.decode("latin-1")
    if number == 1:
        claims = load_json(body)
        if not isinstance(claims, dict):
            return
        # PyJWT's encoder refuses what its decoder may be sent.
        token = jwt.api_jws.encode(body, example_study.KEY, algorithm="EdDSA")
    claimed_identity(token)
    verify_request_token(token, example_study.KEY.public_key(), now=_NOW, **_PARSED_WITH)


def _token_seeds() -> Iterable[bytes]:
    token = request_token(
        example_study.KEY,
        client="mercy",
        study="tiny",
        body_sha256="a" * 64,
        now=_NOW,
        token_id="a" * 20,
        protocol=PROTOCOL,
        **_PARSED_WITH,
    )
    claims = from_base64url(token.split(".")[1])
    return chosen_seeds([token.encode(), claims])


def _parse_headers(data: bytes) -> None:
    """Read the texts that travel in headers: a witness, a key, a manifest, a time to wait."""
    number, body = choose(data, 4)
    text = body.decode("latin-1")
    if number == 0:
        witness = from_header(text, study="tiny", client="mercy", public_key=example_study.PUBLIC_KEY)
        require_witnessed(witness)
    elif number == 1:
        decode_public_key(text)
    elif number == 2:
        session_messages.Manifest.model_validate(load_json(from_base64url(text)))
    else:
        seconds = retry_after_seconds(text, now=datetime.fromtimestamp(_NOW, UTC))
        assert seconds is None or seconds >= 0


def _header_seeds() -> Iterable[bytes]:
    signature = sign_document(example_study.KEY, "label", {})
    manifest = to_base64url(b'{"client":"mercy","digests":{"update":"%s"},"signature":"%s"}' % (b"A" * 43, b"A" * 86))
    texts = (f"7.{'a' * 64}.{signature}", example_study.PUBLIC_KEY, manifest, "Wed, 21 Oct 2026 07:28:00 GMT")
    return chosen_seeds(text.encode() for text in texts)


TARGETS: Mapping[str, Target] = {
    "json": Target(_parse_json, (ValueError,), lambda: example_study.messages().values()),
    "messages": Target(_parse_message, (ValueError,), _message_seeds),
    "session-parameters": Target(
        _parse_parameters, (ParameterFault,), lambda: [_session_parameters(number).to_bytes() for number in (1, 2)]
    ),
    "shares": Target(_parse_shares, (SharingError,), lambda: [bytes(3 * SHARE_BYTES)]),
    "tensors": Target(_parse_tensors, (TensorError,), _tensor_seeds),
    "tensor-files": Target(_parse_tensor_file, (TensorError,), _tensor_seeds),
    "finished-vectors": Target(_parse_finished_vectors, (LedgerDamaged,), _tensor_seeds),
    "tokens": Target(_parse_token, (SigningError, ValueError), _token_seeds),
    "headers": Target(_parse_headers, (SigningError, ValueError), _header_seeds),
}
