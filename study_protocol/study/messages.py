"""Everything that travels as JSON between a hospital, a person and the coordinator."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from study_protocol.study.any_settings import Settings
from study_protocol.study.limit_statement import LimitStatement, Spent
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.queries import QueryAsked
from study_protocol.wire.octets import EncodedKey, Octets, Signature, SignatureOctets, as_text
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message, Name, Positive, Sha256

StudyState = Literal["draft", "enrolling", "running", "paused", "finished"]
StopReason = Literal[
    "max-steps-reached", "max-queries-reached", "budget-exhausted", "stopped", "deleted", "database-differs"
]
RoundState = Literal["collecting", "settled", "released", "abandoned", "stopped"]
ClientState = Literal["active", "revoked", "withdrawn"]


class Problem(Message):
    """application/problem+json (RFC 9457). `code` is stable, and `detail` says what to do next."""

    type: str = Field(description="urn:wardround:problem: and the code")
    title: str = Field(description="what it is, for people")
    status: int = Field(description="the HTTP status")
    code: str = Field(description="stable, for programs")
    detail: str = Field(description="what to do next")
    request_id: str = Field(description="as in the header X-Request-Id")
    fields: list[str] | None = Field(default=None, description="where the request is wrong, in the API's own words")
    server_time: float | None = Field(default=None, description="of clock-skew: seconds since the epoch")
    retry_after_seconds: float | None = Field(default=None, description="when the same request is worth a try")
    extra: dict[str, Any] | None = Field(default=None, description="more numbers, by code")


class StudyCreate(Message):
    study: Name = Field(description="its name from then on")
    title: Text = Field(default="", max_length=200, description="for people")
    settings: Settings = Field(description="frozen from then on")


class PauseReason(Message):
    """Why a study is paused."""

    code: Text = Field(description="`operator`, or what rounds were abandoned for again and again")
    detail: Text = Field(description="the setting that it hangs on, and what to do")


class RoundUnderWay(Message):
    """The numbers of hospitals, never their names.

    Null counts: the study credits the sampling of clients and hides them.
    """

    round: int = Field(ge=1, description="its number")
    asked: int | None = Field(ge=0, description="how many hospitals are asked")
    present: int | None = Field(ge=0, description="how many of them have said anything in it, a refusal included")
    deadline: AwareDatetime = Field(description="until when updates are taken")


class Study(Message):
    study: Name = Field(description="its name")
    title: Text = Field(description="for people")
    state: StudyState = Field(description="how far it has come")
    state_since: AwareDatetime = Field(description="when it came to this state")
    pause_reason: PauseReason | None = Field(description="why it is paused")
    stop_reason: StopReason | None = Field(description="why it is finished")
    resumed_at: AwareDatetime | None = Field(
        default=None,
        exclude_if=lambda at: at is None,
        description="when it last resumed by itself, because enough hospitals were back. Not shown to hospitals",
    )
    settings: Settings = Field(description="as frozen at its creation")
    settings_sha256: Sha256 = Field(description="SHA-256 of their canonical JSON, which assignments name")
    model: ModelInfo | None = Field(description="the newest model, null before the first")
    clients: int = Field(description="how many hospitals have enrolled and take part")
    invited: int = Field(description="how many are expected: those, and the holders of open invitations")
    rounds: int = Field(description="how many have begun")
    under_way: RoundUnderWay | None = Field(description="the round that hospitals are asked in now")
    coordinator_key: EncodedKey = Field(description="what assignments and ledger heads are signed with")
    created_at: AwareDatetime = Field(description="when it was opened")


class StudyList(Message):
    studies: list[Study] = Field(description="in order of their names")
    next: str | None = Field(default=None, description="ask for more with `after`, null at the end")


class InvitationCreate(Message):
    client: Name = Field(description="the name that the hospital will have")
    expires_in_seconds: Annotated[int, Field(ge=60, le=90 * 86400)] = Field(
        default=7 * 86400, description="how long it can be used"
    )


class Invitation(Message):
    """`token` is shown once. Its last part is the fingerprint of the coordinator's key, for the client to pin."""

    study: Name = Field(description="where it admits to")
    client: Name = Field(description="whom it admits")
    token: str = Field(description="the token with which the hospital enrols, shown once")
    expires_at: AwareDatetime = Field(description="until when it can be used")


