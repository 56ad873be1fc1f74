from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.db.session import Database
from server.services.coordinator import Coordinator
from tests.factories.studies import FakeClock, coordinator_on


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def coordinator(database_url: str, clock: FakeClock, tmp_path: Path) -> Iterator[Coordinator]:
    """A coordinator over each kind of database, on a fake clock."""
    database = Database(database_url, clock=clock)
    yield coordinator_on(database, tmp_path)
    database.dispose()
