"""A database of each kind for one test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.record_sources.sql.databases import database

Open = Callable[..., str]


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Makes a database of a kind with some statements."""
    with ExitStack() as stack:

        def make(kind: str, *statements: str) -> str:
            postgres = request.getfixturevalue("postgres") if kind == "postgresql" else None
            return stack.enter_context(database(kind, tmp_path, postgres, *statements))

        yield make
