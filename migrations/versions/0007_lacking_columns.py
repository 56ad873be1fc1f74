"""Which columns a hospital's table lacks

Revision: 0007
After: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Members of studies from before have told nothing.
    comment = "columns that its table lacks, of those that may; none: not told"
    op.add_column("clients", sa.Column("lacking_columns", sa.JSON(none_as_null=True), nullable=True, comment=comment))
