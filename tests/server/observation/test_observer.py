"""What a transaction and a step tell, whatever comes of them; nothing where nobody asks."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from server.db.session import Database
from server.observation.instruments import Instruments
from server.observation.observer import UNOBSERVED, ProcessObserver


class Refused(Exception):
    """Stands for whatever a transaction raises."""


def _count(instruments: Instruments, name: str, **labels: str) -> float | None:
    return instruments.registry.get_sample_value(name, labels)


def test_nobody_is_told_where_nobody_asks() -> None:
    assert UNOBSERVED.idle
    with UNOBSERVED.transaction("show-study") as again, UNOBSERVED.step("close"):
        again()
    UNOBSERVED.failed("close")
    UNOBSERVED.looked()


def test_a_transaction_that_raises_is_timed_and_raises() -> None:
    instruments = Instruments()
    with pytest.raises(Refused), ProcessObserver(instruments).transaction("show-study"):
        raise Refused
    assert _count(instruments, "wardround_transaction_seconds_count", transaction="show-study") == 1


def test_a_question_without_a_transaction_is_timed(tmp_path: Path) -> None:
    instruments = Instruments()
    database = Database(f"sqlite:///{tmp_path / 'observed.db'}", observer=ProcessObserver(instruments))
    assert database.look(text("SELECT :one"), {"one": 1}) == [(1,)]
    assert _count(instruments, "wardround_transaction_seconds_count", transaction="look") == 1
    database.dispose()


def test_a_step_that_raises_is_timed_and_raises() -> None:
    instruments = Instruments()
    with pytest.raises(Refused), ProcessObserver(instruments).step("close"):
        raise Refused
    assert _count(instruments, "wardround_worker_step_seconds_count", kind="close") == 1


def test_every_attempt_after_the_first_is_a_retry(tmp_path: Path) -> None:
    instruments = Instruments()
    database = Database(f"sqlite:///{tmp_path / 'observed.db'}", attempts=4, observer=ProcessObserver(instruments))
    left = [1, 1]

    def work(_: object) -> str:
        if left:
            left.pop()
            raise OperationalError("", None, Exception("database is locked"))
        return "done"

    assert database.read("show-study", work) == "done"
    assert _count(instruments, "wardround_transaction_retries_total", transaction="show-study") == 2
    assert _count(instruments, "wardround_transaction_seconds_count", transaction="show-study") == 1
    database.dispose()


def test_a_look_is_dated() -> None:
    instruments = Instruments()
    assert _count(instruments, "wardround_worker_look_timestamp_seconds") == 0
    ProcessObserver(instruments).looked()
    assert (_count(instruments, "wardround_worker_look_timestamp_seconds") or 0) > 1_600_000_000
