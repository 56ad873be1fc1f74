"""The data of the pages, as JSON: only what the reader's own key could read elsewhere in the API."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AwareDatetime, Field

from server.api.auth import After, PageSize, Reader, RequestContext, SignedRoute, Somebody, StudyName
from server.api.queries import QueryNumber
from server.api.rounds import own_client_of, sees_clients
from server.domain.errors import Rejected
from server.services import overview, views
from server.services.queries import show
from server.services.queries.windows import windows
from server.services.studies import lifecycle
from server.web.later_patients import LaterPatients, later_patients
from study_protocol.documents.kept_windows import kept_in_words
from study_protocol.study.limit_statement import LimitStatement
from study_protocol.study.limit_words import guarantee_in_words, progress_in_words, running_in_words
from study_protocol.study.limits import DefinitionName, LevelName
from study_protocol.study.messages import BudgetStatement, RoundView, Study
from study_protocol.study.queries import Query as Queried
from study_protocol.study.settings import StudySettings
from study_protocol.terms import in_words
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.values import NAME_PATTERN, Message

router = APIRouter(prefix="/dashboard", route_class=SignedRoute, tags=["dashboard"])
# As many as one page of the API holds.
MOST_ROUNDS = 500
AfterName = Annotated[str | None, Query(pattern=NAME_PATTERN, description="everything behind this name")]
Search = Annotated[str | None, Query(max_length=200, description="in the name or the title, in any case")]
Since = Annotated[
    int, Query(ge=0, le=2**53, description="`version` of an earlier answer: only rounds that changed since, 0 for all")
]
_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "The data has not changed since the answer with the ETag in If-None-Match"}
}


class LimitWords(Message):
    """The guarantee of one limit, in the words that the terminal and certificates use."""

    level: LevelName = Field(description="who is protected")
    definition: DefinitionName = Field(description="in which sense")
    guarantee: str = Field(description="the (ε, δ) that holds in any case")
    progress: str | None = Field(description="how far the limit is used up. null: it is kept in ε")
    running: str | None = Field(description="ε so far with its condition. null: the guarantee is that ε")


class Glance(Message):
    """One study in the list."""

    study: Study = Field(description="its settings and its state")
    limits: list[LimitStatement] | None = Field(
        description="as the budget says, without reports. null where the database is not what the coordinator signed"
    )
    last_activity: AwareDatetime = Field(description="when something happened last")
    most_rounds: int = Field(description="how many rounds are charged at most")


class Glances(Message):
    studies: list[Glance] = Field(description="in order of their names")
    next: str | None = Field(description="ask for more with `after`, null at the end")


class Answers(Message):
    """The hospitals that a round asked by outcome, as counts."""

    received: int = Field(description="whose update is here")
    refused: int = Field(description="that said no")
    missing: int = Field(description="that did not answer in time, or left")
    waiting: int = Field(description="that may still answer")


class ShownRound(RoundView):
    answers: Answers | None = Field(
        description="null where the number of sampled hospitals is secret: the study's guarantee counts on it"
    )


class StudyPage(Message):
    """The data of a study's page. It never names the participants.

    study    its settings and its state
    budget   null where the database is not what the coordinator signed
    rounds   in order of their numbers, and empty where the budget is null, for the database is not believed then
    version  ask with it as `since` for what is newer
    next     ask for more rounds with `after`, null at the end
    most_rounds  how many rounds are charged at most
    words    what each limit guarantees, in the order of the budget's protected limits
    """

    study: Study
    budget: BudgetStatement | None
    words: list[LimitWords]
    rounds: list[ShownRound]
    version: int
    next: int | None
    most_rounds: int


class ShownQuery(Queried):
    """A query with what a page shows beside it.

    words   what is asked, in plain words
    signed  the canonical JSON of the published answer: the very text whose digest is signed
    """

    words: str
    signed: str | None


class ShownQueries(Message):
    queries: list[ShownQuery] = Field(description="in order of their numbers, without answers")
    next: int | None = Field(description="ask for more with `after`, null at the end")
    later_patients: LaterPatients | None = Field(
        description="the control chart of the released model, whatever `after` is. null: the study monitors no model"
    )


class Sentence(Message):
    about: str = Field(description="which part of the settings")
    text: str = Field(description="what it says, in plain words")


class Terms(Message):
    sentences: list[Sentence] = Field(description="in the order in which a person should read them")


@router.get(".json", responses=_NOT_MODIFIED, response_model=Glances)
def all_studies_json(
    request: Request,
    person: Somebody,
    context: RequestContext,
    after: AfterName = None,
    limit: PageSize = 25,
    search: Search = None,
) -> Response:
    """Return the data of the page of all studies. The same again is a 304."""
    studies, more = overview.glances(context.coordinator, after, limit, search, among=person.studies)
    views = [
        Glance(
            study=glance.study,
            limits=glance.limits,
            last_activity=glance.last_activity,
            most_rounds=glance.study.settings.rounds,
        )
        for glance in studies
    ]
    return _unless_same(request, Glances(studies=views, next=more))


@router.get("/{study}.json", responses=_NOT_MODIFIED, response_model=StudyPage)
def study_page_json(
    request: Request, study: StudyName, context: RequestContext, since: Since = 0, after: After = 0
) -> Response:
    """Return the data of a study's page: state, budget, and the rounds that are new. The same again is a 304."""
    try:
        spent = views.read_budget(context.coordinator, study)
        changed = overview.changes(context.coordinator, study, since=since, after=after, limit=MOST_ROUNDS)
    except Rejected as error:
        if error.extra.get("stop_reason") != "database-differs":
            raise
        spent, changed = None, overview.StudyChanges(0, [], more=False)
    rounds = [_page_round(view, answers) for view, answers in changed.rounds]
    study_view = lifecycle.show(context.coordinator, study)
    page = StudyPage(
        study=study_view,
        budget=spent,
        words=[] if spent is None else [_words(limit) for limit in spent.limits if limit.epsilon is not None],
        rounds=rounds,
        version=changed.version,
        next=rounds[-1].round if changed.more else None,
        most_rounds=study_view.settings.rounds,
    )
    return _unless_same(request, page)


