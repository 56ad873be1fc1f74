"""A database that the version before filled comes to today's schema: every row as it was, and every rule as if new.

The rows are those of `tests/versions/dumps`: a study in mid-round, with a ledger, witnesses, sessions and messages.
"""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, MetaData, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from server.db.schema import Migrated, head, is_current, migrate
from server.db.session import connect
from tests.conftest import Postgres
from tests.versions.make_dumps import KINDS, Kind

HEAD = {"e": 1, "sha": "a" * 64, "key": "k" * 43, "signature": "s" * 86}
WITNESS = (
    "INSERT INTO witnesses (study_id, client, public_key, entries, sha256, signature, written_by) "
    "VALUES ((SELECT id FROM studies), 'outside', :key, :e, :sha, :signature, 'test')"
)
RELEASED = (
    "INSERT INTO ledger (study_id, sequence, kind, round, body, previous, sha256, written_at, written_by) "
    "VALUES ((SELECT id FROM studies), :sequence, :kind, :round, '{}', :sha, :sha, 0, 'test')"
)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.path.stem)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database at revision 0002, as it was left."""
    kind: Kind = request.param
    name = "database.sql" if kind.database == "postgresql" else "coordinator/wardround.db"
    with zipfile.ZipFile(kind.path) as archive:
        found = Path(archive.extract(name, tmp_path))
    if kind.database == "sqlite":
        engine = connect(f"sqlite:///{found}")
        yield engine
        engine.dispose()
        return
    server: Postgres = request.getfixturevalue("postgres")
    database = server.create(template="template0")
    url = server.url(database)
    with psycopg.connect(url.render_as_string(False).replace("postgresql+psycopg://", "postgresql://", 1)) as raw:
        raw.execute(found.read_bytes())
    engine = connect(url)
    yield engine
    engine.dispose()
    server.drop(database)


@pytest.fixture
def new(old: Engine, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An empty database at today's revision, of the same kind."""
    if old.dialect.name == "sqlite":
        engine = connect(f"sqlite:///{tmp_path}/new.db")
        migrate(engine)
        yield engine
        engine.dispose()
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = server.create()
    engine = connect(server.url(name))
    yield engine
    engine.dispose()
    server.drop(name)


def contents(engine: Engine) -> Mapping[str, list[dict[str, Any]]]:
    """Every row of every table but Alembic's."""
    known = MetaData()
    known.reflect(engine)
    with engine.connect() as connection:
        return {
            table.name: [
                dict(row) for row in connection.execute(table.select().order_by(*table.primary_key)).mappings()
            ]
            for table in known.sorted_tables
            if table.name != "alembic_version"
        }


def said(found: Iterable[Any]) -> list[str]:
    # PostgreSQL writes a rule that came out of a dump with its casts and brackets elsewhere.
    texts = (json.dumps(one, sort_keys=True, default=str) for one in found)
    return sorted(re.sub(r"::[a-z ]+(\[\])?|[() ]", "", one) for one in texts)


def rules(engine: Engine) -> Mapping[str, Any]:
    """Of every table what the database holds its rows to, in the database's own words."""
    found: dict[str, Any] = {}
    inspector = inspect(engine)
    for table in inspector.get_table_names():
        found[table] = {
            "columns": {one["name"]: (str(one["type"]), one["nullable"]) for one in inspector.get_columns(table)},
            "primary": sorted(inspector.get_pk_constraint(table)["constrained_columns"]),
            "foreign": said(inspector.get_foreign_keys(table)),
            "checks": said(inspector.get_check_constraints(table)),
            "indexes": said(inspector.get_indexes(table)),
            "unique": said(inspector.get_unique_constraints(table)),
        }
    triggers = (
        "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger'"
        if engine.dialect.name == "sqlite"
        else "SELECT tgname, tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal"
    )
    with engine.connect() as connection:
        found["triggers"] = sorted(tuple(row) for row in connection.execute(text(triggers)))
    return found


