"""The audit log: who asked for which change."""

from __future__ import annotations

from fastapi import APIRouter

from server.api.auth import After, PageSize, RequestContext, SignedRoute, StudyName
from server.services.people import audit
from study_protocol.study.audit_log import AuditPage

router = APIRouter(prefix="/v1", tags=["audit log"], route_class=SignedRoute)


@router.get("/studies/{study}/audit")
def read_audit_log(study: StudyName, context: RequestContext, after: After = 0, limit: PageSize = 500) -> AuditPage:
    """Return who asked for which change of a study: entries above `after`, with the signed head of the whole log.

    Every request that changes something has an entry, written in the same transaction. Messages of hospitals in a round
    have none: each is kept with its sender's signature.
    """
    return audit.read_log(context.coordinator, study, after, limit)


@router.get("/audit")
def read_coordinator_audit_log(context: RequestContext, after: After = 0, limit: PageSize = 500) -> AuditPage:
    """Return who asked for which change that belongs to no study, as of keys."""
    return audit.read_log(context.coordinator, None, after, limit)