@router.get("/{study}/terms.json", response_model=Terms)
def study_terms_json(study: StudyName, context: RequestContext) -> Terms:
    """Return the study's settings in sentences: the protected persons, the strength, and the readers of each value."""
    view = lifecycle.show(context.coordinator, study)
    draws = isinstance(view.settings, StudySettings) and view.settings.privacy.client_sampling_rate < 1
    hospitals = None if draws else max(view.clients, view.invited, view.settings.schedule.min_clients)
    sentences = in_words(view.settings, mine=False, hospitals=hospitals)
    sentences += [("monitoring", line) for line in kept_in_words(view.settings)]
    return Terms(sentences=[Sentence(about=about, text=text) for about, text in sentences])


@router.get("/{study}/queries.json", responses=_NOT_MODIFIED, response_model=ShownQueries)
def queries_json(
    request: Request, study: StudyName, caller: Reader, context: RequestContext, after: After = 0
) -> Response:
    """Return queries above `after` in plain words, without their answers. Viewers and askers see no names."""
    query_list = show.list_queries(
        context.coordinator,
        study,
        with_clients=sees_clients(caller, study),
        own_client=own_client_of(caller),
        after=after,
        limit=MOST_ROUNDS,
    )
    monitored = windows(context.coordinator, study)
    page = ShownQueries(
        queries=[_page_query(query) for query in query_list.queries],
        next=query_list.next,
        later_patients=None if monitored is None else later_patients(monitored),
    )
    return _unless_same(request, page)


@router.get("/{study}/queries/{query}.json", responses=_NOT_MODIFIED, response_model=ShownQuery)
def query_json(
    request: Request, study: StudyName, query: QueryNumber, caller: Reader, context: RequestContext
) -> Response:
    """Return one query in plain words, with its answer once it has one."""
    query_view = show.show_query(
        context.coordinator, study, query, with_clients=sees_clients(caller, study), own_client=own_client_of(caller)
    )
    return _unless_same(request, _page_query(query_view))


@router.get(
    "/{study}/ledger.txt",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "one entry a line"}},
)
def ledger_text(study: StudyName, context: RequestContext, after: After = 0, limit: PageSize = 500) -> Response:
    """Return ledger entries above `after`, one a line.

    SHA-256 of a line is the entry's hash, and the next line names it.
    """
    lines = overview.ledger_lines(context.coordinator, study, after=after, limit=limit)
    return Response(lines, media_type="text/plain", headers={"Cache-Control": "no-store"})


def _words(limit: LimitStatement) -> LimitWords:
    return LimitWords(
        level=limit.level,
        definition=limit.definition,
        guarantee=guarantee_in_words(limit),
        progress=progress_in_words(limit),
        running=running_in_words(limit),
    )


def _page_round(view: RoundView, counts: overview.Counts | None) -> ShownRound:
    answers = (
        None
        if counts is None
        else Answers(
            received=counts.get("received", 0),
            refused=counts.get("refused", 0),
            missing=counts.get("missing", 0),
            waiting=counts.get("sampled", 0),
        )
    )
    return ShownRound.model_validate({**dict(view), "answers": answers})


def _page_query(query: Queried) -> ShownQuery:
    answered = query.answered
    signed = None if answered is None else canonical_json(answered.published.model_dump(mode="json")).decode()
    return ShownQuery.model_validate({**dict(query), "words": query.document.question.in_words(), "signed": signed})


def _unless_same(request: Request, body: Message) -> Response:
    """Return the body with its digest as ETag, or 304 for a client that has it. No cache keeps one key's answer."""
    written = body.model_dump_json().encode()
    headers = {"ETag": f'"{hashlib.sha256(written).hexdigest()}"', "Cache-Control": "no-store"}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    return Response(written, media_type="application/json", headers=headers)
