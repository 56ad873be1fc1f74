"""What every table brings: named CHECKs that a migration finds on both kinds of database."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import CheckConstraint, text

# The tables of queries belong to the schema, too.
from server.db import query_tables, tables  # noqa: F401  # pyright: ignore[reportUnusedImport]
from server.db.session import Database
from server.db.table_base import Base, hexadecimal, index_where, one_of


def test_a_check_of_words_lists_those_of_the_literal() -> None:
    check = one_of("state", Literal["draft", "running"])
    assert str(check.sqltext) == "state IN ('draft', 'running')"
    assert check.info["words"] == ("draft", "running")
    assert str(hexadecimal("sha256", "digest").sqltext) == "length(sha256) = 64"


def test_an_index_over_some_rows_has_its_condition_on_both_databases() -> None:
    index = index_where("ended_at IS NULL", "uq_open", "study_id")
    assert index.unique
    assert {str(index.dialect_options[name]["where"]) for name in ("sqlite", "postgresql")} == {"ended_at IS NULL"}


def test_every_check_of_the_models_is_in_the_database(database: Database) -> None:
    wanted = {
        str(constraint.name)
        for table in Base.metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    with database.engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            found = set(connection.scalars(text("SELECT conname FROM pg_constraint WHERE contype = 'c'")))
        else:
            written = " ".join(connection.scalars(text("SELECT sql FROM sqlite_master WHERE type = 'table'")))
            found = {name for name in wanted if f"CONSTRAINT {name} CHECK" in written}
    assert len(wanted) > 25
    assert wanted <= found
