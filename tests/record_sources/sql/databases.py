"""Databases with the same rows: SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine

from tests.conftest import Postgres

KINDS = ("sqlite", "duckdb", "postgresql")


@contextmanager
def database(kind: str, folder: Path, postgres: Any, *statements: str) -> Iterator[str]:
    """The address of a new database in which these statements were run."""
    server: Postgres | None = postgres if kind == "postgresql" else None
    name = server.create("template0") if server else ""
    url: Any = server.url(name) if server else f"{kind}:///{folder / f'hospital.{kind}'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in statements:
            connection.execution_options(no_parameters=True).exec_driver_sql(statement)
    engine.dispose()
    try:
        yield str(url)
    finally:
        if server:
            server.drop(name)


def described(folder: Path, url: str, query: str, **entries: object) -> Path:
    """A file source.toml with one query."""
    (folder / "cohort.sql").write_text(query)
    lines = [f"{name} = {str(entry).lower() if isinstance(entry, bool) else entry}" for name, entry in entries.items()]
    path = folder / "source.toml"
    path.write_text("\n".join(["[source]", 'kind = "sql"', f'url = "{url}"', 'query = "cohort.sql"', *lines]))
    return path
