"""Studies: their life, members, models, budget and ledger."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from server.api.auth import (
    After,
    ClientCaller,
    ClientName,
    Context,
    PageSize,
    Reader,
    RequestContext,
    SignedRoute,
    Somebody,
    StudyName,
    WitnessName,
    leaving,
    require_study,
    streamed,
    takes_long,
    used_once,
)
from server.api.bodies import BODY, MEDIA_TYPE, answered, json_answer, model_answer, or_else, received
from server.services import certificates, ledger_pages, results, views
from server.services.studies import enrolment, lacking, models, programs, witnesses
from server.services.studies import lifecycle as studies
from server.services.studies.lifecycle import Action
from server.telemetry import request_id
from study_protocol.study.certificate import SignedCertificate
from study_protocol.study.lacking import LackingColumns, LackingList
from study_protocol.study.messages import (
    BudgetStatement,
    Enrolment,
    EnrolmentRequest,
    Invitation,
    InvitationCreate,
    KeyRotation,
    LedgerPage,
    Metrics,
    ModelInfo,
    Roster,
    RosterEntry,
    SignedLedgerHead,
    Study,
    StudyCreate,
    StudyList,
    WitnessedHead,
)
from study_protocol.study.site_versions import SiteVersions
from study_protocol.versions import (
    PROTOCOL,
    PROTOCOL_HEADER,
    STUDY_PROTOCOL_HEADER,
    UNKNOWN_VERSION,
    VERSION_HEADER,
    VERSION_PATTERN,
    ProgramVersion,
    program_version,
    protocol_in,
)
from study_protocol.wire.values import NAME_PATTERN

router = APIRouter(prefix="/v1", route_class=SignedRoute)
Version = Annotated[
    str, Path(pattern=r"^(latest|result|0|[1-9][0-9]{0,8})$", description="a round's number, `latest` or `result`")
]
ModelNumber = Annotated[
    int, Path(ge=0, le=2**31 - 1, description="the round that made the model, 0 for the initial one")
]
AfterName = Annotated[str | None, Query(pattern=NAME_PATTERN, description="everything behind this name")]
OfRound = Annotated[
    int | None,
    Query(
        alias="round",
        ge=1,
        le=2**31 - 1,
        description="of a round that sums under masks: the members active at its opening",
    ),
]
OfModel = Annotated[
    int | None,
    Query(
        alias="round",
        ge=1,
        le=2**31 - 1,
        description="of the model that this round released. Left out: of the study as it is now",
    ),
]
ProgramName = Annotated[
    str, Header(alias=VERSION_HEADER, pattern=VERSION_PATTERN, description="version of the hospital's program")
]
ProgramNumber = Annotated[
    str | None,
    Header(
        alias=PROTOCOL_HEADER,
        pattern="^[1-9][0-9]{0,5}$",
        description="number of the protocol that it speaks. Left out: that of programs before the numbers",
    ),
]
QuestionsFirst = Annotated[bool, Query(description="hold training back and answer questions")]
_SAYS_ITS_VERSION: dict[int | str, dict[str, Any]] = {
    200: {
        "headers": {
            VERSION_HEADER: {"description": "the coordinator's version", "schema": {"type": "string"}},
            PROTOCOL_HEADER: {
                "description": "the number that it speaks",
                "schema": {"type": "string", "pattern": "^[0-9]+$"},
            },
            STUDY_PROTOCOL_HEADER: {
                "description": "the number that the study needs",
                "schema": {"type": "string", "pattern": "^[0-9]+$"},
            },
        }
    }
}
_TENSORS = {"content": {MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}, "description": "safetensors"}


@router.post("/studies", tags=["studies"], status_code=201, responses=or_else(Study, "It exists, exactly so"))
def create_study(request: StudyCreate, response: Response, person: Somebody, context: RequestContext) -> Study:
    """Open a study: its settings freeze, its budget and its ledger begin. A lead opens the study of its key."""
    require_study(person, "create_study", request.study)
    return answered(response, studies.create(context.coordinator, request))


@router.get("/studies", tags=["studies"])
def list_studies(
    person: Somebody, context: RequestContext, after: AfterName = None, limit: PageSize = 100
) -> StudyList:
    """Return the studies that the caller has a role in, in order of their names."""
    return studies.list_studies(context.coordinator, after, limit, among=person.studies)


@router.get("/studies/{study}", tags=["studies"], responses=_SAYS_ITS_VERSION)
def show_study(study: StudyName, caller: Reader, response: Response, context: RequestContext) -> Study:
    """Return one study with its settings, its state and its newest model.

    Headers say which version answers, which number of the protocol it speaks, and which number the study needs: older
    programs refuse a body with fields that they do not know.
    """
    description = studies.show(context.coordinator, study)
    is_client = isinstance(caller, ClientCaller)
    if is_client:
        # Their older programs refuse a field that they do not know.
        description = description.model_copy(update={"resumed_at": None})
    needed = caller.protocol if is_client else studies.protocol_of(context.coordinator, study)
    response.headers.update({VERSION_HEADER: program_version(), PROTOCOL_HEADER: str(PROTOCOL)})
    response.headers[STUDY_PROTOCOL_HEADER] = str(needed)
    return description


def _act(context: Context, study: str, action: Action) -> Study:
    return studies.act(context.coordinator, study, action)


@router.post("/studies/{study}/start", tags=["studies"])
def start_study(study: StudyName, context: RequestContext, questions_first: QuestionsFirst = False) -> Study:
    """Start the study: from now on rounds begin. Repeatable.

    With `questions_first` it takes questions alone, and its training begins with `train`. Until then its state is
    `paused` with the reason `questions-first`.
    """
    return _act(context, study, "start-asking" if questions_first else "start")


@router.post("/studies/{study}/train", tags=["studies"])
def train_study(study: StudyName, context: RequestContext) -> Study:
    """Begin the training of a study that was started with `questions_first`. Repeatable."""
    return _act(context, study, "train")


@router.post("/studies/{study}/pause", tags=["studies"])
def pause_study(study: StudyName, context: RequestContext) -> Study:
    """Pause training: the round under way ends, and no other begins. Repeatable.

    Questions are still answered, except in a study of questions alone, where none is asked.
    """
    return _act(context, study, "pause")


@router.post("/studies/{study}/resume", tags=["studies"])
def resume_study(study: StudyName, context: RequestContext) -> Study:
    """Resume the study: rounds begin again. Repeatable."""
    return _act(context, study, "resume")


@router.post("/studies/{study}/stop", tags=["studies"])
def stop_study(study: StudyName, context: RequestContext) -> Study:
    """Stop the study for good. Every charge stays. Repeatable."""
    return _act(context, study, "stop")


@router.delete("/studies/{study}", tags=["studies"], status_code=204)
def delete_study(study: StudyName, context: RequestContext) -> None:
    """End a study that was never started: it is in no list any more. Its ledger is kept, its name stays used."""
    studies.delete(context.coordinator, study)


@router.post("/studies/{study}/invitations", tags=["enrolments"], status_code=201)
def invite(study: StudyName, request: InvitationCreate, context: RequestContext) -> Invitation:
    """Invite a client with a one-time token. Shown once."""
    return enrolment.invite(context.coordinator, study, request)


@router.post("/enrolments", tags=["enrolments"], status_code=201, responses=or_else(Enrolment, "Enrolled before"))
def enrol(
    request: EnrolmentRequest,
    response: Response,
    context: RequestContext,
    version: ProgramName = UNKNOWN_VERSION,
    protocol: ProgramNumber = None,
) -> Enrolment:
    """Exchange an invitation for membership. The new key proves itself. Repeatable with the same token and key.

    Two headers name the hospital's program. One that is too old for the study is refused and keeps its invitation.
    """
    program = None if protocol is None else ProgramVersion(version, protocol_in(protocol))
    return answered(response, enrolment.enrol(context.coordinator, request, program, request_id.get()))


@router.get("/studies/{study}/roster", tags=["roster"])
def show_roster(study: StudyName, context: RequestContext, round_number: OfRound = None) -> Roster:
    """Return names and identity keys with the fingerprint that hospitals compare out of band."""
    return views.roster(context.coordinator, study, round_number)


@router.get("/studies/{study}/versions", tags=["roster"])
def list_versions(study: StudyName, context: RequestContext) -> SiteVersions:
    """Return the version of each active hospital's program, beside what the study needs and the coordinator runs."""
    return programs.list_versions(context.coordinator, study)


