"""Studies: open, show, start, pause, resume, stop."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from client_sdk.protocol.study.fields import NAME_PATTERN
from client_sdk.protocol.study.messages import Study, StudyCreate, StudyList
from server.api.auth import OperatorOnly, Reader, Viewer
from server.api.context import Context, Here, PageSize, StudyName
from server.services.studies import lifecycle as studies
from server.services.studies.lifecycle import Action

router = APIRouter(prefix="/v1/studies", tags=["studies"])


@router.post("", status_code=201, responses={200: {"model": Study, "description": "It exists, exactly so"}})
def create_study(request: StudyCreate, response: Response, _: OperatorOnly, here: Here) -> Study:
    """Open a study: its settings freeze, its budget and its ledger begin."""
    written = studies.create(here.coordinator, request)
    response.status_code = 201 if written.created else 200
    return written.body


@router.get("")
def list_studies(
    _: Viewer, here: Here, after: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None, limit: PageSize = 100
) -> StudyList:
    """All studies in order of their names."""
    return studies.list_studies(here.coordinator, after, limit)


@router.get("/{study}")
def show_study(study: StudyName, _: Reader, here: Here) -> Study:
    """One study with its settings, its state and its newest model."""
    return studies.show(here.coordinator, study)


def _act(here: Context, study: str, action: Action) -> Study:
    shown = studies.act(here.coordinator, study, action)
    here.wake()
    return shown


@router.post("/{study}/start")
def start_study(study: StudyName, _: OperatorOnly, here: Here) -> Study:
    """From now on rounds begin. Repeatable."""
    return _act(here, study, "start")


@router.post("/{study}/pause")
def pause_study(study: StudyName, _: OperatorOnly, here: Here) -> Study:
    """The round under way ends; no other begins. Repeatable."""
    return _act(here, study, "pause")


@router.post("/{study}/resume")
def resume_study(study: StudyName, _: OperatorOnly, here: Here) -> Study:
    """Rounds begin again. Repeatable."""
    return _act(here, study, "resume")


@router.post("/{study}/stop")
def stop_study(study: StudyName, _: OperatorOnly, here: Here) -> Study:
    """Final. What was charged stays charged. Repeatable."""
    return _act(here, study, "stop")
