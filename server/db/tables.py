"""The tables. Every invariant that the database can keep is a CHECK, and the migrations build exactly this.

Times are seconds since the epoch on the database's clock. `written_by` is the transaction that last wrote a row.
A secure sum has one session a round, with every client's messages. After the round its octets and shares are erased.
"""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from accounting.budget.ledger import Kind
from server.db.table_base import LARGE, NAME, SHA256, Base, hexadecimal, index_where, one_of
from server.domain.secure_sum_session import Failure, Phase
from study_protocol.study.messages import ClientState, RoundState, StopReason, StudyState

Answer = Literal["sampled", "received", "refused", "missing"]
Step = Literal["keys", "shares", "manifest", "consistency", "unmask", "left"]
_OF_NO_ROUND = "kind IN ('opened', 'roster', 'operated', 'finished')"
_IS_ENDING = "kind IN ('settled', 'charged-in-full', 'cancelled')"


class StudyRow(Base):
    """One federated study. `version` counts its events, so watchers compare one number."""

    __tablename__ = "studies"
    __table_args__ = (
        one_of("state", StudyState),
        one_of("stop_reason", StopReason),
        CheckConstraint("(state = 'finished') = (stop_reason IS NOT NULL)", name="finished_for_a_reason"),
        CheckConstraint("(state = 'paused') = (pause_reason IS NOT NULL)", name="paused_for_a_reason"),
        CheckConstraint("version >= 0 AND quorum >= 1 AND abandoned_in_a_row >= 0", name="counts"),
    )

    # Not BigInteger: SQLite numbers rows by itself only where the type is INTEGER.
    id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="internal")
    name: Mapped[str] = mapped_column(NAME, unique=True, comment="public name")
    title: Mapped[str] = mapped_column(String(200), comment="for people")
    state: Mapped[StudyState] = mapped_column(String(16), comment="draft, enrolling, running, paused, finished")
    state_since: Mapped[float] = mapped_column(comment="when it came to this state")
    pause_reason: Mapped[str | None] = mapped_column(String(64), comment="why it is paused")
    stop_reason: Mapped[StopReason | None] = mapped_column(String(32), comment="why it is finished")
    settings: Mapped[dict[str, Any]] = mapped_column(comment="StudySettings, frozen at creation")
    settings_sha256: Mapped[str] = mapped_column(SHA256, comment="digest that assignments name")
    model_spec: Mapped[dict[str, Any] | None] = mapped_column(comment="names, shapes, types; set by model 0")
    roster_sha256: Mapped[str] = mapped_column(SHA256, comment="fingerprint of the active members")
    version: Mapped[int] = mapped_column(default=0, comment="number of its newest event")
    quorum: Mapped[int] = mapped_column(Integer, comment="active clients without whom no round begins")
    abandoned_in_a_row: Mapped[int] = mapped_column(
        Integer, default=0, comment="rounds since the last release or resumption that came to nothing"
    )
    resumed_alone: Mapped[int] = mapped_column(
        Integer, server_default=text("0"), comment="times since then that it resumed by itself"
    )
    resumed_at: Mapped[float | None] = mapped_column(comment="when it last did so")
    next_round_at: Mapped[float] = mapped_column(default=0.0, comment="no round begins before")
    protocol: Mapped[int] = mapped_column(Integer, server_default=text("1"), comment="least number of the protocol")
    created_at: Mapped[float] = mapped_column(comment="when it was opened")


class BudgetRow(Base):
    """The privacy budget of one study and its ready-made statement for GET budget, for a history of any length."""

    __tablename__ = "budgets"
    __table_args__ = (CheckConstraint("entries >= 1", name="entries"), hexadecimal("head_sha256", "head"))

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="whose budget")
    state: Mapped[dict[str, Any]] = mapped_column(
        comment="running state of the accountants, replayable from the ledger"
    )
    can_continue: Mapped[bool] = mapped_column(comment="whether another round would be authorised")
    max_steps: Mapped[int] = mapped_column(comment="most noised steps")
    round: Mapped[int] = mapped_column(Integer, comment="newest round that reserved")
    limits: Mapped[list[Any]] = mapped_column(comment="ready-made limit statements")
    percentiles: Mapped[list[Any]] = mapped_column(comment="ready-made percentile curve")
    entries: Mapped[int] = mapped_column(comment="length of the ledger")
    head_sha256: Mapped[str] = mapped_column(SHA256, comment="hash of the newest entry")
    signature: Mapped[str] = mapped_column(String(86), comment="the coordinator's signature on the head")


