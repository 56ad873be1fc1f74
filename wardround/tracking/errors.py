"""The errors of a tracking server. Their texts say what to change, and never hold a password or a token."""

from __future__ import annotations

from client_sdk.errors import ConfigurationError, ConnectionFailed


class TrackingServerAway(ConnectionFailed):
    """The tracking server does not answer. A later attempt may succeed."""


class TrackingRefused(ConfigurationError):
    """The tracking server answered, and the same request would be refused again."""
