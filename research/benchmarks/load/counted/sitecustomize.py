"""Counts what a process asks of its database, at the driver below SQLAlchemy.

Python imports this by its name at the start of a process that has this folder on its path. COUNT_STATEMENTS names a
file of at least 16 bytes: statements that read or write rows, and transactions, as little-endian 64-bit numbers.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import mmap
import os
import struct
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_WORK = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH", "NOTIFY", "LISTEN")


class Counter:
    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), 16)
        self._lock, self._counts = threading.Lock(), [0, 0]

    def saw(self, statement: str) -> None:
        first = statement.lstrip().split(None, 1)[0].upper() if statement.strip() else ""
        if first in _WORK:
            self._add(0)
        elif first == "BEGIN":
            self._add(1)

    def began(self) -> None:
        self._add(1)

    def _add(self, index: int) -> None:
        with self._lock:
            self._counts[index] += 1
            struct.pack_into("<QQ", self._page, 0, *self._counts)


def _text_of(query: Any) -> str:
    return query.decode() if isinstance(query, bytes) else str(query)


def watch_sqlite(module: ModuleType, counter: Counter) -> None:
    connect = module.connect

    def watched(*arguments: Any, **options: Any) -> Any:
        connection = connect(*arguments, **options)
        # SQLite itself tells of every statement that it runs.
        connection.set_trace_callback(counter.saw)
        return connection

    module.connect = watched
    sys.modules["sqlite3"].connect = watched  # type: ignore[attr-defined]


def watch_psycopg(module: ModuleType, counter: Counter) -> None:
    for name, commits in (("Cursor", "Connection"), ("AsyncCursor", "AsyncConnection")):
        _watch_cursor(getattr(module, name), counter)
        _watch_connection(getattr(module, commits), counter)


def _watch_cursor(cursor: type, counter: Counter) -> None:
    execute, executemany = cursor.execute, cursor.executemany  # type: ignore[attr-defined]

    def watched(self: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        counter.saw(_text_of(query))
        return execute(self, query, *arguments, **options)

    def watched_many(self: Any, query: Any, rows: Sequence[Any], **options: Any) -> Any:
        counter.saw(_text_of(query))
        return executemany(self, query, rows, **options)

    cursor.execute, cursor.executemany = watched, watched_many  # type: ignore[attr-defined]


def _watch_connection(connection: type, counter: Counter) -> None:
    # The driver sends BEGIN by itself, through no cursor: a transaction is counted where it ends.
    for name in ("commit", "rollback"):
        end = getattr(connection, name)

        def watched(self: Any, *, end: Any = end) -> Any:
            # 0 is idle: there was none.
            if self.info.transaction_status != 0:
                counter.began()
            return end(self)

        setattr(connection, name, watched)


class _Finder(importlib.abc.MetaPathFinder):
    """Watches a driver as soon as it is imported."""

    def __init__(self, counter: Counter) -> None:
        self._counter, self._busy = counter, False
        self._watch = {"sqlite3.dbapi2": watch_sqlite, "psycopg": watch_psycopg}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._watch or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        execute, watch, counter = spec.loader.exec_module, self._watch[name], self._counter

        def watched(module: ModuleType) -> None:
            execute(module)
            watch(module, counter)

        spec.loader.exec_module = watched  # type: ignore[method-assign]
        return spec


if path := os.environ.get("COUNT_STATEMENTS"):
    import importlib.util

    sys.meta_path.insert(0, _Finder(Counter(path)))
