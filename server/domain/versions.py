"""May a program take part in a study: does it speak the number of the protocol that the study needs?"""

from __future__ import annotations

from server.domain.errors import Rejected
from study_protocol.versions import PROTOCOL, program_version


def require_spoken(needed: int, spoken: int, program: str) -> None:
    """Check that a hospital's program speaks the study's protocol: `needed` by the study, `spoken` by this version.

    Raises:
        Rejected: `client-too-old` (extra needed_protocol, spoken_protocol, coordinator_protocol, coordinator_version).
    """
    if spoken >= needed:
        return
    raise Rejected(
        "client-too-old",
        f"this study needs programs that speak number {needed} of the protocol, and this one (version {program}) "
        f"speaks number {spoken}: install the version that the coordinator runs ({program_version()}) or a newer one "
        "at this hospital, and start again with the same directory: no data is lost",
        needed_protocol=needed,
        spoken_protocol=spoken,
        coordinator_protocol=PROTOCOL,
        coordinator_version=program_version(),
    )
