"""The schema: studies, rounds, budgets, secure sums, and a ledger that nobody can rewrite

Revision: 0001
After: nothing; there is no way back, because it would delete the ledger
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# None is SQL's NULL, not JSON's `null`: CHECKs ask whether there is a value.
JSON = sa.JSON(none_as_null=True)


def upgrade() -> None:
    _studies()
    _membership()
    _ledger()
    _forbid_rewriting_the_ledger()
    _witnesses()
    _budgets()
    _rounds()
    _participants()
    _secure_sum_sessions()
    _secure_sum_messages()


def _studies() -> None:
    op.create_table(
        "operator_keys",
        sa.Column("id", sa.String(32), nullable=False, comment="public part of the key"),
        sa.Column("role", sa.String(16), nullable=False, comment="operator or viewer"),
        sa.Column("label", sa.String(100), nullable=False, comment="who holds it"),
        sa.Column("secret_sha256", sa.String(64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was made"),
        sa.Column("revoked_at", sa.Double(), nullable=True, comment="from when on it opens nothing"),
        _written_by(),
        sa.CheckConstraint("role IN ('operator', 'viewer')", name=op.f("ck_operator_keys_role")),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_operator_keys_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_keys")),
    )
    op.create_table(
        "studies",
        sa.Column("id", sa.Integer(), nullable=False, comment="internal"),
        sa.Column("name", sa.String(63), nullable=False, comment="public name"),
        sa.Column("title", sa.String(200), nullable=False, comment="for people"),
        sa.Column("state", sa.String(16), nullable=False, comment="draft, enrolling, running, paused, finished"),
        sa.Column("state_since", sa.Double(), nullable=False, comment="when it came to this state"),
        sa.Column("pause_reason", sa.String(64), nullable=True, comment="why it is paused"),
        sa.Column("stop_reason", sa.String(32), nullable=True, comment="why it is finished"),
        sa.Column("settings", JSON, nullable=False, comment="StudySettings, frozen at creation"),
        sa.Column("settings_sha256", sa.String(64), nullable=False, comment="digest that assignments name"),
        sa.Column("model_spec", JSON, nullable=True, comment="names, shapes, types; set by model 0"),
        sa.Column("roster_sha256", sa.String(64), nullable=False, comment="fingerprint of the active members"),
        sa.Column("version", sa.BigInteger(), nullable=False, comment="number of its newest event"),
        sa.Column("quorum", sa.Integer(), nullable=False, comment="active clients without whom no round begins"),
        sa.Column(
            "abandoned_in_a_row",
            sa.Integer(),
            nullable=False,
            comment="rounds since the last release or resumption that came to nothing",
        ),
        sa.Column("next_round_at", sa.Double(), nullable=False, comment="no round begins before"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was opened"),
        _written_by(),
        sa.CheckConstraint(
            "(state = 'finished') = (stop_reason IS NOT NULL)", name=op.f("ck_studies_finished_for_a_reason")
        ),
        sa.CheckConstraint(
            "(state = 'paused') = (pause_reason IS NOT NULL)", name=op.f("ck_studies_paused_for_a_reason")
        ),
        sa.CheckConstraint(
            "state IN ('draft', 'enrolling', 'running', 'paused', 'finished')", name=op.f("ck_studies_state")
        ),
        sa.CheckConstraint(
            "stop_reason IN ('max-steps-reached', 'max-queries-reached', 'budget-exhausted', 'stopped', 'deleted', "
            "'database-differs')",
            name=op.f("ck_studies_stop_reason"),
        ),
        sa.CheckConstraint("version >= 0 AND quorum >= 1 AND abandoned_in_a_row >= 0", name=op.f("ck_studies_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_studies")),
        sa.UniqueConstraint("name", name=op.f("uq_studies_name")),
    )


def _membership() -> None:
    op.create_table(
        "clients",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("name", sa.String(63), nullable=False, comment="public name"),
        sa.Column("public_key", sa.String(43), nullable=False, comment="Ed25519 identity, base64url"),
        sa.Column("state", sa.String(16), nullable=False, comment="active, revoked, withdrawn"),
        sa.Column("enrolled_at", sa.Double(), nullable=False, comment="when it enrolled"),
        _written_by(),
        sa.CheckConstraint("state IN ('active', 'revoked', 'withdrawn')", name=op.f("ck_clients_state")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_clients_study_id")),
        sa.PrimaryKeyConstraint("study_id", "name", name=op.f("pk_clients")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", sa.String(32), nullable=False, comment="public part of the token"),
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("client", sa.String(63), nullable=False, comment="which client name it admits"),
        sa.Column("secret_sha256", sa.String(64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="until when it can be used"),
        sa.Column("used_at", sa.Double(), nullable=True, comment="when it was used"),
        sa.Column("used_by_key", sa.String(43), nullable=True, comment="the public key that enrolled with it"),
        _written_by(),
        sa.CheckConstraint("(used_at IS NULL) = (used_by_key IS NULL)", name=op.f("ck_invitations_used_by_somebody")),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_invitations_secret")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_invitations_study_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
    )
    op.create_index(op.f("ix_invitations_study_id"), "invitations", ["study_id"], unique=False)
    op.create_table(
        "used_tokens",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("client", sa.String(63), nullable=False, comment="who signed it"),
        sa.Column("token_id", sa.String(64), nullable=False, comment="its jti"),
        sa.Column("forget_at", sa.Double(), nullable=False, comment="when it cannot be valid any more"),
        _written_by(),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_used_tokens_study_id")),
        sa.PrimaryKeyConstraint("study_id", "client", "token_id", name=op.f("pk_used_tokens")),
    )
    op.create_index(op.f("ix_used_tokens_forget_at"), "used_tokens", ["forget_at"], unique=False)


def _ledger() -> None:
    op.create_table(
        "ledger",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="whose ledger"),
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False, comment="from 1, no gaps"),
        sa.Column("kind", sa.String(16), nullable=False, comment="what happened"),
        sa.Column("round", sa.Integer(), nullable=True, comment="the round it belongs to"),
        sa.Column("body", sa.Text(), nullable=False, comment="canonical JSON, exactly the hashed text"),
        sa.Column("previous", sa.String(64), nullable=False, comment="hash of the entry before"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="hash of this entry"),
        sa.Column("written_at", sa.Double(), nullable=False, comment="when it was appended"),
        _written_by(),
        sa.CheckConstraint(
            "(round IS NULL) = (kind IN ('opened', 'roster', 'finished'))", name=op.f("ck_ledger_round_of_its_kind")
        ),
        sa.CheckConstraint(
            "kind IN ('opened', 'roster', 'reserved', 'asked', 'settled', 'charged-in-full', 'cancelled', 'finished')",
            name=op.f("ck_ledger_kind"),
        ),
        sa.CheckConstraint("length(previous) = 64", name=op.f("ck_ledger_previous")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_ledger_sha256")),
        sa.CheckConstraint("sequence >= 1", name=op.f("ck_ledger_sequence")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_ledger_study_id")),
        sa.PrimaryKeyConstraint("study_id", "sequence", name=op.f("pk_ledger")),
    )
    _partial_index(
        "uq_ledger_one_ending_per_round",
        "ledger",
        ["study_id", "round"],
        "kind IN ('settled', 'charged-in-full', 'cancelled')",
        unique=True,
    )
    op.create_index("uq_ledger_one_kind_per_round", "ledger", ["study_id", "round", "kind"], unique=True)


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


def _witnesses() -> None:
    op.create_table(
        "witnesses",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="whose ledger"),
        sa.Column("client", sa.String(63), nullable=False, comment="who signed"),
        sa.Column("public_key", sa.String(43), nullable=False, comment="the key it signed with"),
        sa.Column("entries", sa.BigInteger(), nullable=False, comment="up to which entry"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="hash of that entry"),
        sa.Column("signature", sa.String(86), nullable=False, comment="the client's, on the head"),
        _written_by(),
        sa.CheckConstraint("entries >= 1", name=op.f("ck_witnesses_entries")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_witnesses_sha256")),
        sa.ForeignKeyConstraint(
            ["study_id", "client"], ["clients.study_id", "clients.name"], name=op.f("fk_witnesses_study_id_client")
        ),
        sa.PrimaryKeyConstraint("study_id", "client", name=op.f("pk_witnesses")),
    )


def _budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="whose budget"),
        sa.Column(
            "state", JSON, nullable=False, comment="running state of the accountants, replayable from the ledger"
        ),
        sa.Column("can_continue", sa.Boolean(), nullable=False, comment="whether another round would be authorised"),
        sa.Column("max_steps", sa.BigInteger(), nullable=False, comment="most noised steps"),
        sa.Column("round", sa.Integer(), nullable=False, comment="newest round that reserved"),
        sa.Column("limits", JSON, nullable=False, comment="ready-made limit statements"),
        sa.Column("percentiles", JSON, nullable=False, comment="ready-made percentile curve"),
        sa.Column("entries", sa.BigInteger(), nullable=False, comment="length of the ledger"),
        sa.Column("head_sha256", sa.String(64), nullable=False, comment="hash of the newest entry"),
        sa.Column("signature", sa.String(86), nullable=False, comment="the coordinator's signature on the head"),
        _written_by(),
        sa.CheckConstraint("entries >= 1", name=op.f("ck_budgets_entries")),
        sa.CheckConstraint("length(head_sha256) = 64", name=op.f("ck_budgets_head")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_budgets_study_id")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_budgets")),
    )
    op.create_table(
        "leases",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("owner", sa.String(64), nullable=True, comment="the worker that holds it"),
        sa.Column("fence", sa.BigInteger(), nullable=False, comment="fencing number"),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="from when on another worker may take it"),
        _written_by(),
        sa.CheckConstraint("fence >= 0", name=op.f("ck_leases_fence")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_leases_study_id")),
        sa.PrimaryKeyConstraint("study_id", name=op.f("pk_leases")),
    )
    op.create_table(
        "events",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False, comment="from 1, no gaps"),
        sa.Column("kind", sa.String(32), nullable=False, comment="for example round-released"),
        sa.Column("round", sa.Integer(), nullable=True, comment="which round"),
        sa.Column("at", sa.Double(), nullable=False, comment="when"),
        _written_by(),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_events_study_id")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_events")),
    )


def _rounds() -> None:
    op.create_table(
        "rounds",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False, comment="from 1"),
        sa.Column("state", sa.String(16), nullable=False, comment="how far it has come"),
        sa.Column("reason", sa.String(64), nullable=True, comment="why it came to nothing"),
        sa.Column("base_version", sa.Integer(), nullable=True, comment="the model that its clients start from"),
        sa.Column("query", sa.Integer(), nullable=True, comment="the query that it answers; none: it trains"),
        sa.Column("started_at", sa.Double(), nullable=False, comment="when it was reserved"),
        sa.Column("deadline", sa.Double(), nullable=False, comment="until when updates are taken"),
        sa.Column("ended_at", sa.Double(), nullable=True, comment="when it was released, abandoned or stopped"),
        sa.Column("noised_sha256", sa.String(64), nullable=True, comment="the noised sum, drawn once"),
        sa.Column("scrubbed_at", sa.Double(), nullable=True, comment="when its updates were deleted"),
        sa.Column("spent", JSON, nullable=True, comment="what each limit had spent once this round was charged"),
        _written_by(),
        sa.CheckConstraint(
            "(state IN ('released', 'abandoned', 'stopped')) = (ended_at IS NOT NULL)", name=op.f("ck_rounds_ended")
        ),
        sa.CheckConstraint(
            "state IN ('collecting', 'settled', 'released', 'abandoned', 'stopped')",
            name=op.f("ck_rounds_state"),
        ),
        sa.CheckConstraint("number >= 1", name=op.f("ck_rounds_number")),
        sa.CheckConstraint("(query IS NULL) = (base_version IS NOT NULL)", name=op.f("ck_rounds_trains_or_asks")),
        sa.CheckConstraint(
            "scrubbed_at IS NULL OR ended_at IS NOT NULL", name=op.f("ck_rounds_scrubbed_after_its_end")
        ),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_rounds_study_id")),
        sa.PrimaryKeyConstraint("study_id", "number", name=op.f("pk_rounds")),
    )
    _partial_index("ix_rounds_unscrubbed", "rounds", ["study_id", "number"], "scrubbed_at IS NULL", unique=False)
    _partial_index("uq_rounds_one_open", "rounds", ["study_id"], "ended_at IS NULL", unique=True)
    op.create_table(
        "models",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False, comment="round that made it"),
        sa.Column("sha256", sa.String(64), nullable=False, comment="the file"),
        sa.Column("bytes", sa.BigInteger(), nullable=False, comment="its size"),
        sa.Column("optimiser_sha256", sa.String(64), nullable=True, comment="server optimiser after this release"),
        sa.Column("metrics", JSON, nullable=True, comment="measured outside the guarantee"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when it was published"),
        _written_by(),
        sa.CheckConstraint("bytes > 0", name=op.f("ck_models_bytes")),
        sa.CheckConstraint("length(sha256) = 64", name=op.f("ck_models_sha256")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_models_version")),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_models_study_id")),
        sa.PrimaryKeyConstraint("study_id", "version", name=op.f("pk_models")),
    )


def _participants() -> None:
    op.create_table(
        "participants",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("client", sa.String(63), nullable=False, comment="who was sampled"),
        sa.Column("state", sa.String(16), nullable=False, comment="sampled, received, refused, missing"),
        sa.Column("sending_since", sa.Double(), nullable=True, comment="when the first byte of an update was let in"),
        sa.Column("answered_at", sa.Double(), nullable=True, comment="when the update or the refusal was recorded"),
        sa.Column("sha256", sa.String(64), nullable=True, comment="the update"),
        sa.Column("bytes", sa.BigInteger(), nullable=True, comment="its size"),
        sa.Column("distance", sa.Double(), nullable=True, comment="its norm on the scale of the clip norm, rounded up"),
        sa.Column("log_moments", JSON, nullable=True, comment="the client's cumulative log-moment bounds"),
        sa.Column("refusal_code", sa.String(64), nullable=True, comment="why the hospital said no"),
        sa.Column("refusal_detail", sa.String(500), nullable=True, comment="in its words"),
        _written_by(),
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


def _secure_sum_sessions() -> None:
    op.create_table(
        "secure_sum_sessions",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("parameters", sa.LargeBinary(), nullable=False, comment="canonical JSON, as signed"),
        sa.Column("signature", sa.LargeBinary(), nullable=False, comment="the coordinator's, over the parameters"),
        sa.Column("roster", JSON, nullable=False, comment="identity key of every client that may take part"),
        sa.Column(
            "members",
            JSON,
            nullable=True,
            comment="identity key of every active member at the opening; the fingerprint in the parameters is theirs",
        ),
        sa.Column(
            "version",
            sa.BigInteger(),
            nullable=False,
            comment="grows with everything that is written of the session",
        ),
        sa.Column("phase", sa.String(16), nullable=False, comment="how far it has come"),
        sa.Column("due_at", sa.Double(), nullable=True, comment="when it moves on without those who are missing"),
        sa.Column("cohort", JSON, nullable=False, comment="U1 by name, once frozen"),
        sa.Column("sharers", JSON, nullable=False, comment="U2 by name, once frozen"),
        sa.Column("survivors", JSON, nullable=False, comment="U3 by name, once frozen"),
        sa.Column(
            "replies",
            sa.Integer(),
            nullable=False,
            comment="clients that opened shares, once every secret has enough of them",
        ),
        sa.Column("opened", sa.Boolean(), nullable=False, comment="somebody may have opened shares"),
        sa.Column("tried", sa.Integer(), nullable=False, comment="replies that were there when summing was last tried"),
        sa.Column("failure", sa.String(32), nullable=True, comment="why there is no sum"),
        sa.Column("reported", JSON, nullable=True, comment="the round report in the opened sums"),
        sa.Column("result", JSON, nullable=True, comment="SumResult, as announced"),
        _written_by(),
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


def _secure_sum_messages() -> None:
    op.create_table(
        "secure_sum_messages",
        sa.Column("study_id", sa.Integer(), nullable=False, comment="which study"),
        sa.Column("round", sa.Integer(), nullable=False, comment="which round"),
        sa.Column("client", sa.String(63), nullable=False, comment="who"),
        sa.Column("step", sa.String(16), nullable=False, comment="at which step"),
        sa.Column("number", sa.BigInteger(), nullable=False, comment="the session's version when it was said"),
        sa.Column("body", sa.Text(), nullable=True, comment="the message as JSON; scrubbed shares leave null"),
        sa.Column("octets_sha256", sa.String(64), nullable=True, comment="of a manifest: the file with its vectors"),
        _written_by(),
        sa.CheckConstraint(
            "step IN ('keys', 'shares', 'manifest', 'consistency', 'unmask', 'left')",
            name=op.f("ck_secure_sum_messages_step"),
        ),
        sa.CheckConstraint(
            "(step = 'manifest') = (octets_sha256 IS NOT NULL)",
            name=op.f("ck_secure_sum_messages_manifest_has_its_octets"),
        ),
        sa.CheckConstraint("length(octets_sha256) = 64", name=op.f("ck_secure_sum_messages_octets")),
        sa.ForeignKeyConstraint(
            ["study_id", "round"],
            ["secure_sum_sessions.study_id", "secure_sum_sessions.round"],
            name=op.f("fk_secure_sum_messages_study_id_round"),
        ),
        sa.PrimaryKeyConstraint("study_id", "round", "client", "step", name=op.f("pk_secure_sum_messages")),
    )
    op.create_index(op.f("ix_secure_sum_messages_number"), "secure_sum_messages", ["study_id", "round", "number"])


def _partial_index(name: str, table: str, columns: list[str], where: str, *, unique: bool) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, sqlite_where=condition, postgresql_where=condition)


def _written_by() -> sa.Column[str]:
    return sa.Column("written_by", sa.String(64), nullable=False, comment="the transaction that last wrote this row")