class LedgerRow(Base):
    """The append-only ledger. Triggers refuse UPDATE and DELETE."""

    __tablename__ = "ledger"
    __table_args__ = (
        one_of("kind", Kind),
        CheckConstraint("sequence >= 1", name="sequence"),
        CheckConstraint(f"kind = 'released' OR (round IS NULL) = ({_OF_NO_ROUND})", name="round_of_its_kind"),
        hexadecimal("sha256", "sha256"),
        hexadecimal("previous", "previous"),
        Index("uq_ledger_one_kind_per_round", "study_id", "round", "kind", unique=True),
        # A second end of a round fails here: a charge is neither doubled nor taken back.
        index_where(_IS_ENDING, "uq_ledger_one_ending_per_round", "study_id", "round"),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="whose ledger")
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, comment="from 1, no gaps")
    kind: Mapped[Kind] = mapped_column(String(16), comment="what happened")
    round: Mapped[int | None] = mapped_column(Integer, comment="the round it belongs to")
    body: Mapped[str] = mapped_column(Text, comment="canonical JSON, exactly the hashed text")
    previous: Mapped[str] = mapped_column(SHA256, comment="hash of the entry before")
    sha256: Mapped[str] = mapped_column(SHA256, comment="hash of this entry")
    written_at: Mapped[float] = mapped_column(comment="when it was appended")


class WitnessRow(Base):
    """The newest head of the ledger that each client, and each outside witness, has signed."""

    __tablename__ = "witnesses"
    __table_args__ = (CheckConstraint("entries >= 1", name="entries"), hexadecimal("sha256", "sha256"))

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="whose ledger")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who signed")
    public_key: Mapped[str] = mapped_column(String(43), comment="the key it signed with")
    entries: Mapped[int] = mapped_column(comment="up to which entry")
    sha256: Mapped[str] = mapped_column(SHA256, comment="hash of that entry")
    signature: Mapped[str] = mapped_column(String(86), comment="the client's, on the head")


class InvitationRow(Base):
    """One-time tokens. Only the hash of the secret is kept."""

    __tablename__ = "invitations"
    __table_args__ = (
        hexadecimal("secret_sha256", "secret"),
        CheckConstraint("(used_at IS NULL) = (used_by_key IS NULL)", name="used_by_somebody"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, comment="public part of the token")
    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), index=True, comment="which study")
    client: Mapped[str] = mapped_column(NAME, comment="which client name it admits")
    secret_sha256: Mapped[str] = mapped_column(SHA256, comment="SHA-256 of the secret part")
    expires_at: Mapped[float] = mapped_column(comment="until when it can be used")
    used_at: Mapped[float | None] = mapped_column(comment="when it was used")
    used_by_key: Mapped[str | None] = mapped_column(String(43), comment="the public key that enrolled with it")


class ClientRow(Base):
    """One hospital in one study."""

    __tablename__ = "clients"
    __table_args__ = (one_of("state", ClientState),)

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    name: Mapped[str] = mapped_column(NAME, primary_key=True, comment="public name")
    public_key: Mapped[str] = mapped_column(String(43), comment="Ed25519 identity, base64url")
    state: Mapped[ClientState] = mapped_column(String(16), comment="active, revoked, withdrawn")
    enrolled_at: Mapped[float] = mapped_column(comment="when it enrolled")
    seen_at: Mapped[float | None] = mapped_column(comment="when it last asked for a round while the study lacked some")
    lacking_columns: Mapped[list[Any] | None] = mapped_column(
        comment="columns that its table lacks, of those that may; none: not told"
    )
    # Of a hospital's own word, and asked for by column: a wrong value there is shown as unknown and stops no study.
    program: Mapped[str | None] = mapped_column(
        String(64), **LARGE, comment="version of its program, as its newest signed request says; none: not known"
    )
    protocol: Mapped[int | None] = mapped_column(
        Integer, **LARGE, comment="number of the protocol that this program speaks"
    )
    program_since: Mapped[float | None] = mapped_column(**LARGE, comment="when this version or this number was new")


class UsedTokenRow(Base):
    """Request tokens that may be used once, until they expire anyway."""

    __tablename__ = "used_tokens"

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who signed it")
    token_id: Mapped[str] = mapped_column(String(64), primary_key=True, comment="its jti")
    forget_at: Mapped[float] = mapped_column(index=True, comment="when it cannot be valid any more")


