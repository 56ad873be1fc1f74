"""The tables of the secure sum: one session a round, what every client said in it, where its octets lie.

After the round the octets and shares go; keys, signatures, sets and digests stay for audit.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, ForeignKeyConstraint, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from server.db.tables import NAME, SHA256, Base, hexadecimal, one_of

STEPS = ("keys", "shares", "manifest", "consistency", "unmask", "left")
PHASES = ("keys", "shares", "masked", "consistency", "unmask", "summed", "failed")


class SessionRow(Base):
    """One session: its signed parameters, its phase, and the sets that froze on the way."""

    __tablename__ = "secure_sum_sessions"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["rounds.study_id", "rounds.number"]),
        one_of("phase", PHASES, "phase"),
        CheckConstraint("(phase = 'failed') = (failure IS NOT NULL)", name="failed_for_a_reason"),
        CheckConstraint("(phase = 'summed') = (result IS NOT NULL)", name="summed_has_a_result"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    parameters: Mapped[bytes] = mapped_column(LargeBinary, comment="canonical JSON, as signed")
    signature: Mapped[bytes] = mapped_column(LargeBinary, comment="the coordinator's, over the parameters")
    roster: Mapped[dict[str, Any]] = mapped_column(comment="identity key of every client that may take part")
    members: Mapped[dict[str, Any] | None] = mapped_column(
        comment="identity key of every active member at the opening; the fingerprint in the parameters is theirs"
    )
    phase: Mapped[str] = mapped_column(String(16), comment="how far it has come")
    due_at: Mapped[float | None] = mapped_column(comment="when it moves on without those who are missing")
    cohort: Mapped[list[Any]] = mapped_column(comment="U1 by name, once frozen")
    sharers: Mapped[list[Any]] = mapped_column(comment="U2 by name, once frozen")
    survivors: Mapped[list[Any]] = mapped_column(comment="U3 by name, once frozen")
    replies: Mapped[int] = mapped_column(Integer, comment="clients that opened shares")
    opened: Mapped[bool] = mapped_column(comment="somebody may have opened shares")
    tried: Mapped[int] = mapped_column(Integer, comment="replies that were there when summing was last tried")
    failure: Mapped[str | None] = mapped_column(String(32), comment="why there is no sum")
    reported: Mapped[dict[str, Any] | None] = mapped_column(comment="the round report in the opened sums")
    result: Mapped[dict[str, Any] | None] = mapped_column(comment="SumResult, as announced")


class SessionMessageRow(Base):
    """What one client said at one step; said once."""

    __tablename__ = "secure_sum_messages"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["secure_sum_sessions.study_id", "secure_sum_sessions.round"]),
        one_of("step", STEPS, "step"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who")
    step: Mapped[str] = mapped_column(String(16), primary_key=True, comment="at which step")
    body: Mapped[str | None] = mapped_column(comment="the message as JSON; scrubbed shares leave null")


class OctetsRow(Base):
    """One masked vector of one client, durable under its hash."""

    __tablename__ = "secure_sum_octets"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "round"], ["secure_sum_sessions.study_id", "secure_sum_sessions.round"]),
        hexadecimal("sha256", "sha256"),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    round: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which round")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who")
    vector: Mapped[str] = mapped_column(String(32), primary_key=True, comment="which vector")
    sha256: Mapped[str] = mapped_column(SHA256, comment="of the octets")
