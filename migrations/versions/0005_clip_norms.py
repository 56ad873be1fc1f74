"""The clip norm that a released model names for the rounds that start from it

Revision: 0005
After: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("models") as models:
        models.add_column(
            sa.Column(
                "clip_norm",
                sa.Double(),
                nullable=True,
                comment="of the rounds that start from it, where it is adaptive",
            )
        )
        models.create_check_constraint(op.f("ck_models_clip_norm"), sa.text("clip_norm IS NULL OR clip_norm > 0"))
