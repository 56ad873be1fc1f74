"""Tables of people: API keys, sessions, and the audit log of what they asked for, which triggers keep append-only."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from server.db.table_base import NAME, SHA256, Base, hexadecimal, one_of
from study_protocol.study.roles import Role

# The log of what belongs to no study. No study has this name.
OF_COORDINATOR = ""
_LOG = String(63)


class ApiKeyRow(Base):
    """API keys of people. Only the hash of the secret is kept."""

    __tablename__ = "api_keys"
    __table_args__ = (
        one_of("role", Role),
        hexadecimal("secret_sha256", "secret"),
        CheckConstraint("expires_at IS NULL OR expires_at >= created_at", name="expires"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, comment="public part of the key")
    role: Mapped[Role] = mapped_column(String(16), comment="what its holder may do")
    study: Mapped[str | None] = mapped_column(NAME, comment="in which study; none: in all")
    name: Mapped[str] = mapped_column(String(100), comment="the person who holds it")
    secret_sha256: Mapped[str] = mapped_column(SHA256, comment="SHA-256 of the secret part")
    created_at: Mapped[float] = mapped_column(comment="when it was made")
    expires_at: Mapped[float | None] = mapped_column(comment="from when on it opens nothing; none: made before that")
    revoked_at: Mapped[float | None] = mapped_column(comment="when it was revoked")


class AuditRow(Base):
    """The append-only audit log: one chain for each study, and one for the coordinator."""

    __tablename__ = "audit_log"
    __table_args__ = (
        CheckConstraint("sequence >= 1", name="sequence"),
        hexadecimal("sha256", "sha256"),
        hexadecimal("previous", "previous"),
    )

    study: Mapped[str] = mapped_column(_LOG, primary_key=True, comment="name of the study; empty: the coordinator's")
    sequence: Mapped[int] = mapped_column(primary_key=True, autoincrement=False, comment="from 1, no gaps")
    event: Mapped[str] = mapped_column(Text, comment="canonical JSON, exactly the hashed text")
    previous: Mapped[str] = mapped_column(SHA256, comment="hash of the entry before")
    sha256: Mapped[str] = mapped_column(SHA256, comment="hash of this entry")


class AuditHeadRow(Base):
    """The end of each audit log, signed. Locked first by every change that a person asks for."""

    __tablename__ = "audit_heads"
    __table_args__ = (
        CheckConstraint("entries >= 0", name="entries"),
        hexadecimal("sha256", "sha256"),
    )

    study: Mapped[str] = mapped_column(_LOG, primary_key=True, comment="name of the study; empty: the coordinator's")
    entries: Mapped[int] = mapped_column(comment="length of the log")
    sha256: Mapped[str] = mapped_column(SHA256, comment="hash of the last entry")
    signature: Mapped[str | None] = mapped_column(String(86), comment="the coordinator's; none: before its first use")


class LoginSessionRow(Base):
    """Sessions of people who logged in at the identity provider. Only the hash of the secret is kept."""

    __tablename__ = "sessions"
    __table_args__ = (
        hexadecimal("secret_sha256", "secret"),
        CheckConstraint("expires_at >= created_at", name="expires"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True, comment="public part of the session's token")
    subject: Mapped[str] = mapped_column(String(255), comment="the person's lasting id at the identity provider")
    name: Mapped[str] = mapped_column(String(100), comment="the person, as the identity provider says")
    groups: Mapped[list[Any]] = mapped_column(comment="the person's groups at the login")
    secret_sha256: Mapped[str] = mapped_column(SHA256, comment="SHA-256 of the secret part")
    created_at: Mapped[float] = mapped_column(comment="when the person logged in")
    expires_at: Mapped[float] = mapped_column(comment="from when on it opens nothing")


class DeviceLoginRow(Base):
    """Logins from the command line that wait for the person. Deleted at their end."""

    __tablename__ = "device_logins"
    __table_args__ = (hexadecimal("secret_sha256", "secret"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True, comment="public part of the login's token")
    secret_sha256: Mapped[str] = mapped_column(SHA256, comment="SHA-256 of the secret part")
    pending: Mapped[dict[str, Any]] = mapped_column(comment="what the identity provider is asked with")
    asked_until: Mapped[float] = mapped_column(comment="until then a process asks the identity provider")
    expires_at: Mapped[float] = mapped_column(comment="from when on it is of no use")
