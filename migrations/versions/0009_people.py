"""People: keys with a role, a study and an expiry, and the audit log of what they ask for

Revision: 0009
After: 0008
"""

import hashlib
import json
from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_KINDS = (
    "'opened', 'roster', 'operated', 'reserved', 'asked', 'settled', 'charged-in-full', 'cancelled', 'released', "
    "'finished'"
)
_ROLES = "'administrator', 'lead', 'asker', 'auditor', 'viewer'"


def upgrade() -> None:
    _audit_log()
    # Before the keys move: a log begins with this entry only where somebody may have acted without one.
    _begin_logs()
    _api_keys()
    _ledger()


def _api_keys() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), nullable=False, comment="public part of the key"),
        sa.Column("role", sa.String(16), nullable=False, comment="what its holder may do"),
        sa.Column("study", sa.String(63), nullable=True, comment="in which study; none: in all"),
        sa.Column("name", sa.String(100), nullable=False, comment="the person who holds it"),
        sa.Column("secret_sha256", sa.String(64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was made"),
        sa.Column(
            "expires_at", sa.Double(), nullable=True, comment="from when on it opens nothing; none: made before that"
        ),
        sa.Column("revoked_at", sa.Double(), nullable=True, comment="when it was revoked"),
        _written_by(),
        sa.CheckConstraint(f"role IN ({_ROLES})", name=op.f("ck_api_keys_role")),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_api_keys_secret")),
        sa.CheckConstraint("expires_at IS NULL OR expires_at >= created_at", name=op.f("ck_api_keys_expires")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.execute(
        "INSERT INTO api_keys (id, role, study, name, secret_sha256, created_at, expires_at, revoked_at, written_by) "
        "SELECT id, CASE role WHEN 'operator' THEN 'administrator' ELSE 'viewer' END, NULL, label, secret_sha256, "
        "created_at, NULL, revoked_at, written_by FROM operator_keys"
    )
    op.drop_table("operator_keys")


def _audit_log() -> None:
    op.create_table(
        "audit_log",
        sa.Column("study", sa.String(63), nullable=False, comment="name of the study; empty: the coordinator's"),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="from 1, no gaps"),
        sa.Column("event", sa.Text(), nullable=False, comment="canonical JSON, exactly the hashed text"),
        sa.Column("previous", sa.String(64), nullable=False, comment="hash of the entry before"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="hash of this entry"),
        _written_by(),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_audit_log_sequence")),
        sa.CheckConstraint("length(previous) = 64", name=op.f("ck_audit_log_previous")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_audit_log_sha256")),
        sa.PrimaryKeyConstraint("study", "sequence", name=op.f("pk_audit_log")),
    )
    op.create_table(
        "audit_heads",
        sa.Column("study", sa.String(63), nullable=False, comment="name of the study; empty: the coordinator's"),
        sa.Column("entries", sa.BigInteger(), nullable=False, comment="length of the log"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="hash of the last entry"),
        sa.Column("signature", sa.String(86), nullable=True, comment="the coordinator's; none: before its first use"),
        _written_by(),
        sa.CheckConstraint("entries >= 0", name=op.f("ck_audit_heads_entries")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_audit_heads_sha256")),
        sa.PrimaryKeyConstraint("study", name=op.f("pk_audit_heads")),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_log_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_log_is_append_only()"
        )
        return
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_log_no_{action.lower()} BEFORE {action} ON audit_log "
            "BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END"
        )


def _begin_logs() -> None:
    """Write a first entry where changes were made before there was a log: it says that no actor is known."""
    connection = op.get_bind()
    studies = [name for (name,) in connection.execute(sa.text("SELECT name FROM studies ORDER BY name"))]
    keys = connection.execute(sa.text("SELECT count(*) FROM operator_keys")).scalar_one()
    if not studies and not keys:
        return
    actor = {"id": "", "kind": "unknown", "name": "", "role": None}
    event = {
        "action": "before-the-log",
        "actor": actor,
        "address": "",
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "body_sha256": None,
        "key": None,
        "request_id": "",
    }
    for study in ["", *studies]:
        content = {"event": event, "previous": "0" * 64, "sequence": 1, "study": study or None}
        entry = {
            "study": study,
            "event": _canonical(event),
            "previous": "0" * 64,
            "sha256": hashlib.sha256(_canonical(content).encode()).hexdigest(),
            "by": "migration-0009",
        }
        connection.execute(
            sa.text(
                "INSERT INTO audit_log (study, sequence, event, previous, sha256, written_by) "
                "VALUES (:study, 1, :event, :previous, :sha256, :by)"
            ),
            entry,
        )
        connection.execute(
            sa.text(
                "INSERT INTO audit_heads (study, entries, sha256, signature, written_by) "
                "VALUES (:study, 1, :sha256, NULL, :by)"
            ),
            {name: entry[name] for name in ("study", "sha256", "by")},
        )


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _ledger() -> None:
    with op.batch_alter_table("ledger") as ledger:
        ledger.drop_constraint(op.f("ck_ledger_kind"), type_="check")
        ledger.drop_constraint(op.f("ck_ledger_round_of_its_kind"), type_="check")
        ledger.create_check_constraint(op.f("ck_ledger_kind"), sa.text(f"kind IN ({_KINDS})"))
        ledger.create_check_constraint(
            op.f("ck_ledger_round_of_its_kind"),
            sa.text("kind = 'released' OR (round IS NULL) = (kind IN ('opened', 'roster', 'operated', 'finished'))"),
        )
    if op.get_bind().dialect.name == "postgresql":
        return
    # SQLite makes the table anew, and triggers go with the old one.
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER ledger_no_{action.lower()} BEFORE {action} ON ledger "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


def _written_by() -> sa.Column[str]:
    return sa.Column("written_by", sa.String(64), nullable=False, comment="the transaction that last wrote this row")
