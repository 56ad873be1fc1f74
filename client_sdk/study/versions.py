"""May this hospital take part with the programs that the coordinator runs? Asked before anything is charged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client_sdk.api.client import Spoken
from client_sdk.errors import ConfigurationError, InvalidRequestError
from study_protocol.study.any_settings import AnySettings
from study_protocol.versions import PROTOCOL, UNNUMBERED, min_protocol, needed_for, program_version


def joined_with(opened: Mapping[str, Any] | None, settings: AnySettings) -> int:
    """The number of the protocol that this hospital keeps to in a study: what it needed when the hospital joined it.

    opened: what the hospital's ledger says of its joining. None: it has not. The coordinator's word does not count: one
    that means harm cannot talk a hospital into an older form of what the study uses.
    """
    if opened is None:
        return min_protocol(settings.as_json())
    return int(opened.get("protocol", UNNUMBERED))


def require_compatible(spoken: Spoken, needed: int, settings: AnySettings) -> None:
    """needed: as `joined_with`.

    Raises:
        ConfigurationError: the coordinator, the study or this program is of an older version than the study needs.
    """
    used = " and ".join(needed_for(settings.as_json(), min(spoken.protocol, spoken.study))) or "what it uses"
    needs = f"this study uses {used}, which needs number {needed} of the protocol"
    local_version = f"this hospital's version is {program_version()}"
    if spoken.protocol < needed:
        raise ConfigurationError(
            f"{needs}, and the coordinator (version {spoken.version}) speaks number {spoken.protocol}: its operator "
            f"has to install a newer version ({local_version}) and to create the study anew. Nothing was charged "
            "or sent"
        )
    if spoken.study < needed:
        raise ConfigurationError(
            f"{needs}, and the study was created by an older version, which knew number {spoken.study}. Earlier "
            "members continue in it, others cannot join. Ask its lead for a new study. Nothing was charged "
            "or sent"
        )
    if max(spoken.study, needed) > PROTOCOL:
        raise ConfigurationError(
            f"this study needs number {max(spoken.study, needed)} of the protocol, and {local_version}, which speaks "
            f"number {PROTOCOL}: install the coordinator's version ({spoken.version}) or a newer one. Nothing was "
            "charged or sent"
        )


def refused_by_older(refused: InvalidRequestError, settings: AnySettings) -> InvalidRequestError | ConfigurationError:
    """Return the message for settings that a coordinator refuses although this program found no fault in them."""
    used = needed_for(settings.as_json(), UNNUMBERED)
    # Any other code is a judgement of settings that the coordinator has read.
    if not used or refused.code != "invalid-request":
        return refused
    return ConfigurationError(
        f"{refused}. These settings use {' and '.join(used)}, which coordinators of an earlier version do not know: "
        f"ask for this version ({program_version()}) or a newer one there"
    )
