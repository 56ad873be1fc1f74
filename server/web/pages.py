"""Two read-only pages and their twins in JSON.

A page holds no data: its script asks for a viewer's key, keeps it in the tab alone, and polls the twin with it.
So there is no cookie, nothing to forge, and nothing to leak from a cache.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from client_sdk.protocol.study.messages import BudgetStatement, RoundView, Study, StudyList
from client_sdk.protocol.study.values import Message
from server.api.auth import Here, Reader, SignedRoute, StudyName, Viewer
from server.api.docs import PAGE_HEADERS
from server.domain.errors import Rejected
from server.services import views
from server.services.studies import lifecycle

FOLDER = Path(__file__).parent
# As many as one page of the API holds.
NEWEST_ROUNDS = 500

# The pages are open to anybody, because there is nothing in them; what has data wants a key.
router = APIRouter(prefix="/dashboard", route_class=SignedRoute)


class StudyPage(Message):
    """Everything that the page of a study shows; who took part is never among it.

    study   its settings and its state
    budget  null where the database is not what the coordinator signed
    rounds  the newest; empty where the budget is null, for the database is not believed then
    """

    study: Study
    budget: BudgetStatement | None
    rounds: list[RoundView]


@router.get("", include_in_schema=False)
def all_studies() -> FileResponse:
    return FileResponse(FOLDER / "studies.html", headers=PAGE_HEADERS)


@router.get(".json", tags=["dashboard"])
def all_studies_json(_: Viewer, here: Here) -> StudyList:
    """What the page of all studies shows: the first hundred."""
    return lifecycle.list_studies(here.coordinator)


@router.get("/{study}.json", tags=["dashboard"])
def study_page_json(study: StudyName, _: Reader, here: Here) -> StudyPage:
    """What the page of a study shows: its state, its budget, its newest rounds."""
    try:
        spent = views.read_budget(here.coordinator, study)
    except Rejected as error:
        if error.extra.get("stop_reason") != "database-differs":
            raise
        return StudyPage(study=lifecycle.show(here.coordinator, study), budget=None, rounds=[])
    shown = lifecycle.show(here.coordinator, study)
    after = max(0, spent.round - NEWEST_ROUNDS)
    newest = views.list_rounds(here.coordinator, study, with_clients=False, after=after, limit=NEWEST_ROUNDS)
    return StudyPage(study=shown, budget=spent, rounds=newest.rounds)


@router.get("/{study}", include_in_schema=False)
def study_page(study: StudyName) -> FileResponse:
    return FileResponse(FOLDER / "study.html", headers=PAGE_HEADERS)
