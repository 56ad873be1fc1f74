"""What a process asks of its database and its disk is counted from outside, without a change to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from research.benchmarks.load.coordinators import counting

WRITES = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode=WAL")
connection.execute("PRAGMA synchronous=FULL")
connection.execute("CREATE TABLE t (a)")
for number in range(int(sys.argv[2])):
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO t VALUES (?)", (number,))
    connection.execute("SELECT count(*) FROM t").fetchall()
    connection.execute("COMMIT")
with open(sys.argv[1] + ".beside", "w") as file:
    os.fsync(file.fileno())
"""


def _counted(folder: Path, commits: int) -> dict[str, int]:
    with counting() as counts:
        assert counts.read() == {"syncs": 0, "statements": 0, "transactions": 0}
        command = [sys.executable, "-c", WRITES, str(folder / str(commits)), str(commits)]
        subprocess.run(command, env={**os.environ, **counts.variables()}, check=True)
        return counts.read()


@pytest.mark.skipif(shutil.which("cc") is None, reason="counting what is synced needs a C compiler")
def test_statements_transactions_and_syncs_of_sqlite_are_counted(tmp_path: Path) -> None:
    few, many = _counted(tmp_path, 7), _counted(tmp_path, 17)
    assert (few["statements"], few["transactions"]) == (14, 7)
    assert (many["statements"], many["transactions"]) == (34, 17)
    # Once for each commit; what making and closing the file takes is the same for both.
    assert many["syncs"] - few["syncs"] == 10
    assert few["syncs"] > 7
