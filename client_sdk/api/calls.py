"""Every request of the API, built once: what is sent, whether it may be repeated, how its answer is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel

from client_sdk.api.transport import DEFAULT_ANSWER_LIMIT, NO_COORDINATOR, Call, HttpAnswer
from client_sdk.errors import UnexpectedAnswer
from study_protocol.study import messages
from study_protocol.study.audit_log import AuditPage
from study_protocol.study.lacking import LackingColumns, LackingList
from study_protocol.study.messages import WitnessedHead
from study_protocol.study.people import (
    ApiKeyCreate,
    ApiKeyList,
    ApiKeyView,
    LoggedOut,
    LoginBegun,
    LoginPoll,
    LoginState,
)
from study_protocol.study.queries import Consent, Query, QueryDocument, QueryForecast, QueryList, QueryState
from study_protocol.study.site_versions import SiteVersions
from study_protocol.study.witness import to_header
from study_protocol.versions import PROTOCOL, PROTOCOL_HEADER, VERSION_HEADER, program_version
from study_protocol.wire.documents import read_document

M = TypeVar("M", bound=BaseModel)
OCTETS = "application/octet-stream"
Action = Literal["start", "train", "pause", "resume", "stop"]
Version = int | Literal["latest", "result"]
# Hospitals' proxies cut a connection that is silent for 30 seconds.
POLL_SECONDS = 25.0
# Bytes of the largest model that anybody accepts unasked.
LARGEST_MODEL = 4 << 30


def as_document(model: type[M]) -> Callable[[HttpAnswer], M]:
    def read(answer: HttpAnswer) -> M:
        try:
            return read_document(model, answer.body)
        except ValueError:
            # Without its cause, which quotes values in every traceback: an answer may hold a token.
            raise UnexpectedAnswer(
                f"the answer is no {model.__name__}: do both sides run compatible versions? If not even an older one "
                f"runs there, {NO_COORDINATOR}",
                answer.request_id,
            ) from None

    return read


def nothing(answer: HttpAnswer) -> None:
    return None


def path(*parts: str | int) -> str:
    """Return the path below /v1. Each part stays one part, for any text in it."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def with_values(target: str, **values: str | int | float | None) -> str:
    """`target` with those of the values that are given."""
    present = {name: value for name, value in values.items() if value is not None}
    return f"{target}?{urlencode(present)}" if present else target


def get(
    target: str, model: type[M], *, quiet_seconds: float = 0.0, answer_limit: int = DEFAULT_ANSWER_LIMIT
) -> Call[M]:
    return Call("GET", target, as_document(model), quiet_seconds=quiet_seconds, answer_limit=answer_limit)


def put(target: str, body: BaseModel | None = None, witness: WitnessedHead | None = None) -> Call[None]:
    """A PUT of `body` as JSON, whose answer is empty. `witness`: vouches for the ledger on the way."""
    return Call("PUT", target, nothing, *_json(body), headers=_vouching(witness))


def _post(target: str, model: type[M], body: BaseModel | None = None, *, repeatable: bool) -> Call[M]:
    return Call("POST", target, as_document(model), *_json(body), repeatable=repeatable)


def _vouching(witness: WitnessedHead | None) -> dict[str, str]:
    return {} if witness is None else to_header(witness)


def _json(body: BaseModel | None) -> tuple[bytes, str | None]:
    return (b"", None) if body is None else (body.model_dump_json().encode(), "application/json")


def create_study(study: messages.StudyCreate) -> Call[messages.Study]:
    """Repeatable: a study that exists exactly so is the answer."""
    return _post(path("studies"), messages.Study, study, repeatable=True)


def studies(after: str | None = None) -> Call[messages.StudyList]:
    return get(with_values(path("studies"), after=after), messages.StudyList)


def study(name: str) -> Call[messages.Study]:
    return get(path("studies", name), messages.Study)


def move_study(name: str, action: Action, *, questions_first: bool = False) -> Call[messages.Study]:
    """Repeatable: a study that is in that state already stays in it.

    questions_first: of a start: questions are answered, and training waits for the action `train`.
    """
    target = with_values(path("studies", name, action), questions_first="true" if questions_first else None)
    return _post(target, messages.Study, repeatable=True)


def delete_study(name: str) -> Call[None]:
    """Only before it was started. Repeatable."""
    return Call("DELETE", path("studies", name), nothing)


