"""The ledger: raw events from which anybody can compute every ε again."""

from __future__ import annotations

from fastapi import APIRouter

from client_sdk.protocol.study.messages import LedgerPage
from server.api.auth import Reader
from server.api.context import After, Here, PageSize, StudyName
from server.services import views

router = APIRouter(prefix="/v1/studies/{study}", tags=["ledger"])


@router.get("/ledger")
def read_ledger(study: StudyName, _: Reader, here: Here, after: After = 0, limit: PageSize = 500) -> LedgerPage:
    """Entries above `after`, with the signed head of the whole ledger."""
    return views.read_ledger(here.coordinator, study, after, limit)
