"""The tables of queries: what is asked, what hospitals say to it, and the answer."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, ForeignKeyConstraint, Index, Integer, String
from sqlalchemy.orm import Mapped, mapped_column

from server.db.table_base import LARGE, NAME, SHA256, Base, hexadecimal, index_where, one_of
from study_protocol.study.queries import QueryState


class QueryRow(Base):
    """One question about the hospitals' patients. Its document is public. The answer carries noise and a signature."""

    __tablename__ = "queries"
    __table_args__ = (
        one_of("state", QueryState),
        hexadecimal("sha256", "sha256"),
        CheckConstraint("number >= 1", name="number"),
        CheckConstraint("(state = 'answered') = (answer IS NOT NULL)", name="answered_has_an_answer"),
        CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name="failed_for_a_reason"),
        # The same question over the same records is one query, even from two people.
        Index("uq_queries_document", "study_id", "sha256", unique=True),
        index_where("state IN ('waiting', 'asked')", "ix_queries_open", "study_id", unique=False),
    )

    study_id: Mapped[int] = mapped_column(ForeignKey("studies.id"), primary_key=True, comment="which study")
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False, comment="from 1")
    sha256: Mapped[str] = mapped_column(SHA256, comment="digest of the document, which the ledger names")
    document: Mapped[dict[str, Any]] = mapped_column(comment="QueryDocument")
    state: Mapped[QueryState] = mapped_column(String(16), comment="waiting, asked, answered, failed")
    created_at: Mapped[float] = mapped_column(comment="when it was first asked")
    due_at: Mapped[float | None] = mapped_column(comment="when its round may begin; none while consents lack")
    reserved_until: Mapped[float | None] = mapped_column(
        comment="when it fails if hospitals have not decided, its cost kept till then; none: nothing is kept"
    )
    round: Mapped[int | None] = mapped_column(Integer, comment="the newest round that asked it")
    reason: Mapped[str | None] = mapped_column(String(64), comment="why it failed")
    answer: Mapped[dict[str, Any] | None] = mapped_column(**LARGE, comment="SignedAnswer")


class ConsentRow(Base):
    """The consent or refusal of one hospital to one query before its round began."""

    __tablename__ = "consents"
    __table_args__ = (
        ForeignKeyConstraint(["study_id", "query"], ["queries.study_id", "queries.number"]),
        ForeignKeyConstraint(["study_id", "client"], ["clients.study_id", "clients.name"]),
    )

    study_id: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which study")
    query: Mapped[int] = mapped_column(Integer, primary_key=True, comment="which query")
    client: Mapped[str] = mapped_column(NAME, primary_key=True, comment="who")
    consent: Mapped[dict[str, Any]] = mapped_column(comment="Consent")
    at: Mapped[float] = mapped_column(comment="when it said so")
