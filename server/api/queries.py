"""Questions about the hospitals' patients: asked by people, consented to by hospitals, answered with noise."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from server.api.auth import (
    After,
    ClientName,
    PageSize,
    Reader,
    RequestContext,
    SignedRoute,
    StudyName,
)
from server.api.bodies import answered, or_else
from server.api.rounds import own_client_of, sees_clients
from server.services.queries import ask, show
from study_protocol.study import queries as messages
from study_protocol.study.queries import Consent, QueryDocument, QueryForecast, QueryList, QueryState

router = APIRouter(prefix="/v1/studies/{study}/queries", route_class=SignedRoute, tags=["queries"])
QueryNumber = Annotated[int, Path(ge=1, le=2**31 - 1, description="the query, from 1")]
InState = Annotated[QueryState | None, Query(description="only those in this state")]


@router.post("", status_code=201, responses=or_else(messages.Query, "The same query, asked before: it has no cost"))
def ask_query(
    study: StudyName, document: QueryDocument, caller: Reader, response: Response, context: RequestContext
) -> messages.Query:
    """Ask. A query that could pass a limit is refused before any hospital computes. Repeatable: equal documents are one
    query, and one that failed is tried anew.

    The first question of a study's synthesis is let in with all that follow from it. Their cost is kept until the last
    answer, and is free again as soon as one of them fails. Each answer queues the next question by itself.

    So does each step of a question in steps, such as a regression (kind `glm`). Its first step asked again goes on from
    a step that failed, at no second cost for the answered ones."""
    with_clients = sees_clients(caller, study)
    return answered(response, ask.ask(context.coordinator, study, document, with_clients=with_clients))


@router.post("/forecast")
def forecast_query(study: StudyName, document: QueryDocument, context: RequestContext) -> QueryForecast:
    """Return the cost of a query now, of one in steps that of all steps, and how much noise its answer would have. No
    hospital is asked."""
    return ask.forecast(context.coordinator, study, document)


@router.get("")
def list_queries(
    study: StudyName,
    caller: Reader,
    context: RequestContext,
    state: InState = None,
    after: After = 0,
    limit: PageSize = 100,
) -> QueryList:
    """Return queries in order of their numbers, without their answers."""
    return show.list_queries(
        context.coordinator,
        study,
        with_clients=sees_clients(caller, study),
        own_client=own_client_of(caller),
        state=state,
        after=after,
        limit=limit,
    )


@router.get("/{query}")
def show_query(study: StudyName, query: QueryNumber, caller: Reader, context: RequestContext) -> messages.Query:
    """Return one query with its answer, once it has one."""
    return show.show_query(
        context.coordinator, study, query, with_clients=sees_clients(caller, study), own_client=own_client_of(caller)
    )


@router.put("/{query}/consents/{client}", status_code=201, responses=or_else(Consent, "Said before"))
def put_consent(
    study: StudyName,
    query: QueryNumber,
    client: ClientName,
    consent: Consent,
    response: Response,
    context: RequestContext,
) -> Consent:
    """Record a hospital's word on a query that waits. Its round begins once enough hospitals have said yes."""
    return answered(response, ask.consent(context.coordinator, study, query, client, consent))
