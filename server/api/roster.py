"""Who takes part in a study, and the keys they sign with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from client_sdk.protocol.study.messages import KeyRotation, Roster, RosterEntry
from server.api.auth import Itself, OperatorOnly, Reader
from server.api.context import ClientName, Here, StudyName
from server.services.studies import enrolment

OfRound = Annotated[
    int | None,
    Query(ge=1, le=2**31 - 1, description="of a round that sums under masks: the members active at its opening"),
]

router = APIRouter(prefix="/v1/studies/{study}", tags=["roster"])


@router.get("/roster")
def show_roster(study: StudyName, _: Reader, here: Here, round: OfRound = None) -> Roster:
    """Names and identity keys with the fingerprint that hospitals compare out of band."""
    return enrolment.roster(here.coordinator, study, round)


@router.put("/clients/{client}/key")
def rotate_key(study: StudyName, client: ClientName, request: KeyRotation, _: Itself, here: Here) -> RosterEntry:
    """A client's new identity key, signed for by the old one."""
    return enrolment.rotate_key(here.coordinator, study, client, request)


@router.put("/clients/{client}/revoked")
def revoke(study: StudyName, client: ClientName, _: OperatorOnly, here: Here) -> RosterEntry:
    """The operator puts a client out, from the next round on."""
    entry = enrolment.revoke(here.coordinator, study, client)
    here.wake()
    return entry


@router.put("/clients/{client}/withdrawn")
def withdraw(study: StudyName, client: ClientName, _: Itself, here: Here) -> RosterEntry:
    """A hospital leaves."""
    entry = enrolment.withdraw(here.coordinator, study, client)
    here.wake()
    return entry
