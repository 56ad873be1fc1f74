"""The identity of the other hospitals: people compare one number on the telephone, then it is pinned.

A coordinator can make up hospitals and show each real one another roster. No message from it can rule that out: the
number is computed here, and compared on a way that is not the coordinator's.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from client_sdk.errors import ConfigurationError, RosterNotPinned
from client_sdk.guard.people import DecidingPerson
from client_sdk.study.agreements import roster_of
from client_sdk.study.verifier import active_fingerprint
from study_protocol.wire.signing import ROSTER_DIGITS, as_digits

if TYPE_CHECKING:
    from client_sdk.guard.standing import SubjectStanding
    from client_sdk.study.hospital import Hospital


def as_qr_code(digits: str) -> str:
    """The digits without blanks as a QR code of half blocks, light on a dark terminal: 33 columns and 17 lines."""
    import segno

    drawing = io.StringIO()
    segno.make_qr(digits.replace(" ", ""), error="m").terminal(out=drawing, compact=True)
    return drawing.getvalue()


def is_fingerprint(text: str, fingerprint: str) -> bool:
    """Whether `text`, in digits or in hex and grouped in any way, is this fingerprint, all of it."""
    return _joined(text) in (as_digits(fingerprint).replace(" ", ""), fingerprint)


def require_whole(text: str) -> None:
    """Require a whole number of a roster, or its whole fingerprint.

    Raises:
        ConfigurationError: a digit is missing or one too many: a slip, and no other roster.
    """
    digits = _joined(text)
    if re.fullmatch(rf"[0-9]{{{ROSTER_DIGITS}}}|[0-9a-f]{{64}}", digits) is None:
        problem = f"{len(digits)} digits were given" if re.fullmatch("[0-9]+", digits) else "this is none"
        raise ConfigurationError(
            f"a roster's number has twelve groups of five digits, {ROSTER_DIGITS} in all, but {problem}"
        )


def _joined(text: str) -> str:
    return re.sub(r"[\s.,-]", "", text).lower()


def pin_roster(hospital: Hospital, study: str, text: str, person: DecidingPerson | None = None) -> SubjectStanding:
    """Agree to the active members that the coordinator shows, if they are those whose number was compared.

    The roster is pinned once enough people here have agreed to it.

    person  who compared the number. None: the account of this process

    Raises:
        ConfigurationError: `text` is no whole number.
        RosterNotPinned: they are others.
    """
    require_whole(text)
    with hospital.client(study) as client:
        roster = client.roster(study)
    if not is_fingerprint(text, active_fingerprint(roster)):
        raise RosterNotPinned(
            "the roster that the coordinator shows has another number: look again (wardround roster show). If it was "
            "not a mishearing, do not take part"
        )
    active = tuple(member for member in roster.members if member.state == "active")
    standing = hospital.decide(roster_of(study, active), "agree", person or DecidingPerson.acting())
    # Another roster may be in force meanwhile, and this one waits for its people.
    if standing.effective is not None:
        hospital.identity.remember(hospital.identity.membership(study).model_copy(update={"pinned": active}))
    return standing
