"""How migrations run: under locks that cannot hang a running coordinator, one after another.

PostgreSQL: an advisory lock keeps a second migrator waiting; a migration that cannot get its table lock in time, or
runs too long, fails and changes nothing; each migration is one transaction. SQLite: one write transaction for all.
"""

from alembic import context
from sqlalchemy import Connection

import server.db.people_tables
import server.db.query_tables  # noqa: F401 - their tables belong to the schema, too
from server.db.tables import Base

LOCK_TIMEOUT = "4s"
STATEMENT_TIMEOUT = "60s"
# "ward" in ASCII: advisory locks are bare numbers, and others may take some in the same database.
ADVISORY_LOCK = 0x77617264


def run(connection: Connection) -> None:
    postgres = connection.dialect.name == "postgresql"
    if postgres:
        # Before the timeouts, which would cut this wait short: the migrator ahead may need minutes.
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({ADVISORY_LOCK})")
        connection.exec_driver_sql(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
        connection.exec_driver_sql(f"SET statement_timeout = '{STATEMENT_TIMEOUT}'")
        # Lock and timeouts are the connection's and outlive this. With a transaction under way Alembic would not give
        # each migration one of its own.
        connection.commit()
    else:
        # BEGIN IMMEDIATE: a second migrator waits here. Alembic leaves this transaction to `server.db.schema.migrate`.
        connection.begin()
    try:
        context.configure(
            connection=connection,
            target_metadata=Base.metadata,
            transaction_per_migration=postgres,
            compare_type=True,
            on_version_apply=context.config.attributes.get("on_version_apply", ()),
        )
        with context.begin_transaction():
            context.run_migrations()
    finally:
        if postgres:
            # A failed migration leaves a transaction that takes no further statement.
            connection.rollback()
            for statement in (
                "RESET lock_timeout",
                "RESET statement_timeout",
                f"SELECT pg_advisory_unlock({ADVISORY_LOCK})",
            ):
                connection.exec_driver_sql(statement)
            connection.commit()


run(context.config.attributes["connection"])
