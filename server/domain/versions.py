"""May a program take part in a study: does it speak the number of the protocol that the study needs?"""

from __future__ import annotations

from server.domain.errors import Rejected
from study_protocol.versions import PROTOCOL, ProgramVersion, Settings, min_protocol, program_version

_IN_A_STUDY = "start again with the same directory: no data is lost"
_AT_ENROLMENT = "enrol again with the same token: it was not used"


def needed_protocol(created_with: int, settings: Settings) -> int:
    """Return the number that a study needs now. An older version may have created it with a lower one.

    Args:
        created_with: the number that the study was created with.
        settings: the study's, as JSON.
    """
    # Its next session is of the kind that this coordinator's wire has.
    return max(created_with, min_protocol(settings))


def require_spoken(needed: int, program: ProgramVersion, *, enrols: bool = False) -> None:
    """Check that a hospital's program speaks the number that the study needs.

    Args:
        enrols: whether the program asks for membership, so that it holds a token and no data.

    Raises:
        Rejected: `client-too-old` (extra needed_protocol, spoken_protocol, coordinator_protocol, coordinator_version).
    """
    if program.protocol >= needed:
        return
    named = f"this one (version {program.version}) speaks number {program.protocol}"
    if program == ProgramVersion():
        named = f"this one names no version, as older ones do, and counts as number {program.protocol}"
    raise Rejected(
        "client-too-old",
        f"this study needs programs that speak number {needed} of the protocol, and {named}: install the version that "
        f"the coordinator runs ({program_version()}) or a newer one at this hospital, and "
        f"{_AT_ENROLMENT if enrols else _IN_A_STUDY}",
        needed_protocol=needed,
        spoken_protocol=program.protocol,
        coordinator_protocol=PROTOCOL,
        coordinator_version=program_version(),
    )