def put_initial_model(name: str, body: bytes) -> Call[messages.ModelInfo]:
    """Set the first model. body: safetensors, whose names, shapes and types are the study's from then on."""
    return Call("PUT", path("studies", name, "models", 0), as_document(messages.ModelInfo), body, OCTETS)


def invite(name: str, invitation: messages.InvitationCreate) -> Call[messages.Invitation]:
    """Not repeatable: every invitation has a token of its own."""
    return _post(path("studies", name, "invitations"), messages.Invitation, invitation, repeatable=False)


def enrol(request: messages.EnrolmentRequest) -> Call[messages.Enrolment]:
    """Repeatable although a POST: the same token with the same key is given the same answer.

    No key signs for this hospital yet, so headers name its program.
    """
    program = {VERSION_HEADER: program_version(), PROTOCOL_HEADER: str(PROTOCOL)}
    read = as_document(messages.Enrolment)
    return Call("POST", path("enrolments"), read, *_json(request), headers=program, open=True)


def roster(name: str, round_number: int | None = None) -> Call[messages.Roster]:
    """The members now, or those that the assignment of `round_number` names."""
    return get(with_values(path("studies", name, "roster"), round=round_number), messages.Roster)


def put_lacking_columns(name: str, client: str, lacking: LackingColumns) -> Call[LackingColumns]:
    """Tell which columns this hospital's table lacks. Repeatable. Later words replace earlier ones."""
    target = path("studies", name, "clients", client, "lacking-columns")
    return Call("PUT", target, as_document(LackingColumns), *_json(lacking))


def lacking_columns(name: str) -> Call[LackingList]:
    """Return what each hospital has told."""
    return get(path("studies", name, "lacking-columns"), LackingList)


def site_versions(name: str) -> Call[SiteVersions]:
    """Return which program each hospital runs. Coordinators of earlier versions answer NotFoundError."""
    return get(path("studies", name, "versions"), SiteVersions)


def rotate_key(name: str, client: str, rotation: messages.KeyRotation) -> Call[None]:
    """Replace a hospital's identity key. The new key proves itself, and the old one signs the request."""
    # Replayed later, it would undo what came after it.
    return Call("PUT", path("studies", name, "clients", client, "key"), nothing, *_json(rotation), signed_once=True)


def leave(name: str, client: str, standing: Literal["revoked", "withdrawn"]) -> Call[None]:
    """End a client's part from the next round on: revoked by the lead, withdrawn by itself."""
    return put(path("studies", name, "clients", client, standing))


def assignment(name: str, wait_seconds: float = POLL_SECONDS) -> Call[messages.Assignment | None]:
    """Return the assignment, or None while there is none."""

    def read(answer: HttpAnswer) -> messages.Assignment | None:
        return None if answer.status == 204 else as_document(messages.Assignment)(answer)

    target = with_values(path("studies", name, "assignment"), wait=f"{wait_seconds:g}")
    return Call("GET", target, read, quiet_seconds=wait_seconds)


def model(name: str, version: Version = "latest", *, largest: int = LARGEST_MODEL) -> Call[bytes]:
    """Return the model's bytes, checked against the digest that the answer itself names.

    largest: most bytes to accept.
    """

    def read(answer: HttpAnswer) -> bytes:
        # A proxy that compresses on the way marks the tag as weak.
        tag = answer.headers.get("etag", "").removeprefix("W/").strip('"')
        # Finds bytes that were damaged. Whether it is the assigned model, the signed assignment says.
        if tag != hashlib.sha256(answer.body).hexdigest():
            raise UnexpectedAnswer("the model that arrived is not the one the coordinator named", answer.request_id)
        return answer.body

    return Call("GET", path("studies", name, "models", version), read, answer_limit=largest)


def put_update(
    name: str, round_number: int, client: str, body: bytes, witness: WitnessedHead | None = None
) -> Call[messages.UpdateReceipt]:
    """body: safetensors, the update and, where records have a Bayesian limit, the log-moments beside it."""
    target = path("studies", name, "rounds", round_number, "updates", client)
    return Call("PUT", target, as_document(messages.UpdateReceipt), body, OCTETS, headers=_vouching(witness))


def put_refusal(
    name: str, round_number: int, client: str, refusal: messages.Refusal, witness: WitnessedHead | None = None
) -> Call[None]:
    return put(path("studies", name, "rounds", round_number, "refusals", client), refusal, witness)


