"""Workers that prefetch records: threads, or processes that hold only a reader."""

from __future__ import annotations

import os
import pickle
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context
from typing import TypeVar

from private_learning.records.lazy import Reader, read_inputs
from private_learning.records.records import Array, DataError

# More workers would be idle while one or two devices compute.
_MAX_WORKERS = 4
T = TypeVar("T")


def workers() -> int:
    """Return the number of threads or processes that read."""
    return min(_MAX_WORKERS, os.cpu_count() or 1)


def threads() -> ThreadPoolExecutor:
    """Return the threads of this process."""
    return _threads(os.getpid())


def fetched(reader: Reader, rows: Array) -> Future[Array]:
    """Return the future of the rows' inputs, read in another process. It starts at the first call.

    Raises:
        DataError: the reader cannot be sent there.
    """
    return _processes(_ReaderIdentity(reader), os.getpid()).submit(_fetched, rows)


def result_of(future: Future[T]) -> T:
    """Return the result of a worker.

    Raises:
        DataError: the reader failed, or its process has ended.
    """
    try:
        return future.result()
    except BrokenProcessPool as error:
        _processes.cache_clear()
        raise DataError(
            "a process that reads records has ended: it was stopped, or the machine is short of memory. Start again. "
            "The step that it read for was not charged"
        ) from error


# By process: a fork has no threads of its parent.
@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers(), thread_name_prefix="wardround-reading")


@dataclass(frozen=True, eq=False)
class _ReaderIdentity:
    """A reader as a cache key, compared by identity and not by value."""

    reader: Reader

    def __hash__(self) -> int:
        return id(self.reader)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ReaderIdentity) and other.reader is self.reader


@lru_cache(maxsize=2)
def _processes(reader: _ReaderIdentity, process: int) -> ProcessPoolExecutor:
    try:
        sent = pickle.dumps(reader.reader)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise DataError(
            f"the reader of the records cannot be sent to another process ({type(error).__name__}): define its class "
            "at the top of a module that can be imported and let it open files when it reads, or have it read by "
            "threads"
        ) from error
    # Spawned: a fork would inherit locks that other threads hold.
    return ProcessPoolExecutor(workers(), mp_context=get_context("spawn"), initializer=_start, initargs=(sent,))


_READERS: list[Reader] = []


def _start(sent: bytes) -> None:
    """Unpickle the reader in a new process."""
    _READERS[:] = [pickle.loads(sent)]  # noqa: S301 (from the process that started this one)


def _fetched(rows: Array) -> Array:
    return read_inputs(_READERS[0], rows)
