"""Who asks: a key that is never shown, or a signature on every request."""

from __future__ import annotations

import httpx
import pytest

from client_sdk.api.client import ApiKey
from client_sdk.api.transport import Call
from client_sdk.errors import (
    ConfigurationError,
)
from tests.factories.answers import GOOD, KEY, MERCY, ROSTER, claims, client, script
from tests.factories.coordinator_in_process import ORIGIN


def test_the_public_origin_is_signed_whatever_is_dialled() -> None:
    answer, seen = script(httpx.Response(200, json=ROSTER))
    api, _ = client(answer)
    api.send(Call("GET", "/v1/a?b=c", lambda answer: None))
    assert seen[0].url.host == "dialled.example"
    said = claims(seen[0])
    assert (said["htu"], said["htm"], said["iss"], said["sub"]) == (f"{ORIGIN}/v1/a?b=c", "GET", "mercy", "sepsis")
    assert "jti" not in said


def test_keys_are_masked_in_every_repr() -> None:
    key = ApiKey("wrk_ab12_hunter2")
    api, _ = client(script(GOOD)[0], key)
    assert "hunter2" not in repr(key) + repr(api)
    assert "ab12" in repr(key)
    private = KEY.private_bytes_raw().hex()
    assert private not in repr(MERCY)
    for wrong in ("", "wrk", "wrk_a", "wrk__x", "wrk_a_", "key_a_b"):
        with pytest.raises(ConfigurationError, match="form"):
            ApiKey(wrong)
