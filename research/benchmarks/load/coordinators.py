"""The coordinator under load: one process or several on one database, and what they have used and done."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, make_url, text

from research.benchmarks.load.meter import RETAIN, peak_mib, processor_seconds, processor_seconds_below
from wardround.demo.live import LiveCoordinator, embedded_postgres, postgres_folder
from wardround.demo.processes import Processes

_COUNTER = Path(__file__).parent / "counted"


@dataclass
class Served:
    """A coordinator that answers. `others` serve beside the first one, from the same folder and database."""

    first: LiveCoordinator
    others: list[LiveCoordinator] = field(default_factory=list[LiveCoordinator])
    postgres_pid: int | None = None
    counts: Counts | None = None

    @property
    def pids(self) -> list[int]:
        return [
            coordinator.process.popen.pid
            for coordinator in (self.first, *self.others)
            if coordinator.process is not None
        ]

    @property
    def ports(self) -> list[int]:
        return [coordinator.port for coordinator in (self.first, *self.others)]

    def processor_seconds(self) -> float:
        return processor_seconds(self.pids)

    def database_seconds(self) -> float:
        """Of PostgreSQL's processes; SQLite works inside the coordinator's."""
        return 0.0 if self.postgres_pid is None else processor_seconds_below(self.postgres_pid)

    def peak_mib(self) -> int:
        return max(peak_mib(pid) for pid in self.pids)


@contextmanager
def served(
    database: str, *, processes: int = 1, variables: Mapping[str, str] | None = None, keeps_freed: bool = True
) -> Generator[Served, None, None]:
    """A coordinator on a database of its own: `sqlite` or `postgres`.

    variables    of everybody's environment
    keeps_freed  nothing that it frees goes back to the system, as its seconds are of interest, and not its memory
    """
    os.environ |= {**(RETAIN if keeps_freed else {}), **(variables or {})}
    with tempfile.TemporaryDirectory() as home, database_of(database) as (url, pid), Processes() as running:
        first = LiveCoordinator(Path(home), running, url)
        first.prepare()
        first.serve(log_level="WARNING")
        served_coordinator = Served(first, postgres_pid=pid)
        for _ in range(processes - 1):
            # Hospitals sign one public origin, whichever process their request reaches.
            second = LiveCoordinator(Path(home), running, url, public_origin=first.origin)
            second.serve(log_level="WARNING")
            served_coordinator.others.append(second)
        yield served_coordinator


@contextmanager
def database_of(kind: str) -> Generator[tuple[str | None, int | None], None, None]:
    """The address of a new, empty database and the process that serves it; neither for SQLite."""
    if kind == "sqlite":
        yield None, None
        return
    with embedded_postgres() as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        name = f"load_{uuid.uuid4().hex}"
        with engine.connect() as connection:
            connection.execute(text(f"CREATE DATABASE {name}"))
        engine.dispose()
        pid = int((postgres_folder(url) / "postmaster.pid").read_text().splitlines()[0])
        yield make_url(url).set(database=name).render_as_string(hide_password=False), pid


class NoCompiler(Exception):
    """There is no C compiler here: what is synced cannot be counted."""


@dataclass
class Counts:
    """Counters that a coordinator's process adds to: calls that sync to the disk, statements, transactions."""

    folder: Path
    library: Path

    def variables(self) -> dict[str, str]:
        """The environment of a process that counts."""
        path = os.pathsep.join((str(_COUNTER), os.environ.get("PYTHONPATH", "")))
        files = {"COUNT_SYNCS": str(self.folder / "syncs"), "COUNT_STATEMENTS": str(self.folder / "statements")}
        return {"LD_PRELOAD": str(self.library), "PYTHONPATH": path, **files}

    def read(self) -> dict[str, int]:
        names = ("syncs", "statements", "transactions")
        raw = (self.folder / "syncs").read_bytes()[:8] + (self.folder / "statements").read_bytes()[:16]
        return {name: int.from_bytes(raw[8 * at : 8 * at + 8], "little") for at, name in enumerate(names)}


@contextmanager
def counting() -> Generator[Counts, None, None]:
    """Raises NoCompiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        library = folder / "syncs.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, _COUNTER / "syncs.c", "-ldl"], check=True)
        for name in ("syncs", "statements"):
            (folder / name).write_bytes(bytes(4096))
            # PostgreSQL's processes may run as somebody else.
            (folder / name).chmod(0o666)
        folder.chmod(0o755)
        yield Counts(folder, library)
