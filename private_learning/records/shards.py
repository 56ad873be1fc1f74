"""Shards of WebDataset: tar files in which members with one name, except for the ending, are one sample."""

from __future__ import annotations

import io
import json
import math
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from private_learning.records.images import Form, decoded, form_of
from private_learning.records.lazy import LazyExamples
from private_learning.records.paths import is_hidden, require_there, visible_paths
from private_learning.records.pictures import SUFFIXES, Flaw, Header, header
from private_learning.records.records import Array, DataError
from private_learning.records.unpacking import read_array

_ARRAY = ".npy"
_INPUTS = {*SUFFIXES, _ARRAY}
_MAX_SHARDS = 100_000
# Braces in a name: {000..012}, or {a,b,c}.
_BRACES = re.compile(r"\{(?:(\d+)\.\.(\d+)|([^{}]*,[^{}]*))\}")


@dataclass(frozen=True)
class _Member:
    """The place of a file in its shard."""

    offset: int
    size: int


@dataclass(frozen=True, repr=False)
class _Sample:
    """One sample: its input, label and patient. header: None for an array."""

    shard: int
    input_member: _Member
    ending: str
    label: int
    patient: Any
    header: Header | Flaw | None


@dataclass(frozen=True)
class _Shards:
    """A reader of inputs in shards.

    shard, offset, size  (n,) the place of each input
    endings              n endings with their dots
    form                 of images. None: arrays as numpy.save writes them
    """

    paths: tuple[Path, ...]
    shard: Array = field(repr=False)
    offset: Array = field(repr=False)
    size: Array = field(repr=False)
    endings: tuple[str, ...] = field(repr=False)
    form: Form | None

    def __len__(self) -> int:
        return len(self.shard)

    def read(self, rows: Array) -> Array:
        files = [io.BytesIO()] * len(rows)
        shards: list[int] = self.shard[rows].tolist()
        for shard in sorted(set(shards)):
            with self.paths[shard].open("rb") as opened:
                for place in (place for place, shard_of_row in enumerate(shards) if shard_of_row == shard):
                    member = _Member(int(self.offset[rows[place]]), int(self.size[rows[place]]))
                    files[place] = io.BytesIO(_bytes(opened, member))
        if self.form is None:
            return _arrays(files)
        numbers: list[int] = rows.tolist()
        return decoded([(file, self.endings[row]) for file, row in zip(files, numbers, strict=True)], self.form)

    def stored(self, row: int) -> bytes:
        with self.paths[int(self.shard[row])].open("rb") as opened:
            return _bytes(opened, _Member(int(self.offset[row]), int(self.size[row])))


def is_pattern(path: Path) -> bool:
    """Return whether the name has braces that stand for several shards."""
    return _BRACES.search(path.name) is not None and path.suffix == ".tar"


def shards_at(path: Path) -> list[Path]:
    """Return the shards of a pattern with braces, of a folder, or a single one, in the order of their names.

    Raises:
        DataError: the pattern stands for no file, or for too many.
    """
    if path.is_dir():
        return [file for file in visible_paths(path) if file.suffix == ".tar"]
    count = math.prod(_choices(match) for match in _BRACES.finditer(path.name))
    if not 0 < count <= _MAX_SHARDS:
        raise DataError(f"shards: the braces stand for {count:,} files. 1 to {_MAX_SHARDS:,} are possible")
    return [path.with_name(name) for name in _expanded(path.name)]


def list_shards(paths: Sequence[Path]) -> LazyExamples:
    """Return examples from tar files of samples <key>.{png,jpg,npy,...} and <key>.{cls,json}, as in WebDataset.

    The label is in .cls, or in .json as "label". The patient is in .json as "patient", for all samples or for none.
    Places are looked up once, now, and inputs are read on demand. Grey and coloured images are as in `list_images`.

    Raises:
        DataError: there are no such shards or no samples, or some lack an input or a label. The message counts them.
    """
    if len(set(paths)) < len(paths):
        raise DataError(f"shards: {len(paths) - len(set(paths))} of {len(paths)} are named a second time")
    for path in paths:
        require_there(path)
    samples = _samples(paths)
    members = [(sample.shard, sample.input_member.offset, sample.input_member.size) for sample in samples]
    shard, offset, size = np.array(members).T
    endings = tuple(sample.ending for sample in samples)
    reader = _Shards(tuple(paths), shard, offset, size, endings, _form(samples))
    labels = np.array([sample.label for sample in samples])
    patients = [sample.patient for sample in samples]
    return LazyExamples.of(reader, labels, None if all(name is None for name in patients) else patients)


