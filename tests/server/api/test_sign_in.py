"""Questions to the identity provider: what a person is told, and that strangers take few places."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from server.api.lanes import LOGINS_OF_ALL, Lanes
from server.api.problems import ApiProblem
from server.api.sign_in import asked_provider
from server.single_sign_on.errors import (
    LoginRefused,
    ProviderUnavailable,
    SingleSignOnError,
    SingleSignOnMisconfigured,
)


def _context(provider: object) -> Any:
    return SimpleNamespace(provider=provider, lanes=Lanes())


def _told(error: SingleSignOnError) -> ApiProblem:
    async def ask() -> None:
        async with asked_provider(_context(object())):
            raise error

    with pytest.raises(ApiProblem) as told:
        asyncio.run(ask())
    return told.value


def test_every_fault_has_a_code_and_a_way_out(caplog: pytest.LogCaptureFixture) -> None:
    refused = _told(LoginRefused("denied", "the login was cancelled"))
    assert (refused.code, refused.detail) == ("login-refused", "the login was cancelled")
    away = _told(ProviderUnavailable("it is away"))
    assert (away.code, "API keys work" in away.detail) == ("unavailable", True)
    assert caplog.records == []
    with caplog.at_level(logging.ERROR):
        assert _told(SingleSignOnMisconfigured("the secret is wrong")).code == "unavailable"
    assert "the secret is wrong" in caplog.text


def test_without_a_provider_people_have_keys() -> None:
    async def ask() -> None:
        async with asked_provider(_context(None)):
            raise AssertionError

    with pytest.raises(ApiProblem) as told:
        asyncio.run(ask())
    assert told.value.code == "no-single-sign-on"


def test_few_questions_go_on_at_once() -> None:
    context, under_way, most = _context(object()), 0, 0

    async def ask() -> None:
        nonlocal under_way, most
        async with asked_provider(context):
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.01)
            under_way -= 1

    async def ask_often() -> list[BaseException | None]:
        return await asyncio.gather(*(ask() for _ in range(50)), return_exceptions=True)

    answers = asyncio.run(ask_often())
    assert most == LOGINS_OF_ALL
    refused = [answer for answer in answers if isinstance(answer, ApiProblem)]
    assert {problem.code for problem in refused} == {"too-many-requests"}
    assert 0 < len(refused) < 50
