"""Until when a query keeps its cost, when a hospital was seen, and how often a study resumed by itself

Revision: 0006
After: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Queries that wait already keep nothing and wait on, as before.
    op.add_column(
        "queries",
        sa.Column(
            "reserved_until",
            sa.Double(),
            nullable=True,
            comment="when it fails if hospitals have not decided, its cost kept till then; none: nothing is kept",
        ),
    )
    seen = "when it last asked for a round while the study lacked some"
    op.add_column("clients", sa.Column("seen_at", sa.Double(), nullable=True, comment=seen))
    op.add_column(
        "studies",
        sa.Column(
            "resumed_alone",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("0"),
            comment="times since then that it resumed by itself",
        ),
    )
    op.add_column("studies", sa.Column("resumed_at", sa.Double(), nullable=True, comment="when it last did so"))
