"""Ledger entries that name released models, and witnesses that are no clients

Revision: 0004
After: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KINDS = "'opened', 'roster', 'reserved', 'asked', 'settled', 'charged-in-full', 'cancelled', 'released', 'finished'"


def upgrade() -> None:
    with op.batch_alter_table("ledger") as ledger:
        ledger.drop_constraint(op.f("ck_ledger_kind"), type_="check")
        ledger.drop_constraint(op.f("ck_ledger_round_of_its_kind"), type_="check")
        ledger.create_check_constraint(op.f("ck_ledger_kind"), sa.text(f"kind IN ({_KINDS})"))
        ledger.create_check_constraint(
            op.f("ck_ledger_round_of_its_kind"),
            sa.text("kind = 'released' OR (round IS NULL) = (kind IN ('opened', 'roster', 'finished'))"),
        )
    with op.batch_alter_table("witnesses") as witnesses:
        witnesses.drop_constraint(op.f("fk_witnesses_study_id_client"), type_="foreignkey")
        witnesses.create_foreign_key(op.f("fk_witnesses_study_id"), "studies", ["study_id"], ["id"])
    if op.get_bind().dialect.name == "postgresql":
        return
    # SQLite makes the table anew, and triggers go with the old one.
    for action in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER ledger_no_{action.lower()} BEFORE {action} ON ledger "
            "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
        )
