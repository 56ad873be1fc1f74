from __future__ import annotations

from pathlib import Path

import pytest

from server.config import Settings
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
