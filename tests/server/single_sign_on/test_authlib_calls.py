from __future__ import annotations

import base64
from urllib.parse import parse_qs

import pytest

from server.single_sign_on.authlib_calls import add_params_to_uri, create_s256_code_challenge, prove_client


def test_the_challenge_is_that_of_the_standard_s_example() -> None:
    # RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert create_s256_code_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_parameters_are_added_and_encoded() -> None:
    address = add_params_to_uri("https://id.example/a?b=c", [("next", "https://x/?y=1&z=2"), ("text", "é +")])
    assert parse_qs(address.partition("?")[2]) == {"b": ["c"], "next": ["https://x/?y=1&z=2"], "text": ["é +"]}


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic", "none"])
def test_a_client_is_proved_in_one_place(method: str) -> None:
    secret = None if method == "none" else "p&w=%"
    headers, body = prove_client("wardround", secret, method, "code=a%26b")
    form = {name: values[0] for name, values in parse_qs(body).items()}
    assert form.pop("code") == "a&b"
    if method == "client_secret_basic":
        assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")) == b"wardround:p&w=%"
        assert form == {}
    else:
        assert form == {"client_id": "wardround"} | ({"client_secret": "p&w=%"} if secret else {})
        assert "Authorization" not in headers
