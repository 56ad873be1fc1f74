"""Queries: what is asked of the hospitals' patients, what the hospitals say to it, and the answer

Revision: 0002
After: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# None is SQL's NULL, not JSON's `null`: CHECKs ask whether there is a value.
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    op.create_table(
        "queries",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="digest of the document, which the ledger names"),
        sa.Column("document", JSON, nullable=False, comment="QueryDocument"),
        sa.Column("state", sa.String(16), nullable=False, comment="waiting, asked, answered, failed"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was first asked"),
        sa.Column("due_at", sa.Double(), nullable=True, comment="when its round may begin; none while consents lack"),
        sa.Column("round", sa.Integer(), nullable=True, comment="the newest round that asked it"),
        sa.Column("reason", sa.String(64), nullable=True, comment="why it failed"),
        sa.Column("answer", JSON, nullable=True, comment="SignedAnswer"),
        _written_by(),
        sa.CheckConstraint("state IN ('waiting', 'asked', 'answered', 'failed')", name=op.f("ck_queries_state")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_queries_sha256")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_queries_number")),
        sa.CheckConstraint(
            "(state = 'answered') = (answer IS NOT NULL)", name=op.f("ck_queries_answered_has_an_answer")
        ),
        sa.CheckConstraint("(state = 'failed') = (reason IS NOT NULL)", name=op.f("ck_queries_failed_for_a_reason")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_queries_study_id")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_queries")),
    )
    op.create_index("uq_queries_document", "queries", ["study_id", "sha256"], unique=True)
    open_ones = sa.text("state IN ('waiting', 'asked')")
    op.create_index(
        "ix_queries_open", "queries", ["study_id"], unique=False, sqlite_where=open_ones, postgresql_where=open_ones
    )
    op.create_table(
        "consents",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("query", sa.Integer(), nullable=False, comment="which query"),
        sa.Column("client", sa.String(63), nullable=False, comment="who"),
        sa.Column("consent", JSON, nullable=False, comment="Consent"),
        sa.Column("at", sa.Double(), nullable=False, comment="when it said so"),
        _written_by(),
        sa.ForeignKeyConstraint(
            ["study_id", "query"], ["queries.study_id", "queries.number"], name=op.f("fk_consents_study_id_query")
        ),
        sa.ForeignKeyConstraint(
            ["study_id", "client"], ["clients.study_id", "clients.name"], name=op.f("fk_consents_study_id_client")
        ),
        sa.PrimaryKeyConstraint("study_id", "query", "client", name=op.f("pk_consents")),
    )


def _written_by() -> sa.Column[str]:
    return sa.Column("written_by", sa.String(64), nullable=False, comment="the transaction that last wrote this row")
