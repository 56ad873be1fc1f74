"""Blobs in an S3-compatible object store, with a bounded cache of files on this machine.

An object is kept once it was read back and has the hash of what was sent. An object that is read is compared with its
name before it is used, and lies in the cache. Files may leave the cache at any time, and opened ones stay readable.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError, UnknownConfigurationKeyError
from obstore.store import S3Store

from server.db.blobs import Blob, IncomingFile, OpenedFile, Place, StoreAway, StoreUnusable, logger
from server.db.file_blobs import FileBlobs

_PART_BYTES = 8 << 20
# Parts of one upload in memory at once.
_PARTS_AT_ONCE = 3
_READ_BYTES = 1 << 20
_RETRIES = 3
_PROBES = ".probe"
_PROBE_SHA256 = hashlib.sha256(b"\0").hexdigest()
# No check takes nearly as long.
_PROBE_LEFT = timedelta(hours=1)
_REFUSALS = (PermissionDeniedError, UnauthenticatedError)
# A store's own error text may quote an object's name, or hold control sequences of a terminal.
_ITS_WORDS = re.compile(r"(?<=status code: )(\d+[^:]*):.*")
_NAMING = re.compile(r"\S*/\S*|[^ -~]+")


def open_store(
    address: str,
    *,
    endpoint: str = "",
    region: str = "",
    key_id: str = "",
    secret: str = "",
    patience_seconds: float = 10,
) -> S3Store:
    """Open the store of s3://bucket/prefix.

    Missing options are looked for where S3 tools look: AWS_* of the environment, a web identity's token file, the
    container's or the machine's own credentials.

    patience_seconds  how long one operation is tried again before the store counts as away

    Raises:
        StoreUnusable: the options fit no store.
    """
    parts = urlsplit(address)
    options = {"endpoint": endpoint, "region": region, "access_key_id": key_id, "secret_access_key": secret}
    config: dict[str, Any] = {name: value for name, value in options.items() if value}
    try:
        return S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            config=cast(Any, config),
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=5),
                # Limit of silence inside an answer of any length.
                "read_timeout": timedelta(seconds=20),
                "timeout": timedelta(hours=1),
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": timedelta(seconds=patience_seconds)},
        )
    except (BaseError, UnknownConfigurationKeyError, ValueError) as error:
        raise StoreUnusable(f"the object store cannot be used: {_reason(error)}") from error


class ObjectBlobs:
    """Objects of one bucket, under one prefix: `server.db.blobs.Blobs`.

    cache  folder of this machine, which its processes may share
    limit  bytes that the cache holds while no file is open
    """

    def __init__(self, store: S3Store, cache: Path, limit: int) -> None:
        self._store, self._limit = store, limit
        # The first file that is added makes this process look: others may have filled the cache.
        self._added, self._lock = limit, threading.Lock()
        self.cache = FileBlobs(cache, disposable=True)

    def receive(self, limit: int) -> AbstractContextManager[IncomingFile]:
        return self.cache.receive(limit)

    def keep(self, incoming: IncomingFile, place: Place) -> Blob:
        key, sha256 = place.key(incoming.sha256), incoming.sha256
        with _asking(), _missing_is_away():
            obstore.put(self._store, key, incoming.path, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE)
        # Not what the store says of it, but what it gives back.
        with self.receive(incoming.bytes) as stored:
            if not self._fetched(key, stored) or stored.sha256 != sha256:
                raise StoreAway("the object store gave back other bytes than were sent")
        # The process that takes updates in is not always the one that clears them away.
        if not place.is_of_a_hospital:
            self._cached(incoming, place)
        return Blob(sha256, incoming.bytes)

    def write(self, place: Place, data: bytes) -> Blob:
        with self.receive(len(data)) as incoming:
            incoming.write(data)
            return self.keep(incoming, place)

    def open(self, place: Place, sha256: str) -> OpenedFile | None:
        if place.stays and (opened := self._in_cache(place, sha256)):
            return opened
        # Cached files of a round that was cleared elsewhere are gone, too.
        size = self._size(place.key(sha256))
        if size is None:
            self.cache.remove(place, sha256)
            return None
        if opened := self._in_cache(place, sha256):
            return opened
        # A damaged copy, if there is one, is replaced.
        with self.receive(size) as incoming:
            if not self._fetched(place.key(sha256), incoming):
                return None
            if incoming.sha256 != sha256:
                event = place.log_name(sha256)
                logger.error("an object is not what its name says: it is not used", extra={"event": event})
                return None
            try:
                # Opened first: from here on another process may evict it.
                opened = incoming.opened()
            except FileNotFoundError as error:
                raise StoreAway("the folder of the cache was deleted meanwhile") from error
            self._cached(incoming, place)
        return opened

    def _in_cache(self, place: Place, sha256: str) -> OpenedFile | None:
        opened = self.cache.open(place, sha256)
        if opened is not None:
            with suppress(FileNotFoundError):
                # Used now. The time of writing, by which a file is known again, stays.
                path, now = self.cache.root / place.key(sha256), time.time_ns()
                os.utime(path, ns=(now, path.stat().st_mtime_ns))
        return opened

    def has(self, place: Place, sha256: str) -> bool:
        return self._size(place.key(sha256)) is not None

    def hashes(self, place: Place) -> list[str]:
        beginning = f"{place.folder}/{place.kind}."
        return [key.removeprefix(beginning) for key in self._keys(place.folder) if key.startswith(beginning)]

    def remove(self, place: Place, sha256: str) -> None:
        with _asking(), suppress(FileNotFoundError):
            obstore.delete(self._store, place.key(sha256))
        self.cache.remove(place, sha256)

    def clear(self, folder: str) -> None:
        keys = self._keys(folder)
        if keys:
            with _asking(), suppress(FileNotFoundError):
                obstore.delete(self._store, keys)
        self.cache.clear(folder)

    def folders(self, under: str) -> list[str]:
        with _asking():
            prefixes = set(_listed(self._store, under))
        # Copies here may be of what another worker has cleared.
        return sorted(prefixes.union(self.cache.folders(under)))

    def sweep(self, older_than_seconds: float) -> int:
        return self.cache.sweep(older_than_seconds)

    def check(self) -> None:
        """Write a byte, read it back, list it, and remove it again."""
        self.cache.check()
        # A name of its own: another process may be taking its own away in this moment.
        probe = Place(_PROBES, os.urandom(8).hex())
        try:
            probe_file = self.write(probe, b"\0")
            self._tidy_probes(probe.key(probe_file.sha256))
            self.remove(probe, probe_file.sha256)
        except StoreAway as error:
            # A probe whose removal is not answered is left: a later check takes it away.
            if error.__cause__ is None or isinstance(error.__cause__, _REFUSALS):
                with suppress(StoreAway):
                    self.remove(probe, _PROBE_SHA256)
            _raise_if_refused(error.__cause__)
            raise

    def _tidy_probes(self, mine: str) -> None:
        """Take away what a killed process left long ago, by the store's own clock. Raises StoreAway without `mine`."""
        with _asking():
            modified_at = {
                str(entry["path"]): entry["last_modified"]
                for page in _pages(self._store, f"{_PROBES}/")
                for entry in page
            }
        if mine not in modified_at:
            raise StoreAway("the object store does not list what it keeps")
        stale = [key for key, at in modified_at.items() if modified_at[mine] - at > _PROBE_LEFT]
        if stale:
            with _asking(), suppress(FileNotFoundError):
                obstore.delete(self._store, stale)

    def _size(self, key: str) -> int | None:
        with _asking():
            try:
                return obstore.head(self._store, key)["size"]
            except FileNotFoundError:
                return None

    def _keys(self, folder: str) -> list[str]:
        with _asking():
            return [str(entry["path"]) for page in _pages(self._store, f"{folder}/") for entry in page]

    def _fetched(self, key: str, incoming: IncomingFile) -> bool:
        """Write the object's bytes into the file, and return False if there is none."""
        with _asking():
            try:
                answer = obstore.get(self._store, key)
            except FileNotFoundError:
                return False
            if answer.meta["size"] > incoming.limit:
                # It cannot be what its name says. As many bytes as fit are enough to see it.
                return self._fetched_beginning(key, incoming)
            for piece in answer.stream(min_chunk_size=_READ_BYTES):
                incoming.write(bytes(piece))
            return True

    def _fetched_beginning(self, key: str, incoming: IncomingFile) -> bool:
        if incoming.limit:
            incoming.write(bytes(obstore.get_range(self._store, key, start=0, end=1)))
        return True

    def _cached(self, incoming: IncomingFile, place: Place) -> None:
        try:
            self.cache.move(incoming, place)
        except FileNotFoundError:
            # The cache was deleted in this moment: it is a copy.
            return
        with self._lock:
            self._added += incoming.bytes
            if self._added < self._limit // 8:
                return
            self._added = 0
        self._evict(self._limit - self._limit // 8)

    def _evict(self, limit: int) -> None:
        """Take the files away that were not used for longest, until the rest fits. Open ones stay whole."""
        files: list[tuple[float, int, Path]] = []
        for path in self.cache.root.rglob("*.*"):
            with suppress(FileNotFoundError):
                if path.is_file() and path.parent.name != ".incoming":
                    status = path.stat()
                    files.append((status.st_atime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= limit:
                return
            path.unlink(missing_ok=True)
            total -= size


def _listed(store: S3Store, under: str) -> list[str]:
    # The library's overloads name a type of a package that is not needed.
    listing: Any = obstore.list_with_delimiter(store, under)  # pyright: ignore[reportUnknownMemberType]
    return [str(prefix) for prefix in listing["common_prefixes"]]


def _pages(store: S3Store, under: str) -> Iterable[Iterable[Mapping[str, Any]]]:
    return cast(Any, obstore.list(store, under))  # pyright: ignore[reportUnknownMemberType]


@contextmanager
def _asking() -> Generator[None]:
    """Turn refusals and silence of the store into StoreAway: no data is lost, and a person can mend it."""
    try:
        yield
    except (BaseError, TimeoutError, ConnectionError) as error:
        raise StoreAway(f"the object store does not answer as it should: {_without_names(error)}") from error


def _raise_if_refused(error: BaseException | None) -> None:
    if isinstance(error, _REFUSALS):
        raise StoreUnusable("the object store refuses the credentials: it must allow to put, get, list and delete")
    if isinstance(error, FileNotFoundError):
        raise StoreUnusable("the object store has no bucket of this name")


def _reason(error: BaseException) -> str:
    return _first_line(error)[:200]


def _first_line(error: BaseException) -> str:
    # Of an error without a text, its kind.
    return next(filter(str.strip, str(error).splitlines()), type(error).__name__)


def _without_names(error: BaseException) -> str:
    """Return the reason without addresses, paths and the store's words.

    An object's name holds the hospital's, which no log may.
    """
    return _NAMING.sub("…", _ITS_WORDS.sub(r"\1", _first_line(error)))[:300]


@contextmanager
def _missing_is_away() -> Generator[None]:
    """Raise StoreAway for a missing target of a write: only the bucket can be missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreAway("the object store has no such bucket") from error