@router.put("/studies/{study}/clients/{client}/key", tags=["roster"], dependencies=[Depends(used_once)])
def rotate_key(study: StudyName, client: ClientName, request: KeyRotation, context: RequestContext) -> RosterEntry:
    """Replace a client's identity key. The old one signs for it."""
    return enrolment.rotate_key(context.coordinator, study, client, request)


@router.put("/studies/{study}/clients/{client}/revoked", tags=["roster"])
def revoke(study: StudyName, client: ClientName, context: RequestContext) -> RosterEntry:
    """Revoke a client, from the next round on."""
    return enrolment.revoke(context.coordinator, study, client)


@router.put("/studies/{study}/clients/{client}/withdrawn", tags=["roster"], dependencies=[Depends(leaving)])
def withdraw(study: StudyName, client: ClientName, context: RequestContext) -> RosterEntry:
    """Withdraw a hospital."""
    return enrolment.withdraw(context.coordinator, study, client)


@router.put("/studies/{study}/clients/{client}/lacking-columns", tags=["roster"])
def put_lacking_columns(
    study: StudyName, client: ClientName, columns: LackingColumns, context: RequestContext
) -> LackingColumns:
    """Keep which columns a hospital's table lacks, of those that the study lets a site lack. Repeatable."""
    return lacking.put(context.coordinator, study, client, columns)


