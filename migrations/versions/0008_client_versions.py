"""The program that a hospital runs

Revision: 0008
After: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# Members from before are known from their next request on.
_COLUMNS = (
    ("program", sa.String(64), "version of its program, as its newest signed request says; none: not known"),
    ("protocol", sa.Integer(), "number of the protocol that this program speaks"),
    ("program_since", sa.Double(), "when this version or this number was new"),
)


def upgrade() -> None:
    for name, kind, comment in _COLUMNS:
        op.add_column("clients", sa.Column(name, kind, nullable=True, comment=comment))
