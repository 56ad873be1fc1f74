"""The version of the answering program, and the number of the protocol that it speaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from study_protocol.versions import (
    PROTOCOL_HEADER,
    STUDY_PROTOCOL_HEADER,
    UNKNOWN_VERSION,
    UNNUMBERED,
    VERSION_HEADER,
    is_version,
    protocol_in,
)


@dataclass(frozen=True)
class Spoken:
    """The versions that a coordinator reports where it describes a study. One from before the numbers reports none.

    protocol  the number of the protocol that it speaks
    study     the number that the study was created with
    """

    version: str = UNKNOWN_VERSION
    protocol: int = UNNUMBERED
    study: int = UNNUMBERED

    @classmethod
    def within(cls, headers: Mapping[str, str]) -> Self | None:
        """Return the versions in an answer's headers, under lower-case names, or None where the headers lack them."""
        if PROTOCOL_HEADER.lower() not in headers:
            return None
        version = headers.get(VERSION_HEADER.lower())
        numbers = (protocol_in(headers.get(name.lower())) for name in (PROTOCOL_HEADER, STUDY_PROTOCOL_HEADER))
        return cls(version if version is not None and is_version(version) else UNKNOWN_VERSION, *numbers)
