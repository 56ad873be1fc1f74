"""Whether this process alone speaks for its hospital."""

from __future__ import annotations

from client_sdk.errors import ConflictError, SessionEnded, UpdateDisputed


class SingleInstallation:
    """The check of one participation. Two that speak for one hospital end every sum of all hospitals, and pay for
    it."""

    def __init__(self) -> None:
        self._first: int | None = None

    def begin(self, round_number: int) -> None:
        """A round was assigned."""
        if self._first is None:
            self._first = round_number

    def require(self, round_number: int, ended: SessionEnded | ConflictError) -> None:
        """Require that a sum did not end because the coordinator holds what this process has not said.

        Of the first round it may have been said before this process began, from a disk that was put back since. Every
        later one began after it.

        Raises:
            UpdateDisputed: another process has said it.
        """
        if ended.code == "different-message" and round_number != self._first:
            raise UpdateDisputed(
                f"the coordinator holds another message of this hospital for the secure sum of round {round_number}: a "
                "second installation takes part under the same identity. Stop one of them"
            )
