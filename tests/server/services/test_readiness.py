"""However often strangers ask whether the process is ready, database and store are asked once a second."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from server.db.file_blobs import FileBlobs
from server.db.session import Database
from server.services.coordinator import Coordinator
from server.services.readiness import FRESH_SECONDS, Readiness, Single
from tests.factories.studies import FakeClock


class Counted:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.checks = self.reads = 0
        check, read = FileBlobs.check, Database.read

        def checked(blobs: FileBlobs) -> None:
            self.checks += 1
            check(blobs)

        def asked(database: Database, name: str, work: Any) -> Any:
            self.reads += name == "readiness"
            return read(database, name, work)

        monkeypatch.setattr(FileBlobs, "check", checked)
        monkeypatch.setattr(Database, "read", asked)


def _ask(readiness: Readiness) -> None:
    for result in readiness.ask().values():
        result.result(30)


@pytest.mark.quick("sqlite")
def test_many_questions_cost_the_store_one_check_a_second(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted, clock = Counted(monkeypatch), FakeClock()
    readiness = Readiness(replace(coordinator), clock.now)
    for seconds in range(1, 4):
        for _ in range(100):
            _ask(readiness)
        assert (counted.checks, counted.reads) == (seconds, seconds)
        clock.sleep(FRESH_SECONDS)


def test_an_error_is_not_kept() -> None:
    results = [OSError("away"), None]

    def work() -> str:
        error = results.pop(0)
        if error is not None:
            raise error
        return "well"

    single = Single("check", work, fresh_seconds=1.0, clock=lambda: 0.0)
    failed: Future[str] = single.ask()
    with pytest.raises(OSError, match="away"):
        failed.result(30)
    assert [single.ask().result(30) for _ in range(3)] == ["well"] * 3