def test_every_row_stays_as_it_was(old: Engine) -> None:
    before = contents(old)
    assert len(before["ledger"]) >= 4
    assert before["witnesses"]
    assert migrate(old) == Migrated("0002", head())
    after = contents(old)
    # There were two roles, and no study of a key and no end of it.
    roles = {"operator": "administrator", "viewer": "viewer"}
    kept = before.pop("operator_keys")
    for key in kept:
        key |= {"role": roles[key["role"]], "name": key.pop("label"), "study": None, "expires_at": None}
    assert kept
    assert after.pop("api_keys") == kept
    # Nobody had logged in.
    assert [after.pop(name) for name in ("sessions", "device_logins")] == [[], []]
    require_begun(after.pop("audit_log"), after.pop("audit_heads"), {study["name"] for study in before["studies"]})
    for study in after["studies"]:
        # Created before there were numbers.
        assert study.pop("protocol") == 1
        assert (study.pop("resumed_alone"), study.pop("resumed_at")) == (0, None)
    for row in (*after["clients"], *after["queries"]):
        assert [row.pop(name) for name in ("seen_at", "reserved_until") if name in row] == [None]
    for client in after["clients"]:
        # A hospital has told nothing then.
        assert client.pop("lacking_columns") is None
        # Its program is known from its next request on.
        assert [client.pop(name) for name in ("program", "protocol", "program_since")] == [None] * 3
    for model in after["models"]:
        # Of studies with a constant clip norm.
        assert model.pop("clip_norm") is None
    assert after == before
    assert is_current(old)
    assert migrate(old) == Migrated(head(), None)


def require_begun(log: list[dict[str, Any]], heads: list[dict[str, Any]], studies: set[str]) -> None:
    """Each log has one entry, which says that no actor was recorded before."""
    assert {row["study"] for row in log} == {"", *studies} == {row["study"] for row in heads}
    assert [(row["study"], row["sequence"], row["previous"]) for row in log] == [
        (row["study"], row["entries"], "0" * 64) for row in heads
    ]
    for row in log:
        event = json.loads(row["event"])
        assert (event["action"], event["actor"]["kind"]) == ("before-the-log", "unknown")
        content = {"event": event, "previous": "0" * 64, "sequence": 1, "study": row["study"] or None}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert row["sha256"] == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.quick("masked-sqlite")
def test_every_rule_is_that_of_a_new_database(old: Engine, new: Engine) -> None:
    migrate(old)
    assert rules(old) == rules(new)
    if old.dialect.name == "sqlite":
        with old.connect() as connection:
            assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            assert connection.execute(text("PRAGMA integrity_check")).scalars().all() == ["ok"]


def test_a_model_names_a_clip_norm_above_zero_or_none(old: Engine) -> None:
    migrate(old)
    with old.begin() as connection:
        assert connection.execute(text("UPDATE models SET clip_norm = 0.25 WHERE version = 0")).rowcount == 1
    for wrong in (0.0, -1.0):
        with pytest.raises(IntegrityError), old.begin() as connection:
            connection.execute(text("UPDATE models SET clip_norm = :norm WHERE version = 0"), {"norm": wrong})


def test_the_ledger_takes_what_is_new_and_stays_append_only(old: Engine) -> None:
    released = {"sequence": len(contents(old)["ledger"]) + 1, "kind": "released", "sha": "a" * 64, "round": None}
    with pytest.raises(IntegrityError), old.begin() as connection:
        connection.execute(text(RELEASED), released)
    migrate(old)
    with old.begin() as connection:
        connection.execute(text(RELEASED), released)
        connection.execute(text(RELEASED), released | {"sequence": released["sequence"] + 1, "round": 1})
        # No client of that name.
        connection.execute(text(WITNESS), HEAD)
    for wrong in ({"kind": "settled", "round": 1}, {"kind": "settled"}, {"kind": "taken back", "round": 9}):
        with pytest.raises(IntegrityError), old.begin() as connection:
            connection.execute(text(RELEASED), released | {"sequence": released["sequence"] + 2} | wrong)
    for statement in ("UPDATE ledger SET round = 7", "DELETE FROM ledger"):
        with pytest.raises(DBAPIError, match="append-only"), old.begin() as connection:
            connection.execute(text(statement))
