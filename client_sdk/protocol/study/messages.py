"""Everything that travels as JSON between a hospital, an operator and the coordinator."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from client_sdk.protocol.secure_sum.messages import SignedParameters
from client_sdk.protocol.study.settings import LevelName, StudySettings
from client_sdk.protocol.study.values import Finite, Message, Name, Positive, Sha256
from client_sdk.protocol.wire.signing import SigningError, decode_public_key
from client_sdk.protocol.wire.text import Text


def _is_a_key(text: str) -> str:
    try:
        decode_public_key(text)
    except SigningError as error:
        raise ValueError(error.detail) from error
    return text


# 32 and 64 bytes in unpadded base64url.
EncodedKey = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]{43}$", description="raw Ed25519 public key, base64url"),
    AfterValidator(_is_a_key),
]
Signature = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{86}$", description="Ed25519 signature, base64url")]

StudyState = Literal["draft", "enrolling", "running", "paused", "finished"]
StopReason = Literal["max-steps-reached", "budget-exhausted", "stopped", "database-differs"]
RoundState = Literal["collecting", "settled", "released", "abandoned", "stopped"]
ClientState = Literal["active", "revoked", "withdrawn"]


class Problem(Message):
    """application/problem+json (RFC 9457). `code` is stable; `detail` says what to do next."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    fields: list[str] | None = None
    server_time: float | None = None
    retry_after_seconds: float | None = None
    extra: dict[str, Any] | None = None


class StudyCreate(Message):
    study: Name
    title: Text = Field(default="", max_length=200)
    settings: StudySettings


class ModelInfo(Message):
    version: int = Field(ge=0)
    sha256: Sha256
    bytes: int = Field(gt=0)


class Study(Message):
    study: Name
    title: Text
    state: StudyState
    stop_reason: StopReason | None
    settings: StudySettings
    settings_sha256: Sha256
    model: ModelInfo | None
    clients: int
    rounds: int
    coordinator_key: EncodedKey
    created_at: AwareDatetime


class StudyList(Message):
    studies: list[Study]
    next: str | None = None


class InvitationCreate(Message):
    client: Name
    expires_in_seconds: Annotated[int, Field(ge=60, le=90 * 86400)] = 7 * 86400


class Invitation(Message):
    """`token` is shown once. Its last part is the fingerprint of the coordinator's key, for the client to pin."""

    study: Name
    client: Name
    token: str
    expires_at: AwareDatetime


class EnrolmentRequest(Message):
    """`proof` signs {"invitation": id part of the token, "key": public_key} under the enrolment label."""

    token: str = Field(max_length=256)
    public_key: EncodedKey
    proof: Signature


class Enrolment(Message):
    study: Name
    client: Name
    coordinator_key: EncodedKey
    origin: Text


class RosterEntry(Message):
    client: Name
    public_key: EncodedKey
    state: ClientState


class Roster(Message):
    """`fingerprint` covers the active members only."""

    study: Name
    members: list[RosterEntry]
    fingerprint: Sha256


class KeyRotation(Message):
    """Signed as a request by the old key; `proof` is the new key's signature over {"client", "study", "key"}."""

    public_key: EncodedKey
    proof: Signature


class LedgerHead(Message):
    """How long the ledger is and the hash that its whole past hangs on."""

    study: Name
    entries: int = Field(ge=0)
    sha256: Sha256


class SignedLedgerHead(Message):
    head: LedgerHead
    signature: Signature


class AssignmentBody(Message):
    study: Name
    client: Name
    round: int = Field(ge=1)
    phase: Literal["train"]
    deadline: AwareDatetime
    model: ModelInfo
    settings_sha256: Sha256
    roster_sha256: Sha256
    ledger: LedgerHead


class Assignment(Message):
    """Signed by the coordinator under the assignment label over the JSON of `assignment`.

    session  of a round that sums under masks: its parameters, under a signature of their own
    """

    assignment: AssignmentBody
    signature: Signature
    session: SignedParameters | None = None


class UpdateReceipt(Message):
    study: Name
    round: int
    client: Name
    sha256: Sha256
    bytes: int


