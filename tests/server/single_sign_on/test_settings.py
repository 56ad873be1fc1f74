from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from server.single_sign_on.settings import SingleSignOnSettings
from tests.factories.case_ids import plain_id

FIT: dict[str, Any] = {"issuer": "https://id.example/realms/study", "client_id": "wardround"}


def test_the_scopes_are_openid_profile_email_and_more() -> None:
    assert SingleSignOnSettings(**FIT).scope == "openid profile email"
    assert SingleSignOnSettings(**FIT, scopes=" groups  openid ").scope == "openid profile email groups"


def test_a_secret_is_not_printed() -> None:
    settings = SingleSignOnSettings(**FIT, client_secret="pw-of-coordinator")  # pyright: ignore[reportArgumentType]
    assert "pw-of-coordinator" not in repr(settings)


@pytest.mark.parametrize(
    "issuer",
    [
        "http://id.example",
        "id.example",
        "",
        "https://",
        "ftp://id.example",
        "https://id.example?x=1",
        "https://id.example#x",
        "https://u:p@id.example",
        "https://id.example/ ",
        "https://id.ex\u00e4mple",
        "https://id.example:99999",
        "http://localhost.example",
        "http://127.0.0.1.example",
        "https://id.example\\@evil.example",
    ],
)
def test_an_issuer_is_an_encrypted_address(issuer: str) -> None:
    with pytest.raises(ValidationError, match="https address"):
        SingleSignOnSettings(**FIT | {"issuer": issuer})


@pytest.mark.parametrize("issuer", ["http://127.0.0.1:9400", "http://localhost:9400", "http://[::1]:9400/a"])
def test_an_issuer_on_this_machine_may_be_plain(issuer: str) -> None:
    assert SingleSignOnSettings(**FIT | {"issuer": issuer}).issuer == issuer


@pytest.mark.parametrize(
    "changed",
    [
        {"client_id": ""},
        {"client_id": "a\nb"},
        {"client_secret": ""},
        {"client_secret": "pass\u00e9word"},
        {"scopes": 'a"b'},
        {"groups_claim": ""},
        {"clock_skew_seconds": -1},
        {"clock_skew_seconds": 3600},
        {"client": "x"},
    ],
    ids=plain_id,
)
def test_other_settings_are_refused_without_their_values(changed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as error:
        SingleSignOnSettings(**FIT | changed)
    assert "word" not in str(error.value)


@pytest.mark.slow
def test_settings_and_grants_load_without_the_extra() -> None:
    """A coordinator without single sign-on needs none of its libraries."""
    code = """
import sys
sys.modules |= dict.fromkeys(("authlib", "joserfc", "httpx"))
from server.single_sign_on import errors, grants, identity, logins, settings
"""
    subprocess.run([sys.executable, "-c", code], check=True)
