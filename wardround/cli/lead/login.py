"""The commands `login` and `logout`: a person at the identity provider of a coordinator, instead of a key."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from client_sdk.api.config import load
from wardround.cli.shared.session_file import forget_session, keep_session, kept_session
from wardround.cli.shared.shared import Server, plain_errors, say, since

if TYPE_CHECKING:
    from client_sdk.api.client import Client
    from study_protocol.study.people import GrantView, LoginBegun, PersonSession

# Between two questions after an answer that did not come.
_PAUSE_SECONDS = 3.0


def login(server: Server = None) -> None:
    """Log in at the coordinator's identity provider, in any browser.

    Prints an address and a code, and waits. Later commands for this coordinator then need no key. The login ends by
    itself, usually after an hour.
    """
    from client_sdk.api.client import Client
    from client_sdk.errors import ConfigurationError

    with plain_errors():
        connection = load().connection(server)
        with Client(connection) as client:
            begun = client.begin_login()
            say(f"open {begun.verification_uri_complete or begun.verification_uri}")
            say(f"and check or enter the code {begun.user_code} there, until {since(begun.expires_at)}")
            session = _await_person(client, begun)
        if session.token is None:
            raise ConfigurationError("the coordinator sent no session: log in again")
        keep_session(connection.url, session.token)
        roles = ", ".join(map(_in_words, session.grants))
        say(f"{session.name} is logged in until {since(session.expires_at)}: {roles}")


def logout(server: Server = None) -> None:
    """End the login at a coordinator, there and here."""
    from client_sdk.api.client import ApiKey, Client
    from client_sdk.errors import AuthenticationError, ConfigurationError

    with plain_errors():
        connection = load().connection(server)
        token = kept_session(connection.url)
        if token is None:
            raise ConfigurationError(f"nobody is logged in at {connection.url} on this machine")
        # Here first: the file is of no use any more, whatever the coordinator answers.
        forget_session(connection.url)
        try:
            with Client(connection, ApiKey(token)) as client:
                client.log_out()
        except AuthenticationError:
            # It has expired, or was ended by an administrator.
            pass
        say(f"logged out at {connection.url}")


def _await_person(client: Client, begun: LoginBegun) -> PersonSession:
    """Ask until the person has logged in. Raises ApiError: the login is refused, or took too long."""
    from client_sdk.errors import ConnectionFailed, ServerFailure

    seconds = begun.retry_after_seconds
    while True:
        client.sleep(seconds)
        try:
            state = client.poll_login(begun.token)
        except (ConnectionFailed, ServerFailure):
            if time.time() > begun.expires_at.timestamp():
                raise
            seconds = _PAUSE_SECONDS
            continue
        if state.session is not None:
            return state.session
        seconds = state.retry_after_seconds or _PAUSE_SECONDS


def _in_words(grant: GrantView) -> str:
    return f"{grant.role} of {grant.study or 'all studies'}"
