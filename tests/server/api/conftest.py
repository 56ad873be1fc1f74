from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.factories.live_coordinator import Live, live

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """One coordinator for the whole folder; tests take studies of their own."""
    with live(tmp_path_factory.mktemp("home"), body_idle_seconds=3.0) as coordinator:
        yield coordinator


@pytest.fixture
def study() -> str:
    return f"study-{next(_NUMBERS)}"


@pytest.fixture(autouse=True)
def _true_clock(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "here" in request.fixturenames:
        request.getfixturevalue("here").skew = 0.0
