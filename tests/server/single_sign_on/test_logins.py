from __future__ import annotations

from typing import Any

import pytest

from server.single_sign_on.errors import (
    LoginRefused,
    ProviderUnavailable,
    SingleSignOnError,
    SingleSignOnMisconfigured,
)
from server.single_sign_on.logins import (
    PendingLogin,
    error_of,
    read_device_answer,
    read_redirect,
    require_unexpired,
)
from tests.factories.case_ids import plain_id

ISSUER = "https://id.example"
DEVICE: dict[str, Any] = {
    "user_code": "WDJB-MJHT",
    "device_code": "GmRhmhcxhwAzkoEqiMEg",
    "verification_uri": "https://id.example/device",
    "expires_in": 900,
}


def test_two_logins_share_nothing() -> None:
    one, two = (PendingLogin(redirect_uri="https://a", expires_at=0.0) for _ in range(2))
    assert len({one.state, one.nonce, one.verifier, two.state, two.nonce, two.verifier}) == 6
    # RFC 7636, section 4.1.
    assert 43 <= len(one.verifier) <= 128


def test_parameters_that_the_provider_adds_are_passed_over() -> None:
    pending = PendingLogin(redirect_uri="https://a", expires_at=0.0)
    answer = [("state", pending.state), ("code", "c"), ("session_state", "x"), ("session_state", "y")]
    assert read_redirect(pending, answer, issuer=ISSUER, issuer_is_sent=False) == "c"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("access_denied", LoginRefused),
        ("authorization_declined", LoginRefused),
        ("invalid_grant", LoginRefused),
        ("server_error", ProviderUnavailable),
        ("invalid_client", SingleSignOnMisconfigured),
        ("invalid_scope", SingleSignOnMisconfigured),
        ("<b>", LoginRefused),
        (None, LoginRefused),
        (["access_denied"], LoginRefused),
    ],
)
def test_each_error_of_a_provider_has_words_of_ours(code: Any, kind: type[SingleSignOnError]) -> None:
    error = error_of(code)
    assert type(error) is kind
    assert "<" not in str(error)


def test_a_login_ends_at_its_time() -> None:
    require_unexpired(10.0, 9.9)
    with pytest.raises(LoginRefused, match="too long"):
        require_unexpired(10.0, 10.0)


def test_a_device_answer_has_the_defaults_of_the_standard() -> None:
    pending = read_device_answer(DEVICE, now=100.0, loopback=False)
    assert (pending.interval, pending.next_poll_at, pending.expires_at) == (5.0, 105.0, 1000.0)
    assert pending.verification_uri_complete is None


def test_times_of_a_device_answer_are_bounded() -> None:
    pending = read_device_answer(DEVICE | {"expires_in": 1e12, "interval": 0}, now=0.0, loopback=False)
    assert (pending.interval, pending.expires_at) == (1.0, 1800.0)
    assert read_device_answer(DEVICE | {"interval": 1e9}, now=0.0, loopback=False).interval == 60.0


@pytest.mark.parametrize(
    "changed",
    [
        {"user_code": None},
        {"user_code": ""},
        {"user_code": "A" * 65},
        {"user_code": "\u202eAB"},
        {"user_code": "A\nB"},
        {"device_code": "a b"},
        {"device_code": 7},
        {"verification_uri": "http://id.example/device"},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri_complete": "data:text/html,x"},
        {"expires_in": "900"},
        {"expires_in": -1},
        {"expires_in": float("nan")},
        {"interval": True},
        {"interval": None},
    ],
    ids=plain_id,
)
def test_a_device_answer_that_cannot_be_shown_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ProviderUnavailable):
        read_device_answer(DEVICE | changed, now=0.0, loopback=False)
