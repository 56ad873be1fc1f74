"""Lines of a bulk export: one resource each, in files of NDJSON, plain or compressed with gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from record_sources.errors import SourceError

_SUFFIXES = (".ndjson", ".ndjson.gz")
_LONGEST_LINE = 64 << 20
_EXPORT = "Export with FHIR's bulk operation $export as NDJSON, one resource in each line"


@dataclass(frozen=True, repr=False)
class ResourceLine:
    """One resource, as parsed JSON, with the line itself as bytes."""

    kind: str
    resource: dict[str, Any]
    line: bytes


def export_files(folder: Path) -> list[Path]:
    """Return the NDJSON files of a folder, by name.

    Raises:
        SourceError: there is no such folder, or it has no NDJSON file.
    """
    if not folder.is_dir():
        raise SourceError(f"{folder} is no folder. Name the folder of the FHIR export.")
    files = sorted(path for path in folder.iterdir() if _is_export(path))
    if not files:
        raise SourceError(f"{folder} has no file that ends in .ndjson or .ndjson.gz. {_EXPORT}.")
    return files


UNREAD = "files and folders whose names do not end in .ndjson or .ndjson.gz, not read"
"""The entries that `unread_entries` counts."""


def unread_entries(folder: Path) -> int:
    """Return how many files and folders of a folder `export_files` leaves out. Hidden ones do not count."""
    return sum(not _is_export(path) and not path.name.startswith(".") for path in folder.iterdir())


def _is_export(path: Path) -> bool:
    return path.name.lower().endswith(_SUFFIXES) and path.is_file()


def read_resources(files: list[Path], progress: Callable[[int], None] = lambda _bytes: None) -> Iterator[ResourceLine]:
    """Yield the resources of the files in their order. One line is in memory at a time.

    Args:
        files: paths from `export_files`.
        progress: is called with the bytes read of the stored files, compressed where they are, since the last call.

    Raises:
        SourceError: a line is no resource, or a compressed file is cut off. It names the file and the line.
    """
    for path in files:
        with _opened(path) as stored:
            lines = gzip.GzipFile(fileobj=stored) if path.name.lower().endswith(".gz") else stored
            position = 0
            for number, line in enumerate(_lines(lines, path), start=1):
                if line.strip():
                    yield _resource(line, path, number)
                if number % 1000 == 0:
                    position = _advance(stored, position, progress)
            _advance(stored, position, progress)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise SourceError(f"{path.name} cannot be read: {error.strerror}.") from None


def _advance(stored: IO[bytes], position: int, progress: Callable[[int], None]) -> int:
    now = stored.tell()
    progress(now - position)
    return now


def _lines(stream: IO[bytes] | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        try:
            line = stream.readline(_LONGEST_LINE)
        except (EOFError, OSError, zlib.error) as error:
            raise SourceError(
                f"{path.name} cannot be read past line {number - 1}: it is damaged or cut off. Copy it again."
            ) from error
        if not line:
            return
        if len(line) == _LONGEST_LINE:
            raise SourceError(f"{path.name}, line {number} is longer than {_LONGEST_LINE >> 20} MiB. {_EXPORT}.")
        yield line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _resource(line: bytes, path: Path, number: int) -> ResourceLine:
    try:
        parsed: Any = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
        if b"\\ud" in line or b"\\uD" in line:
            json.dumps(parsed, ensure_ascii=False).encode()  # half a pair of surrogates is no text
    except (ValueError, RecursionError):
        raise SourceError(f"{path.name}, line {number} is no JSON object in UTF-8, or is cut off. {_EXPORT}.") from None
    resource = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
    kind = resource.get("resourceType")
    if not isinstance(kind, str):
        raise SourceError(f"{path.name}, line {number} is no FHIR resource: it has no resourceType. {_EXPORT}.")
    if kind == "Bundle":
        raise SourceError(f"{path.name}, line {number} is a Bundle, and bundles are not read. {_EXPORT}.")
    return ResourceLine(kind, resource, line.strip())


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
