"""The history of rounds. Who took part in which one is shown to operators; a hospital sees its own part."""

from __future__ import annotations

from fastapi import APIRouter

from client_sdk.protocol.study.messages import RoundList, RoundView
from server.api.auth import Caller, ClientCaller, Reader
from server.api.context import After, Here, PageSize, RoundNumber, StudyName
from server.services import views
from server.services.studies.operators import Operator

router = APIRouter(prefix="/v1/studies/{study}/rounds", tags=["rounds"])


def _sees_clients(who: Caller) -> bool:
    return isinstance(who, Operator) and who.role == "operator"


def _own(who: Caller) -> str | None:
    return who.name if isinstance(who, ClientCaller) else None


@router.get("")
def list_rounds(study: StudyName, who: Reader, here: Here, after: After = 0, limit: PageSize = 100) -> RoundList:
    """Rounds in order of their numbers."""
    return views.list_rounds(
        here.coordinator, study, with_clients=_sees_clients(who), own=_own(who), after=after, limit=limit
    )


@router.get("/{round}")
def show_round(study: StudyName, round: RoundNumber, who: Reader, here: Here) -> RoundView:
    """One round."""
    return views.show_round(here.coordinator, study, round, with_clients=_sees_clients(who), own=_own(who))