class RoundRow(Base):
    """One round. `noised_sha256` is committed before anything that depends on the noise can be read."""

    __tablename__ = "rounds"
    __table_args__ = (
        one_of("state", RoundState),
        CheckConstraint("number >= 1", name="number"),
        CheckConstraint("(query IS NULL) = (base_version IS NOT NULL)", name="trains_or_asks"),
        CheckConstraint("(state IN ('released', 'abandoned', 'stopped')) = (ended_at IS NOT NULL)", name="ended"),
        CheckConstraint("scrubbed_at IS NULL OR ended_at IS NOT NULL", name="scrubbed_after_its_end"),
        # Two workers that open a round at once: one of them fails.
        index_where("ended_at IS NULL", "uq_rounds_one_open", "study_id"),
        # Workers look through these several times a second: the index does not grow with the history.
        index_where("scrubbed_at IS NULL", "ix_rounds_unscrubbed", "study_id", "number", unique=False),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="from 1")
    state: Mapped[RoundState] = mapped_column(String(16), comment="how far it has come")
    reason: Mapped[str | None] = mapped_column(String(64), comment="why it came to nothing")
    base_version: Mapped[int | None] = mapped_column(Integer, comment="the model that its clients start from")
    query: Mapped[int | None] = mapped_column(Integer, comment="the query that it answers; none: it trains")
    started_at: Mapped[float] = mapped_column(comment="when it was reserved")
    deadline: Mapped[float] = mapped_column(comment="until when updates are taken")
    ended_at: Mapped[float | None] = mapped_column(comment="when it was released, abandoned or stopped")
    noised_sha256: Mapped[str | None] = mapped_column(SHA256, comment="the noised sum, drawn once")
    scrubbed_at: Mapped[float | None] = mapped_column(comment="when its updates were deleted")
    spent: Mapped[list[Any] | None] = mapped_column(comment="what each limit had spent once this round was charged")


class ParticipantRow(Base):
    """One sampled client in one round. After scrubbing the hash stays, the payload is gone."""

    __tablename__ = "participants"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["rounds.study_id", "rounds.number"]),
        ForeignKeyConstraint(["study_id", "client"], ["clients.study_id", "clients.name"]),
        one_of("state", Answer),
        CheckConstraint("(state = 'received') = (sha256 IS NOT NULL)", name="received_has_a_hash"),
        CheckConstraint("(state = 'refused') = (refusal_code IS NOT NULL)", name="refused_has_a_code"),
        # The charge depends on `sending_since`, so no update may be there without it.
        CheckConstraint("state <> 'received' OR sending_since IS NOT NULL", name="received_was_sent"),
        CheckConstraint("distance IS NULL OR distance >= 0", name="distance"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who was sampled")
    state: Mapped[Answer] = mapped_column(String(16), comment="sampled, received, refused, missing")
    sending_since: Mapped[float | None] = mapped_column(comment="when the first byte of an update was let in")
    answered_at: Mapped[float | None] = mapped_column(comment="when the update or the refusal was recorded")
    sha256: Mapped[str | None] = mapped_column(SHA256, comment="the update")
    bytes: Mapped[int | None] = mapped_column(comment="its size")
    distance: Mapped[float | None] = mapped_column(comment="its norm on the scale of the clip norm, rounded up")
    log_moments: Mapped[dict[str, Any] | None] = mapped_column(comment="the client's cumulative log-moment bounds")
    refusal_code: Mapped[str | None] = mapped_column(String(64), comment="why the hospital said no")
    refusal_detail: Mapped[str | None] = mapped_column(String(500), comment="in its words")


class ModelRow(Base):
    """Published models. Version = the round that made it. 0 is the initial one."""

    __tablename__ = "models"
    __table_args__ = (
        CheckConstraint("version >= 0", name="version"),
        CheckConstraint("bytes > 0", name="bytes"),
        CheckConstraint("clip_norm IS NULL OR clip_norm > 0", name="clip_norm"),
        hexadecimal("sha256", "sha256"),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    version: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="round that made it")
    sha256: Mapped[str] = mapped_column(SHA256, comment="the file")
    bytes: Mapped[int] = mapped_column(comment="its size")
    optimiser_sha256: Mapped[str | None] = mapped_column(SHA256, comment="server optimiser after this release")
    metrics: Mapped[dict[str, Any] | None] = mapped_column(comment="measured outside the guarantee")
    created_at: Mapped[float] = mapped_column(comment="when it was published")
    clip_norm: Mapped[float | None] = mapped_column(comment="of the rounds that start from it, where it is adaptive")


class EventRow(Base):
    """Events of a study, for the dashboard. They hold only what a viewer may see."""

    __tablename__ = "events"

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, comment="from 1, no gaps")
    kind: Mapped[str] = mapped_column(String(32), comment="for example round-released")
    round: Mapped[int | None] = mapped_column(Integer, comment="which round")
    at: Mapped[float] = mapped_column(comment="when")


