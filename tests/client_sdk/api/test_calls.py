"""Requests as they are sent, and answers as they are read."""

from __future__ import annotations

import httpx
import pytest

from client_sdk.api import calls
from client_sdk.errors import (
    UnexpectedAnswer,
)
from tests.factories.answers import client, script


def test_a_model_is_checked_against_the_digest_in_the_answer() -> None:
    api, _ = client(script(httpx.Response(200, content=b"weights", headers={"ETag": f'"{"0" * 64}"'}))[0])
    with pytest.raises(UnexpectedAnswer, match="not the one"):
        api.model("sepsis")


def test_names_in_paths_cannot_escape_them() -> None:
    assert calls.study("a/../b?c").target == "/v1/studies/a%2F..%2Fb%3Fc"
