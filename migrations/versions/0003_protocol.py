"""The protocol's number of each study: what it was created with, and so what it needs of every program in it

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
    # Studies that are here were created before there were numbers, and go on as they began.
    op.add_column(
        "studies",
        sa.Column(
            "protocol",
            sa.Integer(),
            nullable=False,
            server_default=sa.text("1"),
            comment="least number of the protocol",
        ),
    )
