"""The first schema: studies, rounds, budgets, and a ledger that nobody can rewrite

Revision: 0001
After: nothing
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "operator_keys",
        sa.Column("id", sa.String(length=32), nullable=False, comment="public part of the key"),
        sa.Column("role", sa.String(length=16), nullable=False, comment="operator or viewer"),
        sa.Column("label", sa.String(length=100), nullable=False, comment="who holds it"),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was made"),
        sa.Column("revoked_at", sa.Double(), nullable=True, comment="from when on it opens nothing"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("role IN ('operator', 'viewer')", name=op.f("ck_operator_keys_role")),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_operator_keys_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_keys")),
    )
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer(), nullable=False, comment="internal"),
        sa.Column("name", sa.String(length=63), nullable=False, comment="public name"),
        sa.Column("title", sa.String(length=200), nullable=False, comment="for people"),
        sa.Column("state", sa.String(length=16), nullable=False, comment="draft, enrolling, running, paused, finished"),
        sa.Column("stop_reason", sa.String(length=32), nullable=True, comment="why it is finished"),
        sa.Column("settings", sa.JSON(none_as_null=True), nullable=False, comment="StudySettings, frozen at creation"),
        sa.Column("settings_sha256", sa.String(length=64), nullable=False, comment="digest that assignments name"),
        sa.Column(
            "model_spec", sa.JSON(none_as_null=True), nullable=True, comment="names, shapes, types; set by model 0"
        ),
        sa.Column("roster_sha256", sa.String(length=64), nullable=False, comment="fingerprint of the active members"),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="number of its newest event"),
        sa.Column("quorum", sa.Integer(), nullable=False, comment="active clients without whom no round begins"),
        sa.Column(
            "abandoned_in_a_row",
            sa.Integer(),
            nullable=False,
            comment="rounds since the last release that came to nothing",
        ),
        sa.Column("next_round_at", sa.Double(), nullable=False, comment="no round begins before"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was opened"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "(state = 'finished') = (stop_reason IS NOT NULL)", name=op.f("ck_studies_finished_for_a_reason")
        ),
        sa.CheckConstraint(
            "state IN ('draft', 'enrolling', 'running', 'paused', 'finished')", name=op.f("ck_studies_state")
        ),
        sa.CheckConstraint(
            "stop_reason IN ('horizon-reached', 'budget-exhausted', 'stopped')", name=op.f("ck_studies_stop_reason")
        ),
        sa.CheckConstraint("version >= 0 AND quorum >= 1 AND abandoned_in_a_row >= 0", name=op.f("ck_studies_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
        sa.UniqueConstraint("name", name=op.f("uq_studies_name")),
    )
    op.create_table(
        "budgets",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="whose budget"),
        sa.Column(
            "plan",
            sa.JSON(none_as_null=True),
            nullable=False,
            comment="accounting plan, as in the ledger's first entry",
        ),
        sa.Column(
            "state",
            sa.JSON(none_as_null=True),
            nullable=False,
            comment="running state of the accountants, replayable from the ledger",
        ),
        sa.Column("can_continue", sa.Boolean(), nullable=False, comment="whether another round would be authorised"),
        sa.Column("horizon", sa.BigInteger(), nullable=False, comment="most noised steps"),
        sa.Column("round", sa.Integer(), nullable=False, comment="newest round that reserved"),
        sa.Column("limits", sa.JSON(none_as_null=True), nullable=False, comment="ready-made limit statements"),
        sa.Column("percentiles", sa.JSON(none_as_null=True), nullable=False, comment="ready-made percentile curve"),
        sa.Column("entries", sa.BigInteger(), nullable=False, comment="length of the ledger"),
        sa.Column("head_sha256", sa.String(length=64), nullable=False, comment="hash of the newest entry"),
        sa.Column("signature", sa.String(length=86), nullable=False, comment="the coordinator's signature on the head"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("entries >= 1", name=op.f("ck_budgets_entries")),
        sa.CheckConstraint("length(head_sha256) = 64", name=op.f("ck_budgets_head")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_budgets_study_id")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "clients",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("name", sa.String(length=63), nullable=False, comment="public name"),
        sa.Column("public_key", sa.String(length=43), nullable=False, comment="Ed25519 identity, base64url"),
        sa.Column("state", sa.String(length=16), nullable=False, comment="active, revoked, withdrawn"),
        sa.Column("enrolled_at", sa.Double(), nullable=False, comment="when it enrolled"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("state IN ('active', 'revoked', 'withdrawn')", name=op.f("ck_clients_state")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_clients_study_id")),
        sa.PrimaryKeyConstraint("study_id", "name", name=op.f("pk_clients")),
    )
    op.create_table(
        "events",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False, comment="from 1, no gaps"),
        sa.Column("kind", sa.String(length=32), nullable=False, comment="for example round-released"),
        sa.Column("round", sa.Integer(), nullable=True, comment="which round"),
        sa.Column("at", sa.Double(), nullable=False, comment="when"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_events_study_id")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_events")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(length=32), nullable=False, comment="public part of the token"),
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("client", sa.String(length=63), nullable=False, comment="which client name it admits"),
        sa.Column("secret_sha256", sa.String(length=64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="until when it can be used"),
        sa.Column("used_at", sa.Double(), nullable=True, comment="when it was used"),
        sa.Column("used_by_key", sa.String(length=43), nullable=True, comment="the public key that enrolled with it"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("(used_at IS NULL) = (used_by_key IS NULL)", name=op.f("ck_invitations_used_by_somebody")),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_invitations_secret")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_invitations_study_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
    )
    op.create_index(op.f("ix_invitations_study_id"), "invitations", ["study_id"], unique=False)
    op.create_table(
        "leases",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("owner", sa.String(length=64), nullable=True, comment="the worker that holds it"),
        sa.Column("fence", sa.BigInteger(), nullable=False, comment="fencing number"),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="from when on another worker may take it"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("fence >= 0", name=op.f("ck_leases_fence")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_leases_study_id")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_leases")),
    )
    op.create_table(
        "ledger",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="whose ledger"),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="from 1, no gaps"),
        sa.Column("kind", sa.String(length=16), nullable=False, comment="what happened"),
        sa.Column("round", sa.Integer(), nullable=True, comment="the round it belongs to"),
        sa.Column("body", sa.Text(), nullable=False, comment="canonical JSON, exactly the hashed text"),
        sa.Column("previous", sa.String(length=64), nullable=False, comment="hash of the entry before"),
        sa.Column("sha256", sa.String(length=64), nullable=False, comment="hash of this entry"),
        sa.Column("written_at", sa.Double(), nullable=False, comment="when it was appended"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "(round IS NULL) = (kind IN ('opened', 'finished'))", name=op.f("ck_ledger_round_of_its_kind")
        ),
        sa.CheckConstraint(
            "kind IN ('opened', 'reserved', 'settled', 'stood', 'voided', 'finished')", name=op.f("ck_ledger_kind")
        ),
        sa.CheckConstraint("length(previous) = 64", name=op.f("ck_ledger_previous")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_ledger_sha256")),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_ledger_sequence")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_ledger_study_id")),
        sa.PrimaryKeyConstraint("study_id", "sequence", name=op.f("pk_ledger")),
    )
    op.create_index(
        "uq_ledger_one_ending_per_round",
        "ledger",
        ["study_id", "round"],
        unique=True,
        sqlite_where=sa.text("kind IN ('settled', 'stood', 'voided')"),
        postgresql_where=sa.text("kind IN ('settled', 'stood', 'voided')"),
    )
    op.create_index("uq_ledger_one_kind_per_round", "ledger", ["study_id", "round", "kind"], unique=True)
    op.create_table(
        "models",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False, comment="round that made it"),
        sa.Column("sha256", sa.String(length=64), nullable=False, comment="the file"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="its size"),
        sa.Column(
            "optimiser_sha256", sa.String(length=64), nullable=True, comment="server optimiser after this release"
        ),
        sa.Column("metrics", sa.JSON(none_as_null=True), nullable=True, comment="measured outside the guarantee"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was published"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint("bytes > 0", name=op.f("ck_models_bytes")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_models_sha256")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_models_version")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_models_study_id")),
        sa.PrimaryKeyConstraint("study_id", "version", name=op.f("pk_models")),
    )
    op.create_table(
        "rounds",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column("state", sa.String(length=16), nullable=False, comment="where it stands"),
        sa.Column("reason", sa.String(length=64), nullable=True, comment="why it came to nothing"),
        sa.Column("base_version", sa.Integer(), nullable=False, comment="the model that its clients start from"),
        sa.Column("started_at", sa.Double(), nullable=False, comment="when it was reserved"),
        sa.Column("deadline", sa.Double(), nullable=False, comment="until when updates are taken"),
        sa.Column("ended_at", sa.Double(), nullable=True, comment="when it was released, abandoned or stopped"),
        sa.Column("noised_sha256", sa.String(length=64), nullable=True, comment="the noised sum, drawn once"),
        sa.Column("scrubbed_at", sa.Double(), nullable=True, comment="when its updates were deleted"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "(state IN ('released', 'abandoned', 'stopped')) = (ended_at IS NOT NULL)", name=op.f("ck_rounds_ended")
        ),
        sa.CheckConstraint(
            "state IN ('reserved', 'collecting', 'settled', 'released', 'abandoned', 'stopped')",
            name=op.f("ck_rounds_state"),
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_rounds_number")),
        sa.CheckConstraint(
            "scrubbed_at IS NULL OR ended_at IS NOT NULL", name=op.f("ck_rounds_scrubbed_after_its_end")
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_rounds_study_id")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_rounds")),
    )
    op.create_index(
        "ix_rounds_unscrubbed",
        "rounds",
        ["study_id", "number"],
        unique=False,
        sqlite_where=sa.text("scrubbed_at IS NULL"),
        postgresql_where=sa.text("scrubbed_at IS NULL"),
    )
    op.create_index(
        "uq_rounds_one_open",
        "rounds",
        ["study_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "used_tokens",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("client", sa.String(length=63), nullable=False, comment="who signed it"),
        sa.Column("token_id", sa.String(length=64), nullable=False, comment="its jti"),
        sa.Column("forget_at", sa.Double(), nullable=False, comment="when it cannot be valid any more"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_used_tokens_study_id")),
        sa.PrimaryKeyConstraint("study_id", "client", "token_id", name=op.f("pk_used_tokens")),
    )
    op.create_index(op.f("ix_used_tokens_forget_at"), "used_tokens", ["forget_at"], unique=False)
    op.create_table(
        "participants",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("client", sa.String(length=63), nullable=False, comment="who was sampled"),
        sa.Column("state", sa.String(length=16), nullable=False, comment="sampled, received, refused, missing"),
        sa.Column("sending_since", sa.Double(), nullable=True, comment="when the first byte of an update was let in"),
        sa.Column("answered_at", sa.Double(), nullable=True, comment="when the update or the refusal was recorded"),
        sa.Column("sha256", sa.String(length=64), nullable=True, comment="the update"),
        sa.Column("bytes", sa.BigInteger(), nullable=True, comment="its size"),
        sa.Column("distance", sa.Double(), nullable=True, comment="its norm on the scale of the clip norm, rounded up"),
        sa.Column(
            "terms", sa.JSON(none_as_null=True), nullable=True, comment="the client's cumulative log-moment bounds"
        ),
        sa.Column("refusal_code", sa.String(length=64), nullable=True, comment="why the hospital said no"),
        sa.Column("refusal_detail", sa.String(length=500), nullable=True, comment="in its words"),
        sa.Column(
            "written_by", sa.String(length=64), nullable=False, comment="the transaction that last wrote this row"
        ),
        sa.CheckConstraint(
            "(state = 'received') = (sha256 IS NOT NULL)", name=op.f("ck_participants_received_has_a_hash")
        ),
        sa.CheckConstraint(
            "(state = 'refused') = (refusal_code IS NOT NULL)", name=op.f("ck_participants_refused_has_a_code")
        ),
        sa.CheckConstraint(
            "state <> 'received' OR sending_since IS NOT NULL", name=op.f("ck_participants_received_was_sent")
        ),
        sa.CheckConstraint(
            "state IN ('sampled', 'received', 'refused', 'missing')", name=op.f("ck_participants_state")
        ),
        sa.CheckConstraint("distance IS NULL OR distance >= 0", name=op.f("ck_participants_distance")),
        sa.ForeignKeyConstraint(
            ["study_id", "client"], ["clients.study_id", "clients.name"], name=op.f("fk_participants_study_id_client")
        ),
        sa.ForeignKeyConstraint(
            ["study_id", "round"], ["rounds.study_id", "rounds.number"], name=op.f("fk_participants_study_id_round")
        ),
        sa.PrimaryKeyConstraint("study_id", "round", "client", name=op.f("pk_participants")),
    )
    _forbid_rewriting_the_ledger()


def _forbid_rewriting_the_ledger() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'the ledger is append-only'; END $$"
        )
        op.execute(
            "CREATE TRIGGER ledger_is_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger "
            "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()"
        )
        return
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER ledger_no_{action.lower()} BEFORE {action} ON ledger "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DROP FUNCTION ledger_is_append_only CASCADE")
    op.drop_table("participants")
    op.drop_index(op.f("ix_used_tokens_forget_at"), table_name="used_tokens")
    op.drop_table("used_tokens")
    op.drop_index(
        "uq_rounds_one_open",
        table_name="rounds",
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.drop_index(
        "ix_rounds_unscrubbed",
        table_name="rounds",
        sqlite_where=sa.text("scrubbed_at IS NULL"),
        postgresql_where=sa.text("scrubbed_at IS NULL"),
    )
    op.drop_table("rounds")
    op.drop_table("models")
    op.drop_index("uq_ledger_one_kind_per_round", table_name="ledger")
    op.drop_index(
        "uq_ledger_one_ending_per_round",
        table_name="ledger",
        sqlite_where=sa.text("kind IN ('settled', 'stood', 'voided')"),
        postgresql_where=sa.text("kind IN ('settled', 'stood', 'voided')"),
    )
    op.drop_table("ledger")
    op.drop_table("leases")
    op.drop_index(op.f("ix_invitations_study_id"), table_name="invitations")
    op.drop_table("invitations")
    op.drop_table("events")
    op.drop_table("clients")
    op.drop_table("budgets")
    op.drop_table("studies")
    op.drop_table("operator_keys")
