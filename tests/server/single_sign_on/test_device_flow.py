"""Logins from the command line: the device flow of RFC 8628, over real HTTP."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from server.single_sign_on.errors import LoginRefused, ProviderUnavailable, SingleSignOnMisconfigured
from server.single_sign_on.identity import PersonIdentity
from server.single_sign_on.logins import PendingDevice
from server.single_sign_on.provider import Provider
from tests.factories.identity_provider import PUBLIC_CLIENT, SECRET, IdentityProvider, MovableClock, single_sign_on


def poll(sso: Provider, pending: PendingDevice) -> PersonIdentity | PendingDevice:
    return asyncio.run(sso.poll_device(pending))


def later(pending: PendingDevice) -> PendingDevice:
    return replace(pending, next_poll_at=0.0)


def test_a_login_from_the_command_line(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    pending = asyncio.run(sso.begin_device())
    assert pending.verification_uri == f"{provider.issuer}/device"
    assert pending.user_code in (pending.verification_uri_complete or "")
    waiting = poll(sso, later(pending))
    assert isinstance(waiting, PendingDevice)
    assert waiting.interval == pending.interval
    provider.decide(pending.user_code, agreed=True)
    identity = poll(sso, later(waiting))
    assert isinstance(identity, PersonIdentity)
    assert (identity.subject, identity.groups) == ("ada-1", ("leads",))


def test_the_provider_is_not_asked_before_its_interval(provider: IdentityProvider) -> None:
    clock = MovableClock()
    sso = single_sign_on(provider, clock=clock)
    pending = asyncio.run(sso.begin_device())
    assert poll(sso, pending) is pending
    assert provider.requests["/token"] == 0
    clock.ahead = pending.interval + 1
    assert poll(sso, pending) != pending
    assert provider.requests["/token"] == 1


def test_slow_down_makes_the_interval_longer(provider: IdentityProvider) -> None:
    provider.slow_down = True
    sso = single_sign_on(provider)
    pending = asyncio.run(sso.begin_device())
    slower = poll(sso, later(pending))
    assert isinstance(slower, PendingDevice)
    assert slower.interval == pending.interval + 5
    assert slower.next_poll_at > time.time() + pending.interval


@pytest.mark.parametrize("ended", ["by the person", "by the clock", "at the provider"])
def test_a_login_from_the_command_line_ends(provider: IdentityProvider, ended: str) -> None:
    clock = MovableClock()
    sso = single_sign_on(provider, clock=clock)
    pending = asyncio.run(sso.begin_device())
    if ended == "by the person":
        provider.decide(pending.user_code, agreed=False)
    elif ended == "by the clock":
        clock.ahead = 1801
    else:
        provider.devices[pending.device_code]["expires_at"] = 0
    with pytest.raises(LoginRefused) as refused:
        poll(sso, later(pending))
    assert refused.value.code == ("denied" if ended == "by the person" else "expired")
    assert provider.requests["/token"] == (0 if ended == "by the clock" else 1)


def test_the_device_flow_may_have_a_public_client_of_its_own(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider, device_client_id=PUBLIC_CLIENT)
    pending = asyncio.run(sso.begin_device())
    provider.decide(pending.user_code, agreed=True)
    assert isinstance(poll(sso, later(pending)), PersonIdentity)
    assert all(SECRET not in form.values() for form in provider.forms)
    # A token for the other client is none for this one.
    provider.claims = {"aud": "wardround"}
    with pytest.raises(LoginRefused, match="another client"):
        poll(sso, later(pending))


def test_a_provider_without_a_device_flow_is_misconfigured(provider: IdentityProvider) -> None:
    provider.metadata = {"device_authorization_endpoint": None}
    with pytest.raises(SingleSignOnMisconfigured, match="device flow"):
        asyncio.run(single_sign_on(provider).begin_device())


def test_a_provider_that_is_away_does_not_end_a_login_from_the_command_line(provider: IdentityProvider) -> None:
    sso = single_sign_on(provider)
    pending = asyncio.run(sso.begin_device())
    provider.decide(pending.user_code, agreed=True)
    provider.answers["/token"] = (503, "away", {})
    with pytest.raises(ProviderUnavailable):
        poll(sso, later(pending))
    del provider.answers["/token"]
    assert isinstance(poll(sso, later(pending)), PersonIdentity)
