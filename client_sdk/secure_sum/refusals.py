"""Why a hospital's half of the secure sum says no. Refusing changes no state and opens no sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client_sdk.errors import Refused


class SecureSumRefused(Refused):
    """Base of every refusal: `code` is stable and sent to the coordinator, the text is for people.

    SecureSumRefused
    ├── ParametersRefused    the session is not one that this hospital joins
    ├── CohortRefused        the list of masking keys
    ├── SharesRefused        the shares that arrived
    ├── VectorsRefused       what this hospital itself wanted to send
    ├── SurvivorsRefused     the survivor list, or too little agreement on it
    ├── ResultRefused        the announced result
    └── StateRefused         the step does not follow from what this hospital did before

    proof  what of it contradicts what the coordinator signed and showed elsewhere, as JSON, or None without one
    """

    def __init__(self, code: str, detail: str, proof: Mapping[str, Any] | None = None) -> None:
        super().__init__(code, detail)
        self.proof = proof


class ParametersRefused(SecureSumRefused):
    """The session is not one that this hospital joins."""


class CohortRefused(SecureSumRefused):
    """The list of masking keys is not acceptable."""


class SharesRefused(SecureSumRefused):
    """The shares that arrived are not acceptable."""


class VectorsRefused(SecureSumRefused):
    """The hospital's own vectors do not fit the session, or differ from those it prepared for the round."""


class SurvivorsRefused(SecureSumRefused):
    """The survivor list, or the agreement on it, is not acceptable."""


class ResultRefused(SecureSumRefused):
    """The announced result does not fit the session."""


class StateRefused(SecureSumRefused):
    """The step does not follow from what this hospital did before."""
