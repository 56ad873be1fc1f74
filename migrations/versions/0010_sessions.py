"""Sessions of people who log in at an identity provider, and their logins from the command line

Revision: 0010
After: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(32), nullable=False, comment="public part of the session's token"),
        sa.Column(
            "subject", sa.String(255), nullable=False, comment="the person's lasting id at the identity provider"
        ),
        sa.Column("name", sa.String(100), nullable=False, comment="the person, as the identity provider says"),
        sa.Column("groups", sa.JSON(), nullable=False, comment="the person's groups at the login"),
        sa.Column("secret_sha256", sa.String(64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("created_at", sa.Double(), nullable=False, comment="when the person logged in"),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="from when on it opens nothing"),
        _written_by(),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_sessions_secret")),
        sa.CheckConstraint("expires_at >= created_at", name=op.f("ck_sessions_expires")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
    )
    op.create_table(
        "device_logins",
        sa.Column("id", sa.String(32), nullable=False, comment="public part of the login's token"),
        sa.Column("secret_sha256", sa.String(64), nullable=False, comment="SHA-256 of the secret part"),
        sa.Column("pending", sa.JSON(), nullable=False, comment="what the identity provider is asked with"),
        sa.Column(
            "asked_until", sa.Double(), nullable=False, comment="until then a process asks the identity provider"
        ),
        sa.Column("expires_at", sa.Double(), nullable=False, comment="from when on it is of no use"),
        _written_by(),
        sa.CheckConstraint("length(secret_sha256) = 64", name=op.f("ck_device_logins_secret")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_device_logins")),
    )


def _written_by() -> sa.Column[str]:
    return sa.Column("written_by", sa.String(64), nullable=False, comment="the transaction that last wrote this row")