class EnrolmentRequest(Message):
    """`proof` signs {"invitation": id part of the token, "key": public_key} under the enrolment label."""

    token: str = Field(max_length=256, description="as the lead gave it")
    public_key: EncodedKey = Field(description="the hospital's new identity")
    proof: Signature = Field(description="by that key")


class Enrolment(Message):
    study: Name = Field(description="which study")
    client: Name = Field(description="the hospital's name in it")
    coordinator_key: EncodedKey = Field(description="to pin")
    origin: Text = Field(description="the public origin that requests are signed for")


class RosterEntry(Message):
    client: Name = Field(description="its name")
    public_key: EncodedKey = Field(description="its identity")
    state: ClientState = Field(description="whether it takes part")


class Roster(Message):
    """`fingerprint` covers the active members only."""

    study: Name = Field(description="which study")
    members: list[RosterEntry] = Field(description="in order of their names")
    fingerprint: Sha256 = Field(description="SHA-256 over the active members, which hospitals compare by telephone")


class KeyRotation(Message):
    """A request signed by the old key. `proof` is the new key's signature over {"client", "study", "key"}."""

    public_key: EncodedKey = Field(description="the new identity")
    proof: Signature = Field(description="by the new key")


class LedgerHead(Message):
    """How long the ledger is and the hash that its whole past hangs on."""

    study: Name = Field(description="whose ledger")
    entries: int = Field(ge=0, description="how many entries it has")
    sha256: Sha256 = Field(description="hash of the newest entry")


class SignedLedgerHead(Message):
    head: LedgerHead = Field(description="what is signed")
    signature: Signature = Field(description="by the coordinator, or by the hospital that vouches")


class AssignmentBody(Message):
    study: Name = Field(description="which study")
    client: Name = Field(description="who is asked")
    round: int = Field(ge=1, description="from 1")
    phase: Literal["train", "query"] = Field(description="what to do: a round of training, or a query's")
    deadline: AwareDatetime = Field(description="until when an update is taken")
    model: ModelInfo | None = Field(description="the model to start from, null in a query's round")
    query: QueryAsked | None = Field(default=None, description="what is asked in a query's round")
    # Left out of what is signed where there is none: assignments of other studies keep their bytes.
    attempt: int | None = Field(
        default=None,
        ge=1,
        exclude_if=lambda attempt: attempt is None,
        description="place of this round of training in the study's noise schedule, from 1. Left out without one",
    )
    settings_sha256: Sha256 = Field(description="digest of the study's settings")
    roster_sha256: Sha256 = Field(description="fingerprint of the roster")
    ledger: LedgerHead = Field(description="the ledger with this round's reservation")


class SignedParameters(Message):
    """The bytes themselves are signed, so that no re-serialisation stands between signer and verifier.

    parameters  canonical JSON in base64url, as signed
    signature   the coordinator's Ed25519 over their statement, in base64url
    """

    parameters: Annotated[Octets, Field(max_length=65_536), as_text(0, 65_536)]
    signature: SignatureOctets


class Assignment(Message):
    """Signed by the coordinator under the assignment label over the JSON of `assignment`.

    session  of a round that sums under masks: its parameters, under a signature of their own
    """

    assignment: AssignmentBody = Field(description="what is signed")
    signature: Signature = Field(description="by the coordinator")
    session: SignedParameters | None = Field(default=None, description="of a round that sums under masks")


class UpdateReceipt(Message):
    study: Name = Field(description="which study")
    round: int = Field(description="which round")
    client: Name = Field(description="who sent it")
    sha256: Sha256 = Field(description="SHA-256 of the update")
    bytes: int = Field(description="its size")


class Refusal(Message):
    """A hospital's no. `code` is machine-readable, `detail` must not hold anything about patients."""

    code: str = Field(pattern=r"^[a-z0-9-]{1,64}$", description="why, for programs")
    detail: Text = Field(default="", max_length=500, description="why, for people, without data of patients")


class Metrics(Message):
    """Measured on a declared evaluation set outside the guarantee."""

    evaluation_set: Text = Field(min_length=1, max_length=200, description="on which records")
    values: dict[Annotated[str, Field(pattern=r"^[a-z0-9_]{1,64}$")], Finite] = Field(
        min_length=1, max_length=32, description="by name"
    )


class RoundClient(Message):
    client: Name = Field(description="its name")
    state: Literal["sampled", "received", "refused", "missing"] = Field(description="what became of it")
    sha256: Sha256 | None = Field(description="of its update")
    refusal: Refusal | None = Field(description="its no")


