"""What each limit had spent after a round

Revision: 0003
After: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "rounds",
        sa.Column(
            "spent",
            sa.JSON(none_as_null=True),
            nullable=True,
            comment="what each limit had spent once this round was charged",
        ),
    )


def downgrade() -> None:
    op.drop_column("rounds", "spent")