class Refusal(Message):
    """A hospital's no. `code` is machine-readable, `detail` must not hold anything about patients."""

    code: str = Field(pattern=r"^[a-z0-9-]{1,64}$")
    detail: Text = Field(default="", max_length=500)


class Metrics(Message):
    """Measured on a declared evaluation set outside the guarantee."""

    evaluation_set: Text = Field(min_length=1, max_length=200)
    values: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")], Finite] = Field(min_length=1, max_length=32)


class Spent(Message):
    """What one limit had spent at some time; epsilon is the limit."""

    level: LevelName
    definition: Literal["classical", "bayesian"]
    epsilon: Positive
    spent: Finite


class RoundClient(Message):
    client: Name
    state: Literal["sampled", "received", "refused", "missing"]
    sha256: Sha256 | None
    refusal: Refusal | None


class RoundView(Message):
    """One round as everybody may see it; `clients` (names, digests) only for operators.

    spent  per limit, as the budget said once this round was charged; null while it is under way
    """

    round: int
    state: RoundState
    model_version: int | None
    started_at: AwareDatetime
    deadline: AwareDatetime | None
    ended_at: AwareDatetime | None
    reason: Text | None
    metrics: Metrics | None
    spent: list[Spent] | None
    clients: list[RoundClient] | None


class RoundList(Message):
    rounds: list[RoundView]
    next: str | None = None


class LedgerEntry(Message):
    sequence: int = Field(ge=1)
    kind: Text
    round: int | None
    body: dict[str, Any]
    previous: Sha256
    sha256: Sha256


class WitnessedHead(Message):
    """One hospital saw the ledger up to this head, and found in it nothing that it knows to be otherwise.

    signature  by `public_key` under the witness label over {"client"} and the fields of `head`
    """

    client: Name
    public_key: EncodedKey
    head: LedgerHead
    signature: Signature


class LedgerPage(Message):
    """`witnesses`: the newest head that each hospital has signed, by name."""

    entries: list[LedgerEntry]
    head: SignedLedgerHead
    witnesses: list[WitnessedHead] = Field(default_factory=list[WitnessedHead])
    next: str | None = None


class Percentile(Message):
    population: Finite
    epsilon: Finite
    delta: Finite


class Report(Message):
    """A tighter number beside the enforced one, valid under what its certificate says."""

    name: Text
    epsilon: Finite | None
    certificate: dict[str, Any]


class LimitStatement(Message):
    """One limit. epsilon None with state `unbounded`: the scheme does not protect this level.

    ε is not additive: reserved = ε(ledger + reservation) − ε(ledger), remaining = limit − ε(ledger + reservation).
    """

    level: LevelName
    definition: Literal["classical", "bayesian"]
    state: Literal["within", "exhausted", "unbounded"]
    epsilon: Positive | None
    delta: Positive | None
    enforced_by: Text | None
    spent: Finite | None
    reserved: Finite | None
    remaining: Finite | None
    observer: Text | None
    attack_success: Finite | None
    rounds_left_estimate: int | None
    certificate: dict[str, Any] | None
    reports: list[Report]


class BudgetLedger(Message):
    entries: int
    head: str
    signature: Signature


class BudgetStatement(Message):
    study: Name
    state: StudyState
    round: int
    max_steps: int
    can_continue: bool
    stop_reason: StopReason | None
    limits: list[LimitStatement]
    percentiles: list[Percentile]
    ledger: BudgetLedger


class OperatorKeyCreate(Message):
    role: Literal["operator", "viewer"]
    label: Text = Field(default="", max_length=100)


class OperatorKeyView(Message):
    """`key` (`wrk_<id>_<secret>`) is shown once."""

    id: str
    role: Literal["operator", "viewer"]
    label: Text
    key: str | None
    created_at: AwareDatetime
    revoked_at: datetime | None


class OperatorKeyList(Message):
    keys: list[OperatorKeyView]


class Event(Message):
    """One line of the dashboard's stream."""

    id: int
    kind: Text
    study: Name
    round: int | None
    at: AwareDatetime
