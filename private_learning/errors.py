"""Errors of private learning. `client_sdk.errors` draws the whole tree of a hospital's side."""

from __future__ import annotations


class WardroundError(Exception):
    """Base of every error raised here. `request_id` names the request at the coordinator, if there was one."""

    request_id: str | None = None


class ConfigurationError(WardroundError):
    """The text says what to set, and where."""


class TrainingStopped(WardroundError):
    """NaN, an infinity or a number out of bounds that no record is to blame for; `where` names the place.

    No part of this round was sent, and the coordinator is not told: to it this looks like a lost connection.
    """

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: NaN, an infinity or a number out of bounds. The round was stopped and nothing was sent"
        )
        self.where = where
