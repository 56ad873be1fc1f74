"""Invitations and enrolment."""

from __future__ import annotations

from fastapi import APIRouter, Response

from client_sdk.protocol.study.messages import Enrolment, EnrolmentRequest, Invitation, InvitationCreate
from server.api.auth import OperatorOnly
from server.api.context import Here, StudyName
from server.services.studies import enrolment

router = APIRouter(prefix="/v1", tags=["enrolments"])


@router.post("/studies/{study}/invitations", status_code=201)
def invite(study: StudyName, request: InvitationCreate, _: OperatorOnly, here: Here) -> Invitation:
    """A one-time token for one client. Shown once."""
    return enrolment.invite(here.coordinator, study, request)


@router.post("/enrolments", status_code=201, responses={200: {"model": Enrolment, "description": "Enrolled before"}})
def enrol(request: EnrolmentRequest, response: Response, here: Here) -> Enrolment:
    """Exchange an invitation for membership; the new key proves itself. Repeatable with the same token and key."""
    written = enrolment.enrol(here.coordinator, request)
    response.status_code = 201 if written.created else 200
    return written.body