class RoundView(Message):
    """One round as all members may see it. `clients` (names, digests) is only for administrators, leads and auditors.

    spent  per limit, as the budget said once this round was charged, null while it is under way
    """

    round: int = Field(description="from 1")
    state: RoundState = Field(description="how far it has come")
    model_version: int | None = Field(description="the model that it made")
    started_at: AwareDatetime = Field(description="when it was reserved")
    deadline: AwareDatetime | None = Field(description="until when updates are taken")
    ended_at: AwareDatetime | None = Field(description="when it was released, abandoned or stopped")
    reason: Text | None = Field(description="why it failed")
    query: int | None = Field(default=None, description="the query that it answers, null for a round of training")
    metrics: Metrics | None = Field(description="of its model")
    clip_norm: Positive | None = Field(
        default=None,
        exclude_if=lambda value: value is None,
        description="of the rounds that start from its model, where the study's clip norm is adaptive",
    )
    spent: list[Spent] | None = Field(description="per limit, once this round was charged. null while it is under way")
    clients: list[RoundClient] | None = Field(description="who was drawn, for those who may see it")


class RoundList(Message):
    rounds: list[RoundView] = Field(description="in order of their numbers")
    next: int | None = Field(default=None, description="ask for more with `after`, null at the end")


class LedgerEntry(Message):
    sequence: int = Field(ge=1, description="from 1, without gaps")
    kind: Text = Field(description="what happened")
    round: int | None = Field(description="the round it belongs to")
    body: dict[str, Any] = Field(description="what was hashed, as JSON")
    previous: Sha256 = Field(description="hash of the entry before")
    sha256: Sha256 = Field(description="hash of this entry")


class WitnessedHead(Message):
    """One hospital saw the ledger up to this head, and found no entry in it that it knows to be otherwise.

    signature  by `public_key` under the witness label over {"client"} and the fields of `head`
    """

    client: Name = Field(description="who saw it")
    public_key: EncodedKey = Field(description="the key it signed with")
    head: LedgerHead = Field(description="what it saw")
    signature: Signature = Field(description="by that key, over the client's name and the head")


class LedgerPage(Message):
    """`witnesses`: the newest head that each hospital has signed, by name."""

    entries: list[LedgerEntry] = Field(description="above `after`, in order")
    head: SignedLedgerHead = Field(description="of the whole ledger, signed by the coordinator")
    witnesses: list[WitnessedHead] = Field(
        default_factory=list[WitnessedHead], description="the newest head that each hospital has signed"
    )
    next: int | None = Field(default=None, description="ask for more with `after`, null at the end")


class Percentile(Message):
    population: Finite = Field(description="share of the population that has (epsilon, delta)")
    epsilon: Finite = Field(description="ε so far")
    delta: Finite = Field(description="δ for this share, by Markov")


class BudgetLedger(Message):
    entries: int = Field(description="length of the ledger")
    head: str = Field(description="hash of its newest entry")
    signature: Signature = Field(description="the coordinator's, on the head")


class BudgetStatement(Message):
    study: Name = Field(description="which study")
    state: StudyState = Field(description="how far it has come")
    round: int = Field(description="the newest that reserved")
    max_steps: int = Field(description="most noised steps")
    can_continue: bool = Field(description="whether another round may begin")
    pause_reason: PauseReason | None = Field(description="why it is paused")
    stop_reason: StopReason | None = Field(description="why it is finished")
    limits: list[LimitStatement] = Field(description="one for each limit of the settings")
    percentiles: list[Percentile] = Field(description="ε by share of the population, where it is measured")
    ledger: BudgetLedger = Field(description="what the numbers were computed from")

    @property
    def takes_questions(self) -> bool:
        """Whether all rounds of a study that trains are done, and questions may follow. False: one is under way."""
        limits = [limit for limit in self.limits if limit.epsilon is not None]
        # A study without questions cannot continue after its last round, but can while that is under way.
        is_open = self.state == "running" and self.can_continue and not any(limit.is_reserved for limit in limits)
        return is_open and self.max_steps > 0 and 0 in [limit.rounds_left_estimate for limit in limits]


class StudyEvent(Message):
    """One line of the dashboard's stream."""

    id: int = Field(description="number within the study, without gaps")
    kind: Text = Field(description="what happened")
    study: Name = Field(description="where")
    round: int | None = Field(description="in which round")
    at: AwareDatetime = Field(description="when")
