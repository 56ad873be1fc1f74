from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Connection, create_engine, inspect, text
from sqlalchemy.exc import OperationalError, ProgrammingError

from server.db import schema
from server.db.schema import Migrated, SchemaOutdated, head, is_current, migrate, require_current, revision
from server.db.session import Database, connect
from server.db.tables import Base
from tests.conftest import Postgres


def test_models_and_migrations_agree(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_migrating_twice_changes_nothing(database: Database) -> None:
    assert migrate(database.engine) == Migrated(head(), None)
    assert is_current(database.engine)
    require_current(database.engine)


def test_an_empty_database_is_not_current(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path}/x.db")
    assert not is_current(engine)
    with pytest.raises(SchemaOutdated, match="migrate"):
        require_current(engine)
    engine.dispose()


def test_a_database_of_a_later_version_is_said_to_be_one_and_left_alone(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for asks in (migrate, require_current):
        with pytest.raises(SchemaOutdated, match=r"revision 9999, which this version .* does not know: a later one"):
            asks(database.engine)
    with database.engine.connect() as connection:
        assert revision(connection) == "9999"


def test_a_file_that_cannot_be_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(seconds: float) -> None:
        raise AssertionError(seconds)

    monkeypatch.setattr("server.db.session.time.sleep", waits)
    engine = connect(URL.create("sqlite", database=f"{tmp_path}/nowhere/x.db"))
    with pytest.raises(OperationalError, match="unable to open"):
        migrate(engine)
    engine.dispose()


_MIGRATE = """
import sys
from server.db import schema
from server.db.schema import migrate
from server.db.session import connect
print(migrate(connect(sys.argv[1])).after)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_two_migrators_at_once(kind: str, tmp_path: Path, postgres: Postgres) -> None:
    name = postgres.create(template="template0")
    url = postgres.url(name) if kind == "postgresql" else URL.create("sqlite", database=f"{tmp_path}/x.db")
    command = [sys.executable, "-c", _MIGRATE, url.render_as_string()]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(2)]
    said: list[str] = []
    for process in started:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        said.append(output.strip())
    # The one that waited had nothing to do, and does not take the other's work for its own.
    assert sorted(said) == sorted([str(head()), "None"])
    engine = connect(url)
    with engine.connect() as connection:
        assert revision(connection) == head()
    engine.dispose()
    postgres.drop(name)


@pytest.mark.slow
def test_a_migration_does_not_wait_for_ever(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody holds a table; the migration gives up, changes nothing, and leaves no lock behind."""
    name = postgres.create(template="template0")
    engine = connect(postgres.url(name))
    holder = create_engine(postgres.url(name))
    with holder.connect() as held:
        # The migration creates this table too, and must wait until it knows whether this one will be there.
        held.exec_driver_sql("CREATE TABLE studies (id integer)")
        with pytest.raises(OperationalError, match="lock timeout"):
            migrate(engine)
        held.rollback()
    migrate(engine)
    assert is_current(engine)
    for each in (holder, engine):
        each.dispose()
    postgres.drop(name)


_ATTENTIVE_MIGRATION = '''
from alembic import op

revision = "{number}"
down_revision = {previous}

SEEN = """
    SELECT current_setting('lock_timeout') AS lock_timeout, current_setting('statement_timeout') AS statement_timeout,
        txid_current() AS transaction, (SELECT count(*) FROM pg_locks
        WHERE locktype = 'advisory' AND pid = pg_backend_pid()) AS advisory_locks
"""


def upgrade() -> None:
    op.execute("{statement}" + SEEN)
'''


def _write_migrations(folder: Path, *statements: str) -> Path:
    """The project's own `env.py`, and one migration for each statement, which ends in what the migration sees."""
    (folder / "versions").mkdir(parents=True)
    shutil.copy(Path(__file__).parents[3] / "migrations" / "env.py", folder)
    for number, statement in enumerate(statements, start=1):
        text = _ATTENTIVE_MIGRATION.format(
            number=number, previous=repr(str(number - 1)) if number > 1 else None, statement=statement
        )
        (folder / "versions" / f"{number}.py").write_text(text)
    return folder


def test_each_migration_is_a_transaction_of_its_own_under_timeouts_and_one_lock(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third of three fails: the two before it stay, of the third nothing, and the connection is as it was."""
    scripts = _write_migrations(
        tmp_path / "migrations",
        "CREATE TABLE seen AS",
        "INSERT INTO seen",
        "INSERT INTO seen SELECT '', '', 0, 0; CREATE TABLE half (id integer); INSERT INTO nowhere",
    )
    monkeypatch.setattr("server.db.schema._scripts", lambda: scripts)
    name = postgres.create(template="template0")
    engine = connect(postgres.url(name))
    with engine.connect() as connection:
        config = schema._config(connection)
        before = _timeouts(connection)
        connection.rollback()
        with pytest.raises(ProgrammingError, match="nowhere"):
            command.upgrade(config, "head")
        seen = connection.execute(text("SELECT * FROM seen ORDER BY transaction")).all()
        assert [(row.lock_timeout, row.statement_timeout, row.advisory_locks) for row in seen] == [
            ("4s", "1min", 1)
        ] * 2
        assert len({row.transaction for row in seen}) == 2
        assert revision(connection) == "2"
        assert inspect(connection).get_table_names() == ["alembic_version", "seen"]
        assert _timeouts(connection) == before
        assert connection.scalar(text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")) == 0
    engine.dispose()
    postgres.drop(name)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_migration_says_from_where_to_where(
    kind: str, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = _write_migrations(tmp_path / "migrations", *["SELECT 1;"] * 3)
    for path in (scripts / "versions").iterdir():
        path.write_text(path.read_text().replace(" + SEEN", ""))
    monkeypatch.setattr("server.db.schema._scripts", lambda: scripts)
    name = postgres.create(template="template0")
    engine = connect(postgres.url(name) if kind == "postgresql" else f"sqlite:///{tmp_path}/x.db")
    with engine.connect() as connection:
        command.upgrade(schema._config(connection), "1")
        connection.commit()
    assert migrate(engine) == Migrated("1", "3")
    assert migrate(engine) == Migrated("3", None)
    engine.dispose()
    postgres.drop(name)


def _timeouts(connection: Connection) -> list[str | None]:
    return [connection.scalar(text(f"SHOW {name}")) for name in ("lock_timeout", "statement_timeout")]


def test_a_migration_does_not_run_for_ever(postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As env.py stands, but for a limit that a test can wait for."""
    scripts = _write_migrations(tmp_path / "migrations", "SELECT pg_sleep(60);")
    environment = scripts / "env.py"
    environment.write_text(environment.read_text().replace('STATEMENT_TIMEOUT = "60s"', 'STATEMENT_TIMEOUT = "200ms"'))
    monkeypatch.setattr("server.db.schema._scripts", lambda: scripts)
    name = postgres.create(template="template0")
    engine = connect(postgres.url(name))
    with pytest.raises(OperationalError, match="statement timeout"):
        migrate(engine)
    with engine.connect() as connection:
        assert revision(connection) is None
    engine.dispose()
    postgres.drop(name)
