"""Whose roster a secure-sum session was opened with

Revision: 0004
After: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "secure_sum_sessions",
        sa.Column(
            "members",
            sa.JSON(none_as_null=True),
            nullable=True,
            comment="identity key of every active member at the opening; the fingerprint in the parameters is theirs",
        ),
    )


def downgrade() -> None:
    op.drop_column("secure_sum_sessions", "members")
