"""Secure sums: sessions, what is said in them, masked vectors

Revision: 0002
After: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "secure_sum_sessions",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("parameters", sa.LargeBinary(), nullable=False, comment="canonical JSON, as signed"),
        sa.Column("signature", sa.LargeBinary(), nullable=False, comment="the coordinator's, over the parameters"),
        sa.Column(
            "roster",
            sa.JSON(none_as_null=True),
            nullable=False,
            comment="identity key of every client that may take part",
        ),
        sa.Column("phase", sa.String(length=16), nullable=False, comment="how far it has come"),
        sa.Column("due_at", sa.Double(), nullable=True, comment="when it moves on without those who are missing"),
        sa.Column("cohort", sa.JSON(none_as_null=True), nullable=False, comment="U1 by name, once frozen"),
        sa.Column("sharers", sa.JSON(none_as_null=True), nullable=False, comment="U2 by name, once frozen"),
        sa.Column("survivors", sa.JSON(none_as_null=True), nullable=False, comment="U3 by name, once frozen"),
        sa.Column("replies", sa.Integer(), nullable=False, comment="clients that opened shares"),
        sa.Column("opened", sa.Boolean(), nullable=False, comment="somebody may have opened shares"),
        sa.Column("tried", sa.Integer(), nullable=False, comment="replies that were there when summing was last tried"),
        sa.Column("failure", sa.String(length=32), nullable=True, comment="why there is no sum"),
        sa.Column("told", sa.JSON(none_as_null=True), nullable=True, comment="evidence in the opened sums"),
        sa.Column("result", sa.JSON(none_as_null=True), nullable=True, comment="SumResult, as announced"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "(phase = 'failed') = (failure IS NOT NULL)", name=op.f("ck_secure_sum_sessions_failed_for_a_reason")
        ),
        sa.CheckConstraint(
            "(phase = 'summed') = (result IS NOT NULL)", name=op.f("ck_secure_sum_sessions_summed_has_a_result")
        ),
        sa.CheckConstraint(
            "phase IN ('keys', 'shares', 'masked', 'consistency', 'unmask', 'summed', 'failed')",
            name=op.f("ck_secure_sum_sessions_phase"),
        ),
        sa.ForeignKeyConstraint(
            ["study_id", "round"],
            ["rounds.study_id", "rounds.number"],
            name=op.f("fk_secure_sum_sessions_study_id_round"),
        ),
        sa.PrimaryKeyConstraint("study_id", "round", name=op.f("pk_secure_sum_sessions")),
    )
    op.create_table(
        "secure_sum_messages",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("client", sa.String(length=63), nullable=False, comment="who"),
        sa.Column("step", sa.String(length=16), nullable=False, comment="at which step"),
        sa.Column("body", sa.Text(), nullable=True, comment="the message as JSON; scrubbed shares leave null"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "step IN ('keys', 'shares', 'manifest', 'consistency', 'unmask', 'left')",
            name=op.f("ck_secure_sum_messages_step"),
        ),
        sa.ForeignKeyConstraint(
            ["study_id", "round"],
            ["secure_sum_sessions.study_id", "secure_sum_sessions.round"],
            name=op.f("fk_secure_sum_messages_study_id_round"),
        ),
        sa.PrimaryKeyConstraint("study_id", "round", "client", "step", name=op.f("pk_secure_sum_messages")),
    )
    op.create_table(
        "secure_sum_octets",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("client", sa.String(length=63), nullable=False, comment="who"),
        sa.Column("vector", sa.String(length=32), nullable=False, comment="which vector"),
        sa.Column("sha256", sa.String(length=64), nullable=False, comment="of the octets"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_secure_sum_octets_sha256")),
        sa.ForeignKeyConstraint(
            ["study_id", "round"],
            ["secure_sum_sessions.study_id", "secure_sum_sessions.round"],
            name=op.f("fk_secure_sum_octets_study_id_round"),
        ),
        sa.PrimaryKeyConstraint("study_id", "round", "client", "vector", name=op.f("pk_secure_sum_octets")),
    )


def downgrade() -> None:
    op.drop_table("secure_sum_octets")
    op.drop_table("secure_sum_messages")
    op.drop_table("secure_sum_sessions")
