from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from sqlalchemy.dialects.postgresql.base import PGDialect

from server.config import Settings, SettingsError
from server.coordinator import open_coordinator, prepare
from server.db.schema import SchemaOutdated
from server.signing_key import SigningKeyUnusable


def test_a_prepared_home_opens_and_stays_the_same(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    prepare(settings)
    first = open_coordinator(settings)
    prepare(settings)
    second = open_coordinator(settings)
    assert first.signer.public_key == second.signer.public_key
    for coordinator in (first, second):
        coordinator.database.dispose()


def test_nothing_opens_before_it_is_prepared(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    with pytest.raises(SchemaOutdated):
        open_coordinator(settings)
    prepare(settings)
    (tmp_path / "coordinator.key").unlink()
    with pytest.raises(SigningKeyUnusable):
        open_coordinator(settings)


def test_what_lies_in_the_home_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    before = os.umask(0o000)
    try:
        settings = Settings(home=home)
        prepare(settings)
        coordinator = open_coordinator(settings)
        coordinator.database.write("probe", lambda tx: tx.now())
        names = {path.name for path in home.iterdir()}
        assert {"wardround.db", "wardround.db-wal", "wardround.db-shm"} <= names
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.glob("wardround.db*"))}
        assert modes.pop("home") == 0o700
        assert set(modes.values()) == {0o600}
        coordinator.database.dispose()
    finally:
        os.umask(before)


def test_a_database_that_others_could_read_is_taken_back(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    prepare(settings)
    path = tmp_path / "wardround.db"
    path.chmod(0o644)
    coordinator = open_coordinator(settings)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    coordinator.database.dispose()


@pytest.mark.quick(
    "postgresql-version2-False", "sqlite-version0-True", "sqlite-version1-False", "sqlite-version2-False"
)
@pytest.mark.parametrize(("version", "told"), [((14, 11), True), ((15, 0), False), ((18, 4), False)])
def test_a_postgresql_that_nobody_has_tried_is_told(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    version: tuple[int, int],
    told: bool,
) -> None:
    """SQLite comes with Python, and is not asked."""
    monkeypatch.setattr(PGDialect, "_get_server_version_info", lambda *_: version)
    settings = Settings(home=tmp_path, database_url=database_url)
    prepare(settings)
    open_coordinator(settings).database.dispose()
    lines = [one.getMessage() for one in caplog.records if "PostgreSQL" in one.getMessage()]
    expected = ["PostgreSQL 14.11 is older than 15, the oldest that was ever tried"]
    assert lines == (expected if told and database_url.startswith("postgresql") else [])


@pytest.mark.parametrize(
    ("grants", "words"),
    [
        (None, "grants.toml cannot be read: No such file"),
        ("[[grant", "grants.toml:"),
        ("", "grants.toml: write tables"),
        ('[[grant]]\ngroup = "g"\nrole = "king"', "grant 1: role:"),
    ],
)
def test_a_wrong_file_of_grants_is_named_at_the_start(tmp_path: Path, grants: str | None, words: str) -> None:
    prepare(Settings(home=tmp_path))
    file = tmp_path / "grants.toml"
    if grants is not None:
        file.write_text(grants)
    with pytest.raises(SettingsError, match=r"^WARDROUND_SSO_GRANTS: ") as refused:
        open_coordinator(Settings(home=tmp_path, sso_grants=file))
    assert words in str(refused.value)
