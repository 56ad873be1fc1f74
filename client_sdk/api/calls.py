"""Every request of the API, built once: what is sent, whether it may be repeated, how its answer is read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ValidationError

from client_sdk.api.transport import DEFAULT_ANSWER_LIMIT, Answer
from client_sdk.errors import UnexpectedAnswer
from client_sdk.protocol.study.messages import (
    Assignment,
    BudgetStatement,
    Enrolment,
    EnrolmentRequest,
    Invitation,
    InvitationCreate,
    KeyRotation,
    LedgerPage,
    Metrics,
    ModelInfo,
    OperatorKeyCreate,
    OperatorKeyList,
    OperatorKeyView,
    Refusal,
    Roster,
    RoundList,
    RoundView,
    Study,
    StudyCreate,
    StudyList,
    UpdateReceipt,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
JSON = "application/json"
OCTETS = "application/octet-stream"
Action = Literal["start", "pause", "resume", "stop"]
Version = int | Literal["latest"]
# Hospitals' proxies cut a connection that is silent for 30 seconds.
POLL_SECONDS = 25.0
# Bytes of the largest model that anybody accepts unasked.
LARGEST_MODEL = 4 << 30


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request. `repeatable`: sending it twice does what sending it once does."""

    method: str
    target: str
    read: Callable[[Answer], T]
    body: bytes = field(default=b"", repr=False)
    content_type: str | None = None
    repeatable: bool = True
    open: bool = False
    quiet_seconds: float = 0.0
    answer_limit: int = DEFAULT_ANSWER_LIMIT


def _as(model: type[M]) -> Callable[[Answer], M]:
    def read(answer: Answer) -> M:
        try:
            return model.model_validate_json(answer.body)
        except ValidationError as error:
            # Without the values: an answer may hold a token.
            raise UnexpectedAnswer(
                f"the answer is no {model.__name__}; do both sides run compatible versions?", answer.request_id
            ) from error.with_traceback(None)

    return read


def nothing(answer: Answer) -> None:
    return None


def path(*parts: str | int) -> str:
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def query(target: str, **values: str | int | float | None) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"{target}?{urlencode(given)}" if given else target


def get(
    target: str, model: type[M], *, quiet_seconds: float = 0.0, answer_limit: int = DEFAULT_ANSWER_LIMIT
) -> Call[M]:
    return Call("GET", target, _as(model), quiet_seconds=quiet_seconds, answer_limit=answer_limit)


def _post(target: str, model: type[M], body: BaseModel | None = None, *, repeatable: bool) -> Call[M]:
    content = b"" if body is None else body.model_dump_json().encode()
    kind = None if body is None else JSON
    return Call("POST", target, _as(model), content, kind, repeatable=repeatable)


def create_study(study: StudyCreate) -> Call[Study]:
    """Repeatable: a study that exists exactly so is the answer."""
    return _post(path("studies"), Study, study, repeatable=True)


def studies(after: str | None = None) -> Call[StudyList]:
    return get(query(path("studies"), after=after), StudyList)


def study(name: str) -> Call[Study]:
    return get(path("studies", name), Study)


def move_study(name: str, action: Action) -> Call[Study]:
    """Repeatable: a study that is in that state already stays in it."""
    return _post(path("studies", name, action), Study, repeatable=True)


def put_initial_model(name: str, body: bytes) -> Call[ModelInfo]:
    return Call("PUT", path("studies", name, "models", 0), _as(ModelInfo), body, OCTETS)


def invite(name: str, invitation: InvitationCreate) -> Call[Invitation]:
    """Not repeatable: every invitation has a token of its own."""
    return _post(path("studies", name, "invitations"), Invitation, invitation, repeatable=False)


def enrol(request: EnrolmentRequest) -> Call[Enrolment]:
    """Repeatable although a POST: the same token with the same key is given the same answer."""
    return Call(
        "POST",
        path("enrolments"),
        _as(Enrolment),
        request.model_dump_json().encode(),
        JSON,
        repeatable=True,
        open=True,
    )


def roster(name: str, round: int | None = None) -> Call[Roster]:
    """The members now, or those that the assignment of `round` names."""
    return get(query(path("studies", name, "roster"), round=round), Roster)


def rotate_key(name: str, client: str, rotation: KeyRotation) -> Call[None]:
    target = path("studies", name, "clients", client, "key")
    return Call("PUT", target, nothing, rotation.model_dump_json().encode(), JSON)


def leave(name: str, client: str, how: Literal["revoked", "withdrawn"]) -> Call[None]:
    return Call("PUT", path("studies", name, "clients", client, how), nothing)


def assignment(name: str, wait_seconds: float = POLL_SECONDS) -> Call[Assignment | None]:
    """None: nothing to do yet."""

    def read(answer: Answer) -> Assignment | None:
        return None if answer.status == 204 else _as(Assignment)(answer)

    target = query(path("studies", name, "assignment"), wait=f"{wait_seconds:g}")
    return Call("GET", target, read, quiet_seconds=wait_seconds)


def model(name: str, version: Version = "latest", *, largest: int = LARGEST_MODEL) -> Call[bytes]:
    """The model's bytes; checked against the digest that the answer itself names.

    largest: most bytes to accept.
    """

    def read(answer: Answer) -> bytes:
        named = answer.headers.get("etag", "").removeprefix("W/").strip('"')
        if named != hashlib.sha256(answer.body).hexdigest():
            raise UnexpectedAnswer("the model that arrived is not the one the coordinator named", answer.request_id)
        return answer.body

    return Call("GET", path("studies", name, "models", version), read, answer_limit=largest)


def put_update(name: str, round: int, client: str, body: bytes) -> Call[UpdateReceipt]:
    return Call("PUT", path("studies", name, "rounds", round, "updates", client), _as(UpdateReceipt), body, OCTETS)


def put_refusal(name: str, round: int, client: str, refusal: Refusal) -> Call[None]:
    target = path("studies", name, "rounds", round, "refusals", client)
    return Call("PUT", target, nothing, refusal.model_dump_json().encode(), JSON)


def put_metrics(name: str, version: int, metrics: Metrics) -> Call[None]:
    target = path("studies", name, "models", version, "metrics")
    return Call("PUT", target, nothing, metrics.model_dump_json().encode(), JSON)


def budget(name: str) -> Call[BudgetStatement]:
    return get(path("studies", name, "budget"), BudgetStatement)


def ledger(name: str, after: int = 0, limit: int | None = None) -> Call[LedgerPage]:
    return get(query(path("studies", name, "ledger"), after=after, limit=limit), LedgerPage)


def rounds(name: str, after: str | None = None) -> Call[RoundList]:
    return get(query(path("studies", name, "rounds"), after=after), RoundList)


def round_view(name: str, round: int) -> Call[RoundView]:
    return get(path("studies", name, "rounds", round), RoundView)


def create_operator_key(key: OperatorKeyCreate) -> Call[OperatorKeyView]:
    return _post(path("operator-keys"), OperatorKeyView, key, repeatable=False)


def operator_keys() -> Call[OperatorKeyList]:
    return get(path("operator-keys"), OperatorKeyList)


def revoke_operator_key(id: str) -> Call[None]:
    return Call("DELETE", path("operator-keys", id), nothing)


def health(what: Literal["livez", "readyz"]) -> Call[Mapping[str, str]]:
    """The answer's headers; `date` tells the coordinator's clock to the second."""
    return Call("GET", f"/{what}", lambda answer: answer.headers, open=True)
