"""What is spent and what is left."""

from __future__ import annotations

from fastapi import APIRouter

from client_sdk.protocol.study.messages import BudgetStatement
from server.api.auth import Reader
from server.api.context import Here, StudyName
from server.services import views

router = APIRouter(prefix="/v1/studies/{study}", tags=["budget"])


@router.get("/budget")
def read_budget(study: StudyName, _: Reader, here: Here) -> BudgetStatement:
    """ε spent, reserved and remaining for every limit, with the signed head of the ledger behind it."""
    return views.read_budget(here.coordinator, study)