@router.get("/studies/{study}/lacking-columns", tags=["roster"])
def list_lacking_columns(study: StudyName, context: RequestContext) -> LackingList:
    """Return what each hospital has told of the columns that the study lets a site lack."""
    return lacking.list_all(context.coordinator, study)


@router.put(
    "/studies/{study}/models/0",
    tags=["models"],
    status_code=201,
    dependencies=[Depends(streamed)],
    openapi_extra=BODY,
    responses=or_else(ModelInfo, "Here"),
)
async def put_initial_model(
    study: StudyName, request: Request, response: Response, context: RequestContext
) -> ModelInfo:
    """Set the initial weights as safetensors. They freeze names, shapes and types. The same bytes may come again.

    Metadata in the header may lack. A file that names its study must be of this one, its settings and round 0.
    """
    async with received(request, context.coordinator.blobs, context.settings.model_limit_bytes) as incoming:
        return answered(response, await run_in_threadpool(models.put_initial, context.coordinator, study, incoming))


@router.get(
    "/studies/{study}/models/{version}",
    tags=["models"],
    response_class=Response,
    responses={200: _TENSORS, 206: _TENSORS, 304: {"description": "Same"}},
)
def get_model(study: StudyName, version: Version, request: Request, context: RequestContext) -> Response:
    """Return a published model as safetensors. ETag is its SHA-256, and one byte range is honoured.

    The header's `__metadata__` says what it is, in texts: `wardround` (version of this format, 1), `study`, `round`,
    `task`, `task_parameters` and `columns` (canonical JSON), `settings_sha256`, `ledger_entries` and `ledger_sha256`.
    The last two are the study's ledger up to the entry that settled the round (0 and zeros in round 0). One round has
    the same bytes for ever.

    `result` is what people use: the mean of released models that the settings name (`averaging`), else `latest`.
    Of a mean, `mean_of` and `mean_weights` name its rounds and their weights, and the certificate its SHA-256.
    """
    if version == "result":
        return model_answer(request, results.locate_result(context.coordinator, study))
    number = None if version == "latest" else int(version)
    return model_answer(request, views.locate_model(context.coordinator, study, number))


@router.put(
    "/studies/{study}/models/{version}/metrics",
    tags=["metrics"],
    status_code=201,
    responses=or_else(Metrics, "Replaced"),
)
def put_metrics(
    study: StudyName,
    version: ModelNumber,
    values: Metrics,
    response: Response,
    context: RequestContext,
) -> Metrics:
    """Record a model's metrics. Later numbers replace earlier ones."""
    return answered(response, models.record_metrics(context.coordinator, study, version, values))


@router.get("/studies/{study}/budget", tags=["budget"], response_model=BudgetStatement)
def read_budget(study: StudyName, context: RequestContext) -> Response:
    """Return ε spent, reserved and remaining for every limit, with the signed head of the ledger behind it."""
    # Written here: the framework would validate the answer a second time, on one more thread.
    return Response(views.read_budget(context.coordinator, study).model_dump_json(), media_type="application/json")


@router.get(
    "/studies/{study}/certificate",
    tags=["budget"],
    response_model=SignedCertificate,
    dependencies=[Depends(takes_long)],
)
def read_certificate(study: StudyName, context: RequestContext, round_number: OfModel = None) -> Response:
    """Return the meaning of ε in this study and its grounds, computed from the ledger and signed by the coordinator."""
    signed = certificates.certificate(context.coordinator, study, round_number)
    return Response(signed.model_dump_json(), media_type="application/json")


@router.get("/studies/{study}/ledger", tags=["ledger"], response_model=LedgerPage)
def read_ledger(study: StudyName, context: RequestContext, after: After = 0, limit: PageSize = 500) -> Response:
    """Return entries above `after`, with the signed head of the whole ledger."""
    return json_answer(ledger_pages.read_ledger(context.coordinator, study, after, limit))


@router.put(
    "/studies/{study}/witnesses/{client}",
    tags=["ledger"],
    status_code=201,
    responses=or_else(WitnessedHead, "This head, or a later one, is kept already"),
)
def put_witness(
    study: StudyName,
    client: ClientName,
    signed: SignedLedgerHead,
    response: Response,
    context: RequestContext,
) -> WitnessedHead:
    """Keep the signed head of a hospital, for the time after the study, when no update carries it."""
    return answered(response, witnesses.put(context.coordinator, study, client, signed))


@router.put(
    "/studies/{study}/outside-witnesses/{name}",
    tags=["ledger"],
    status_code=201,
    responses=or_else(WitnessedHead, "This head, or a later one, is kept already"),
)
def put_outside_witness(
    study: StudyName,
    name: WitnessName,
    signed: SignedLedgerHead,
    response: Response,
    context: RequestContext,
) -> WitnessedHead:
    """Keep the signed head of an auditor that the settings name: it vouches for the ledger so far."""
    return answered(response, witnesses.put_outside(context.coordinator, study, name, signed))
