"""Addresses of databases: which ones are read, where a file database lies, and that none holds a password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DatabaseKind:
    """A kind of database.

    Attributes:
        driver: SQLAlchemy's name of the only driver that is used.
        package: what installs it.
        file: whether the database is a file of this machine.
    """

    driver: str
    package: str
    file: bool = False


DATABASES = {
    "postgresql": DatabaseKind("psycopg", "psycopg[binary]"),
    "sqlite": DatabaseKind("pysqlite", "", file=True),
    "duckdb": DatabaseKind("duckdb_engine", "duckdb-engine", file=True),
    "mysql": DatabaseKind("pymysql", "pymysql"),
    "mariadb": DatabaseKind("pymysql", "pymysql"),
    "oracle": DatabaseKind("oracledb", "oracledb"),
    "mssql": DatabaseKind("pyodbc", "pyodbc"),
}
# Drivers have many names for a password in an address. A harmless entry that is refused costs less than a password.
_SECRET = re.compile(r"pass|pwd|secret|token|credential", re.IGNORECASE)
_USE = "Leave it out, and say with password_file, password_environment or password_keyring where it is"


def checked_address(url: str, folder: Path) -> str:
    """Return the address with its driver, and with the whole path of a file database.

    Args:
        folder: where a relative path of a file database begins.

    Raises:
        ValueError: it is no address, of an unknown database, of a missing file, or has a password. It is not quoted.
    """
    address = parsed(url)
    name, _, driver = address.drivername.partition("+")
    kind = _kind_of(name, driver)
    entries = dict(address.query)
    if address.password is not None or any(_SECRET.search(f"{key}={text}") for key, text in entries.items()):
        raise ValueError(f"a password stands in the address. {_USE}")
    if kind.file:
        if entries:
            # Entries could open the file for writing, or load an extension.
            raise ValueError("the address of a file has nothing after a question mark. Write one in its name as %3F")
        path = folder / Path(address.database or "").expanduser()
        if not path.is_file():
            raise ValueError(f"there is no database file {path.name}. Relative paths begin at the folder of this file")
        address = address.set(database=str(path.absolute()))
    # Of DuckDB the driver has no name of its own.
    return address.set(drivername=name if name == "duckdb" else f"{name}+{kind.driver}").render_as_string()


def _kind_of(name: str, driver: str) -> DatabaseKind:
    kind = DATABASES.get(name)
    if kind is None or driver not in ("", kind.driver):
        names = ", ".join(each if read.file else f"{each}+{read.driver}" for each, read in DATABASES.items())
        raise ValueError(f"this database is not read. An address begins with one of {names}")
    return kind


def parsed(url: str) -> Any:
    """Return SQLAlchemy's URL. Raises ValueError without the text."""
    from sqlalchemy import make_url

    try:
        return make_url(url)
    # SQLAlchemy quotes the whole text, and Python a wrong port.
    except Exception:  # noqa: BLE001
        raise ValueError(
            "it is no address of a database, such as postgresql+psycopg://user@host/database or sqlite:///file.db"
        ) from None


def in_words(url: str) -> str:
    """Return the database in words: its kind, its name and its host."""
    address = parsed(url)
    kind = address.get_backend_name()
    name = Path(address.database or "").name if DATABASES[kind].file else address.database or ""
    host = address.host or address.query.get("host") or ""
    port = f":{address.port}" if address.port else ""
    return f"{kind} {name}" + (f" at {host}{port}" if host else "")
