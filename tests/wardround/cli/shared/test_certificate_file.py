"""Certificates that a person names as files: they are read whole, and what is none says what to do."""

from __future__ import annotations

import json

import pytest

from client_sdk.errors import ConfigurationError
from tests.factories.certificates import ONE
from wardround.cli.shared.certificate_file import opened


def test_a_certificate_is_read_as_it_was_signed() -> None:
    body = json.dumps(ONE.raw).encode()
    assert opened(body, "certificate.json").certificate == ONE.certificate


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b"null", b"\xff\xfe", b'{"certificate": 1}', b"9" * 5000])
def test_what_is_no_certificate_names_the_file_and_the_way_out(body: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"^certificate\.json: .*wardround certificate show"):
        opened(body, "certificate.json")
