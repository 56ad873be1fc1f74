from __future__ import annotations

import json

import pytest
from filelock import FileLock

from tests.versions.previous import installed, named


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[str, ...]:
    """The command `wardround` of the version before, built once, however many workers test."""
    shared = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    made = shared / "previous-version.json"
    with FileLock(f"{made}.lock"):
        if not made.exists():
            made.write_text(json.dumps(installed(named(), shared / "previous-version")))
    return tuple(json.loads(made.read_text()))
