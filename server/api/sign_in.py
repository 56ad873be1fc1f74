"""Questions to the identity provider on behalf of people who are not known yet."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from server.api.auth import Context
from server.api.problems import RETRY_AFTER_SECONDS, ApiProblem
from server.single_sign_on.errors import LoginRefused, SingleSignOnError, SingleSignOnMisconfigured

if TYPE_CHECKING:
    from server.single_sign_on.provider import Provider

logger = logging.getLogger("wardround.coordinator")
# Where the provider sends a browser back, as it is registered there.
BACK = "/sso/back"
# Where it sends a browser that has logged out.
AFTER_LOGOUT = "/dashboard"
_EVERYBODY = "_logins"


@asynccontextmanager
async def asked_provider(context: Context) -> AsyncGenerator[Provider]:
    """Yield the identity provider, for one question at a time of a few.

    Raises:
        ApiProblem: `no-single-sign-on`, `login-refused`, `too-many-requests`, and `unavailable` where the provider is
            away or does not accept the coordinator.
    """
    if context.provider is None:
        raise ApiProblem("no-single-sign-on", "this coordinator has no identity provider: use an API key")
    async with context.lanes.logins.place(_EVERYBODY):
        try:
            yield context.provider
        except LoginRefused as refused:
            # Without a name: nobody is known yet.
            logger.info("login refused: %s", refused.code, extra={"event": "login-refused"})
            raise ApiProblem("login-refused", str(refused)) from refused
        except SingleSignOnError as error:
            if isinstance(error, SingleSignOnMisconfigured):
                # Only the coordinator's own people can mend it.
                logger.error("single sign-on: %s", error, extra={"event": "single-sign-on-misconfigured"})
            detail = f"{error}. API keys work meanwhile"
            raise ApiProblem("unavailable", detail, retry_after_seconds=RETRY_AFTER_SECONDS) from error