def put_witness(name: str, witness: WitnessedHead) -> Call[WitnessedHead]:
    """Vouch for the ledger in a request of its own. Repeatable."""
    signed = messages.SignedLedgerHead(head=witness.head, signature=witness.signature)
    target = path("studies", name, "witnesses", witness.client)
    return Call("PUT", target, as_document(WitnessedHead), *_json(signed))


def put_outside_witness(name: str, witness: WitnessedHead) -> Call[WitnessedHead]:
    """Bring the same from a witness whom the study's settings name. Any reader of the study may bring it."""
    signed = messages.SignedLedgerHead(head=witness.head, signature=witness.signature)
    target = path("studies", name, "outside-witnesses", witness.client)
    return Call("PUT", target, as_document(WitnessedHead), *_json(signed))


def put_metrics(name: str, version: int, metrics: messages.Metrics) -> Call[None]:
    return put(path("studies", name, "models", version, "metrics"), metrics)


def certificate(name: str, round_number: int | None = None) -> Call[bytes]:
    """The signed certificate as it came, byte for byte: what is checked must be what was signed."""
    target = with_values(path("studies", name, "certificate"), round=round_number)
    return Call("GET", target, lambda answer: answer.body)


def budget(name: str) -> Call[messages.BudgetStatement]:
    return get(path("studies", name, "budget"), messages.BudgetStatement)


def ledger(name: str, after: int = 0, limit: int | None = None) -> Call[messages.LedgerPage]:
    """A page of entries whose sequence numbers lie above `after`."""
    return get(with_values(path("studies", name, "ledger"), after=after, limit=limit), messages.LedgerPage)


def rounds(name: str, after: int | None = None) -> Call[messages.RoundList]:
    return get(with_values(path("studies", name, "rounds"), after=after), messages.RoundList)


def round_view(name: str, round_number: int) -> Call[messages.RoundView]:
    return get(path("studies", name, "rounds", round_number), messages.RoundView)


def ask_query(name: str, document: QueryDocument) -> Call[Query]:
    """Repeatable: equal documents are one query, charged once. One that failed is tried anew."""
    return _post(path("studies", name, "queries"), Query, document, repeatable=True)


def forecast_query(name: str, document: QueryDocument) -> Call[QueryForecast]:
    """Return what a query would cost, without asking a hospital."""
    return _post(path("studies", name, "queries", "forecast"), QueryForecast, document, repeatable=True)


def queries(name: str, *, state: QueryState | None = None, after: int | None = None) -> Call[QueryList]:
    """A page of the study's queries, in order of their numbers."""
    return get(with_values(path("studies", name, "queries"), state=state, after=after), QueryList)


def query(name: str, number: int) -> Call[Query]:
    """One query, with its signed answer once it has one."""
    return get(path("studies", name, "queries", number), Query)


def put_consent(name: str, number: int, client: str, consent: Consent) -> Call[None]:
    """A hospital's word on a query that waits."""
    return put(path("studies", name, "queries", number, "consents", client), consent)


def create_api_key(key: ApiKeyCreate) -> Call[ApiKeyView]:
    return _post(path("api-keys"), ApiKeyView, key, repeatable=False)


def api_keys() -> Call[ApiKeyList]:
    return get(path("api-keys"), ApiKeyList)


def revoke_api_key(key_id: str) -> Call[ApiKeyView]:
    return Call("DELETE", path("api-keys", key_id), as_document(ApiKeyView))


def begin_login() -> Call[LoginBegun]:
    """Begin a login at the coordinator's identity provider. No credentials are sent."""
    return Call("POST", path("logins"), as_document(LoginBegun), repeatable=False, open=True)


def poll_login(token: str) -> Call[LoginState]:
    """Ask whether the person has logged in meanwhile. token: as the begun login has it."""
    content = _json(LoginPoll(token=token))
    return Call("POST", path("logins", "poll"), as_document(LoginState), *content, repeatable=False, open=True)


def log_out() -> Call[LoggedOut]:
    """End the session that asks."""
    return Call("DELETE", path("session"), as_document(LoggedOut))


def audit_log(study: str | None, after: int = 0) -> Call[AuditPage]:
    """study: None for the coordinator's own log."""
    target = path("audit") if study is None else path("studies", study, "audit")
    return get(with_values(target, after=after), AuditPage)


def health(probe: Literal["livez", "readyz"] = "readyz") -> Call[Mapping[str, str]]:
    """Return the answer's headers. `date` tells the coordinator's clock to the second."""
    return Call("GET", f"/{probe}", lambda answer: answer.headers, open=True)
