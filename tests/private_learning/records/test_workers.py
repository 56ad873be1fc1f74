"""Workers that read records: how many there are, and errors of readers and of processes."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

from private_learning.records import DataError
from private_learning.records.workers import fetched, result_of, threads, workers
from tests.factories.readers import Plain


def test_there_are_at_most_four_workers_and_at_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, expected in ((64, 4), (3, 3), (1, 1), (None, 1)):
        monkeypatch.setattr("os.cpu_count", lambda count=processors: count)
        assert workers() == expected


def test_threads_of_one_process_are_the_same_and_named() -> None:
    assert threads() is threads()
    assert threads().submit(lambda: threading.current_thread().name).result().startswith("wardround-reading")
    assert threads().submit(os.getpid).result() == os.getpid()


def test_a_reader_of_a_local_class_cannot_be_sent() -> None:
    class Local(Plain):
        pass

    with pytest.raises(DataError, match="at the top of a module that can be imported"):
        fetched(Local(np.zeros((2, 3))), np.array([0]))


def test_errors_of_a_reader_pass_and_a_process_that_ended_is_said() -> None:
    failed: Future[int] = Future()
    failed.set_exception(DataError("1 of 2 files cannot be read"))
    with pytest.raises(DataError, match="1 of 2 files"):
        result_of(failed)
    gone: Future[int] = Future()
    gone.set_exception(BrokenProcessPool())
    with pytest.raises(DataError, match="a process that reads records has ended"):
        result_of(gone)
    done: Future[int] = Future()
    done.set_result(7)
    assert result_of(done) == 7
