"""Keys and audit log of a coordinator that the version before filled, after its upgrade."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.factories.live_coordinator import Live, live
from tests.versions.make_dumps import STUDY, Kind
from wardround.cli.main import build


@pytest.fixture
def upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Live, dict[str, str]]]:
    """A coordinator, and role by id of the keys that it had before."""
    with zipfile.ZipFile(Kind("sqlite", masked=False).path) as archive:
        for name in archive.namelist():
            if name.startswith("coordinator/"):
                archive.extract(name, tmp_path)
    # Files of a dump have no modes.
    for path in (tmp_path / "coordinator").rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    with closing(sqlite3.connect(tmp_path / "coordinator" / "wardround.db")) as connection:
        before = dict(connection.execute("SELECT id, role FROM operator_keys").fetchall())
    with live(tmp_path / "coordinator") as here:
        key = tmp_path / "administrator.key"
        key.write_text(here.operator_key)
        monkeypatch.setenv("WARDROUND_SERVER", here.url)
        monkeypatch.setenv("WARDROUND_API_KEY_FILE", str(key))
        yield here, before


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(), words)
    return result.exit_code, result.stdout, result.stderr


def test_old_keys_are_listed_as_administrator_and_viewer(upgraded: tuple[Live, dict[str, str]]) -> None:
    here, before = upgraded
    assert set(before.values()) == {"operator", "viewer"}
    code, out, _ = run("key", "list", "--json", "--server", here.url)
    assert code == 0
    listed = {key["id"]: key for key in json.loads(out)["keys"]}
    roles = {"operator": "administrator", "viewer": "viewer"}
    for id, role in before.items():
        assert (listed[id]["role"], listed[id]["study"], listed[id]["expires_at"]) == (roles[role], None, None)
    assert "never" in run("key", "list", "--server", here.url)[1]
    # An old key is ended as a new one is.
    assert run("key", "revoke", next(iter(before)), "--server", here.url)[0] == 0


def test_each_log_begins_with_the_upgrade(upgraded: tuple[Live, dict[str, str]]) -> None:
    here, _ = upgraded
    for words, entries in ((("audit-log", STUDY), 1), (("audit-log",), 3)):
        code, out, complaint = run(*words)
        assert (code, complaint) == (0, "")
        shown = " ".join(out.split())
        assert "an upgrade began this log" in shown
        assert f"entries: {entries}. The chain is good" in shown
    # From now on every change has an actor, and the head a signature.
    assert here.operator("PUT", f"/v1/studies/{STUDY}/clients/delta/revoked").status_code == 200
    code, out, _ = run("audit-log", STUDY, "--jsonl")
    first, second = (json.loads(line)["event"] for line in out.splitlines())
    assert (code, first["action"], first["actor"]["kind"]) == (0, "before-the-log", "unknown")
    assert (second["action"], second["actor"]["name"], second["actor"]["role"]) == ("revoke", "Ada", "administrator")
    page = here.operator("GET", f"/v1/studies/{STUDY}/audit").json()
    assert page["signed"]["signature"] is not None
