"""Bring the database to the schema of this version, and say whether it is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext, MigrationInfo
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

import server
from study_protocol.versions import program_version


class SchemaOutdated(Exception):
    """The tables are not those of this version. The text says what to do."""


@dataclass(frozen=True)
class Migrated:
    """The result of one call of `migrate`. `before` is None without tables, and `after` is None without a migration.

    before, after  revisions
    """

    before: str | None
    after: str | None


def migrate(engine: Engine) -> Migrated:
    """Run every migration that is missing. Repeatable. A second process waits for the first.

    Raises:
        SchemaOutdated: the tables are a later version's, and were not changed.
    """
    ran: list[MigrationInfo] = []
    with engine.connect() as connection:
        _require_known(connection)
        config = _config(connection)
        # Told under the lock: what stood there before may be another process's doing a moment ago.
        config.attributes["on_version_apply"] = _noting(ran)
        # On PostgreSQL each migration has committed by itself. On SQLite all of them end here.
        command.upgrade(config, "head")
        connection.commit()
        if not ran:
            return Migrated(revision(connection), None)
    return Migrated(_first_revision(ran[0].source_revision_ids), _first_revision(ran[-1].destination_revision_ids))


def is_current(engine: Engine) -> bool:
    """Return whether the tables are those of this version."""
    with engine.connect() as connection:
        return revision(connection) == head()


def require_current(engine: Engine) -> None:
    """Raises SchemaOutdated."""
    with engine.connect() as connection:
        _require_known(connection)
    if not is_current(engine):
        raise SchemaOutdated("the database is not at this version's schema: run `wardround migrate`")


def revision(connection: Connection) -> str | None:
    """Return the newest migration that has run here."""
    return MigrationContext.configure(connection).get_current_revision()


def head() -> str | None:
    """Return the newest migration there is."""
    return ScriptDirectory.from_config(_config(None)).get_current_head()


def _require_known(connection: Connection) -> None:
    stored_revision = revision(connection)
    # Otherwise the next statement would begin inside the transaction of this question.
    connection.rollback()
    known_revisions = {script.revision for script in ScriptDirectory.from_config(_config(None)).walk_revisions()}
    if stored_revision is not None and stored_revision not in known_revisions:
        raise SchemaOutdated(
            f"the database is at revision {stored_revision}, which this version ({program_version()}) does not know: "
            "a later one has worked with it. Nothing was changed. Install that version again, or restore the backup "
            "from before it"
        )


def _noting(ran: list[MigrationInfo]) -> Callable[..., None]:
    def note(*, step: MigrationInfo, **_: object) -> None:
        ran.append(step)

    return note


def _first_revision(revisions: Sequence[str]) -> str | None:
    return revisions[0] if revisions else None


def _config(connection: Connection | None) -> Config:
    # Without an ini file: the connection is the caller's, and logging is configured elsewhere.
    config = Config()
    config.set_main_option("script_location", str(_scripts()))
    config.attributes["connection"] = connection
    return config


def _scripts() -> Path:
    package = Path(server.__file__).parent
    installed = package / "migrations"
    # A checkout keeps them at its top. A wheel carries them inside the package.
    return installed if installed.is_dir() else package.parent / "migrations"