class LeaseRow(Base):
    """The worker that moves a study's rounds on. `fence` grows with every change of hands, and commits name it."""

    __tablename__ = "leases"
    __table_args__ = (CheckConstraint("fence >= 0", name="fence"),)

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    owner: Mapped[str | None] = mapped_column(String(64), comment="the worker that holds it")
    fence: Mapped[int] = mapped_column(default=0, comment="fencing number")
    expires_at: Mapped[float] = mapped_column(default=0.0, comment="from when on another worker may take it")


class SessionRow(Base):
    """One session: its signed parameters, its phase, and the sets that froze on the way.

    Columns that grow with the clients are loaded on demand: most requests only need to know how far the session has
    come.
    """

    __tablename__ = "secure_sum_sessions"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["rounds.study_id", "rounds.number"]),
        one_of("phase", Phase),
        CheckConstraint("(phase = 'failed') = (failure IS NOT NULL)", name="failed_for_a_reason"),
        CheckConstraint("(phase = 'summed') = (result IS NOT NULL)", name="summed_has_a_result"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    parameters: Mapped[bytes] = mapped_column(LargeBinary, **LARGE, comment="canonical JSON, as signed")
    signature: Mapped[bytes] = mapped_column(LargeBinary, comment="the coordinator's, over the parameters")
    roster: Mapped[dict[str, Any]] = mapped_column(**LARGE, comment="identity key of every client that may take part")
    members: Mapped[dict[str, Any] | None] = mapped_column(
        **LARGE,
        comment="identity key of every active member at the opening; the fingerprint in the parameters is theirs",
    )
    version: Mapped[int] = mapped_column(default=0, comment="grows with everything that is written of the session")
    phase: Mapped[Phase] = mapped_column(String(16), default="keys", comment="how far it has come")
    due_at: Mapped[float | None] = mapped_column(comment="when it moves on without those who are missing")
    cohort: Mapped[list[Any]] = mapped_column(**LARGE, default=list, comment="U1 by name, once frozen")
    sharers: Mapped[list[Any]] = mapped_column(**LARGE, default=list, comment="U2 by name, once frozen")
    survivors: Mapped[list[Any]] = mapped_column(**LARGE, default=list, comment="U3 by name, once frozen")
    replies: Mapped[int] = mapped_column(
        Integer, default=0, comment="clients that opened shares, once every secret has enough of them"
    )
    opened: Mapped[bool] = mapped_column(default=False, comment="somebody may have opened shares")
    tried: Mapped[int] = mapped_column(
        Integer, default=0, comment="replies that were there when summing was last tried"
    )
    failure: Mapped[Failure | None] = mapped_column(String(32), comment="why there is no sum")
    reported: Mapped[dict[str, Any] | None] = mapped_column(**LARGE, comment="the round report in the opened sums")
    result: Mapped[dict[str, Any] | None] = mapped_column(**LARGE, comment="SumResult, as announced")


class SessionMessageRow(Base):
    """The message of one client at one step. It is sent once."""

    __tablename__ = "secure_sum_messages"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["secure_sum_sessions.study_id", "secure_sum_sessions.round"]),
        one_of("step", Step),
        CheckConstraint("(step = 'manifest') = (octets_sha256 IS NOT NULL)", name="manifest_has_its_octets"),
        hexadecimal("octets_sha256", "octets"),
        # Messages since the last look.
        Index("ix_secure_sum_messages_number", "study_id", "round", "number"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who")
    step: Mapped[Step] = mapped_column(String(16), primary_key=True, comment="at which step")
    number: Mapped[int] = mapped_column(comment="the session's version when it was said")
    body: Mapped[str | None] = mapped_column(comment="the message as JSON; scrubbed shares leave null")
    octets_sha256: Mapped[str | None] = mapped_column(SHA256, comment="of a manifest: the file with its vectors")
