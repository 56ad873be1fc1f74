"""Bytes in JSON: unpadded base64url and its lengths."""

from __future__ import annotations

import base64

import pytest
from pydantic import TypeAdapter, ValidationError

from study_protocol.wire.octets import Octets, SignatureOctets, as_text

ANY = TypeAdapter(Octets)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 31, 32, 64])
def test_bytes_are_written_as_the_standard_library_does_without_padding(length: int) -> None:
    data = bytes(range(256))[-length:] if length else b""
    text = base64.urlsafe_b64encode(data).decode().rstrip("=")
    assert ANY.dump_json(data) == f'"{text}"'.encode()
    assert ANY.validate_json(f'"{text}"') == data
    assert ANY.dump_python(data) == data
    # So many characters does the schema ask for.
    schema = as_text(length, length).json_schema
    assert schema is not None
    assert (schema["minLength"], schema["maxLength"]) == (len(text), len(text))


@pytest.mark.parametrize("text", ["QQ==", "Q", "QR", "A+/A", "Q Q", "\u00e4A"])
def test_a_text_that_is_not_the_one_form_of_some_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        ANY.validate_python(text)


def test_a_signature_has_64_bytes() -> None:
    signatures = TypeAdapter(SignatureOctets)
    assert signatures.validate_python("A" * 85 + "A") == bytes(64)
    for text in ("A" * 84, "A" * 88):
        with pytest.raises(ValidationError):
            signatures.validate_python(text)