def _samples(paths: Sequence[Path]) -> list[_Sample]:
    parts = [part for shard, path in enumerate(paths) for part in _samples_of(shard, path)]
    samples = list(filter(None, parts))
    if len(samples) < len(parts):
        raise DataError(
            f"shards: {len(parts) - len(samples)} of {len(parts)} samples lack an input (one of "
            f'{", ".join(sorted(SUFFIXES))} or {_ARRAY}) or a label (a whole number in .cls, or "label" in .json)'
        )
    if not samples:
        raise DataError(f"shards: there are no samples in {len(paths)} tar files")
    return samples


def _samples_of(shard: int, path: Path) -> Iterator[_Sample | None]:
    with path.open("rb") as opened:
        for members in _grouped(path):
            yield _sample(opened, shard, members)


def _form(samples: Sequence[_Sample]) -> Form | None:
    """Return the form of images, or None for arrays. Raises DataError: both are there, or images differ."""
    headers = [sample.header for sample in samples if sample.header is not None]
    arrays = len(samples) - len(headers)
    if arrays and headers:
        raise DataError(f"shards: {arrays} of {len(samples)} samples are arrays, the others images: keep one kind")
    return form_of(headers, len(headers)) if headers else None


def _choices(braces: re.Match[str]) -> int:
    """Return the number of texts that the braces stand for."""
    first, last, words = braces.groups()
    return words.count(",") + 1 if words else max(0, int(last) - int(first) + 1)


def _expanded(name: str) -> list[str]:
    match = _BRACES.search(name)
    if match is None:
        return [name]
    first, last, words = match.groups()
    parts = words.split(",") if words else [f"{n:0{len(first)}d}" for n in range(int(first), int(last) + 1)]
    return [f"{name[: match.start()]}{part}{rest}" for part in parts for rest in _expanded(name[match.end() :])]


def _grouped(path: Path) -> Iterator[Mapping[str, _Member]]:
    """Yield the members of every sample, by ending. The members of a sample follow one another."""
    key, members = "", dict[str, _Member]()
    for entry in _files(path):
        folder, _, file = entry.name.rpartition("/")
        stem, _, ending = file.partition(".")
        kind = f".{ending.lower()}"
        # A second file of one name belongs to another sample or is a duplicate. Neither is dropped silently.
        if members and (f"{folder}/{stem}" != key or kind in members):
            yield members
            members = {}
        key = f"{folder}/{stem}"
        members[kind] = _Member(entry.offset_data, entry.size)
    if members:
        yield members


def _files(path: Path) -> Iterator[tarfile.TarInfo]:
    place = -1
    try:
        with tarfile.open(path, "r:") as archive:
            while (entry := archive.next()) is not None:
                # tarfile keeps all members that it has read, a list as long as the data.
                cast(Any, archive).members.clear()
                # A size below 0 would lead back to earlier members without end.
                if entry.size < 0 or cast(Any, archive).offset <= place:
                    raise ValueError("no size")
                place = cast(Any, archive).offset
                if not entry.isfile() or is_hidden(Path(entry.name)):
                    continue
                if entry.issparse():
                    raise DataError(f"{path.name}: files with holes (sparse ones) are not read. Pack them without")
                yield entry
    # The library lets errors of deeply nested headers and of invalid numbers in them through.
    except (tarfile.TarError, RecursionError, ValueError, OverflowError, EOFError, MemoryError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path.name}: not a plain tar file. Unpack a compressed one first") from error


def _sample(opened: IO[bytes], shard: int, members: Mapping[str, _Member]) -> _Sample | None:
    inputs = [ending for ending in members if ending in _INPUTS]
    if len(inputs) != 1:
        return None
    description: dict[str, Any] = {}
    try:
        if ".json" in members:
            value = json.loads(_bytes(opened, members[".json"]))
            description = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        label = int(_bytes(opened, members[".cls"]).decode()) if ".cls" in members else description["label"]
    except (ValueError, KeyError, RecursionError):
        return None
    # isinstance would take true for 1.
    if type(label) is not int:
        return None
    ending, member = inputs[0], members[inputs[0]]
    image = None if ending == _ARRAY else header(io.BytesIO(_bytes(opened, member)), ending)
    return _Sample(shard, member, ending, label, description.get("patient"), image)


def _bytes(opened: IO[bytes], member: _Member) -> bytes:
    opened.seek(member.offset)
    # A header may state any size.
    return opened.read(min(member.size, os.fstat(opened.fileno()).st_size))


def _arrays(files: Sequence[io.BytesIO]) -> Array:
    try:
        arrays = [read_array(file, len(file.getbuffer())) for file in files]
    except ValueError as error:
        raise DataError(f"shards: some of {len(files)} arrays are not whole, or not plain ones") from error
    if len({(array.shape, array.dtype) for array in arrays}) > 1:
        raise DataError("shards: all arrays have one shape and one type")
    return np.stack(arrays)
