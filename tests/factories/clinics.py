"""A hospital's database in SQLite with its source file, and the rows as plain Python."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

QUERY = "SELECT patient, age, died FROM icu"


def rows_of_clinic(count: int) -> list[tuple[str, float, str]]:
    return [(f"p{number}", 20.0 + number % 60, "yes" if number % 3 else "no") for number in range(count)]


def clinic(folder: Path, count: int = 50, query: str = QUERY) -> Path:
    """Write a database, a query and `source.toml` into the folder, and return the path of the last."""
    with sqlite3.connect(folder / "clinic.db") as connection:
        connection.execute("DROP TABLE IF EXISTS icu")
        connection.execute("CREATE TABLE icu (patient TEXT, age REAL, died TEXT)")
        connection.executemany("INSERT INTO icu VALUES (?, ?, ?)", rows_of_clinic(count))
    connection.close()
    (folder / "cohort.sql").write_text(query)
    return source_file(folder, "sqlite:///clinic.db")


def source_file(folder: Path, url: str, *more: str) -> Path:
    """Write `source.toml` for the query `cohort.sql` of the folder."""
    lines = ["[source]", 'kind = "sql"', f'url = "{url}"', 'query = "cohort.sql"', *more]
    (folder / "source.toml").write_text("\n".join(lines) + "\n")
    return folder / "source.toml"


def start_snapshot(
    folder: Path, *, failpoint: str = "", before: str = "", name: str = "icu-1"
) -> subprocess.Popen[str]:
    """Start `wardround data snapshot` in a process of its own.

    before: Python that runs first, as to set a limit or to slow something down
    """
    # A suite in the background may have been started with SIGINT ignored, which its children would inherit.
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heeding}\n{before}\nfrom wardround.cli.main import main\nmain()"
    arguments = ["data", "snapshot", str(folder / "source.toml"), "-o", str(folder / f"{name}.parquet")]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments, "--home", str(folder / "home"), "--as", "ada"],
        env=os.environ | {"WARDROUND_FAILPOINT": failpoint},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
