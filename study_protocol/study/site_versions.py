"""The programs of a study's hospitals, beside the coordinator's program and the number that the study needs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from study_protocol.versions import MAX_PROTOCOL, UNNUMBERED, VERSION_PATTERN, ProgramVersion
from study_protocol.wire.text import Text
from study_protocol.wire.values import Message, Name

Comparison = Literal["same", "differs", "too-old", "unknown"]
Version = Annotated[str, Field(pattern=VERSION_PATTERN)]
ProtocolNumber = Annotated[int, Field(ge=UNNUMBERED, le=MAX_PROTOCOL)]


class SiteVersion(Message):
    """The program of one hospital, as its newest signed request named it."""

    client: Name = Field(description="which hospital")
    version: Version | None = Field(description="version of its program, null where it is not known")
    protocol: ProtocolNumber | None = Field(description="number of the protocol that it speaks, null likewise")
    since: AwareDatetime | None = Field(description="when the coordinator first saw this version and number")
    comparison: Comparison = Field(description="with the number that the study needs, and the coordinator's program")
    remark: Text = Field(description="the comparison in words, with what to install. Empty where both are the same")


class SiteVersions(Message):
    study: Name = Field(description="which study")
    coordinator_version: Version = Field(description="version of the coordinator's program")
    coordinator_protocol: ProtocolNumber = Field(description="number of the protocol that it speaks")
    needed_protocol: ProtocolNumber = Field(description="least number that the study needs of every program")
    hospitals: list[SiteVersion] = Field(description="its active members, in order of their names")


def compare(
    client: str,
    program: ProgramVersion | None,
    since: datetime | None,
    *,
    needed_protocol: int,
    coordinator: ProgramVersion,
) -> SiteVersion:
    """Return a hospital's program and how it compares. program: None where it is not known."""
    comparison: Comparison = "same"
    remark = ""
    if program is None:
        comparison, remark = "unknown", "not known yet"
    elif program.protocol < needed_protocol:
        comparison = "too-old"
        remark = f"too old: the study needs protocol {needed_protocol}, install version {coordinator.version}"
    elif program != coordinator:
        comparison, remark = "differs", "differs from the coordinator's"
    return SiteVersion(
        client=client,
        version=None if program is None else program.version,
        protocol=None if program is None else program.protocol,
        since=None if program is None else since,
        comparison=comparison,
        remark=remark,
    )
