"""Tensors that need not be in memory whole: read and written in pieces, byte for byte as `tensors.encode` does.

A piece is a run of one flattened tensor's numbers. Files are read, not mapped. Pages of a map count as memory of the
process, and a file that is cut short under it kills it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeGuard, cast

import numpy as np

from study_protocol.wire.documents import load_json
from study_protocol.wire.tensors import (
    DTYPES,
    LENGTH_BYTES,
    LONGEST_HEADER,
    METADATA,
    Array,
    Spec,
    TensorError,
    encoded_size_limit,
    require_finite,
    require_spec,
    texts_of,
)

PIECE = 1 << 18
"""Numbers in memory at once: 2 MiB of float64."""

Piece = tuple[str, int, Array]
"""A tensor's name, where in the flattened tensor the piece begins, and its numbers: (n,)."""


class ReadableTensors(Protocol):
    """Named tensors, in memory or in a file."""

    @property
    def spec(self) -> Spec:
        """Names → (shape, type)."""
        ...

    def piece(self, name: str, start: int, stop: int) -> Array:
        """Return numbers of the flattened tensor, shape (stop − start,). TensorError `not-finite`, `malformed`."""
        ...


class Arrays:
    """Tensors that are in memory."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._flat = {name: array.reshape(-1) for name, array in arrays.items()}
        self.spec: Spec = {name: (tuple(array.shape), array.dtype.name) for name, array in arrays.items()}

    def piece(self, name: str, start: int, stop: int) -> Array:
        return self._flat[name][start:stop]


class TensorFile:
    """An opened safetensors file. `descriptor` stays open, and its opener closes it.

    longest_metadata: most bytes that the header may hold beside the tensors of `spec`. metadata: texts by name.

    Raises:
        TensorError: `malformed`, `wrong-dtype`. With a `spec` also all errors of `tensors.decode`, of which
            `not-finite` only when the numbers are read.
    """

    def __init__(self, descriptor: int, spec: Spec | None = None, *, longest_metadata: int = 0) -> None:
        self._descriptor, size = descriptor, os.fstat(descriptor).st_size
        # Before the parser sees it, whose work grows with the header.
        if spec is not None and size > (limit := encoded_size_limit(spec, metadata=longest_metadata)):
            raise TensorError("too-large", f"the body is larger than the {limit} bytes expected")
        try:
            entries, self._begins, self.metadata = _read_header(descriptor, size)
        except ValueError as error:
            reason = "the body is not a safetensors file, or its header says a name twice"
            raise TensorError("malformed", reason) from error
        if spec is not None:
            require_spec(entries, spec)
        for name, (_, dtype) in entries.items():
            if dtype not in DTYPES:
                raise TensorError("wrong-dtype", f"{name}: float32 and float64 travel")
        self.spec: Spec = {name: (shape, DTYPES[dtype]) for name, (shape, dtype) in entries.items()}

    def piece(self, name: str, start: int, stop: int) -> Array:
        dtype = np.dtype(self.spec[name][1])
        values = np.empty(stop - start, dtype.newbyteorder("<"))
        read_at(self._descriptor, values, self._begins[name] + start * dtype.itemsize)
        require_finite(name, values)
        return values.astype(dtype, copy=False)


def read_at(descriptor: int, into: Array, offset: int) -> None:
    """Fill an array with the bytes that begin at `offset`. TensorError `malformed`: the file ends before."""
    rest = into.reshape(-1).view(np.uint8).data
    while len(rest) > 0:
        count = _read_into(descriptor, rest, offset)
        if count == 0:
            raise TensorError("malformed", "the file ends early")
        rest, offset = rest[count:], offset + count


def _read_into(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    # Windows. There no two threads read one file here: only the coordinator does that.
    os.lseek(descriptor, offset, os.SEEK_SET)
    content = os.read(descriptor, len(buffer))
    buffer[: len(content)] = content
    return len(content)


def _bytes_at(descriptor: int, count: int, offset: int) -> bytes:
    buffer = bytearray(count)
    return bytes(buffer[: _read_into(descriptor, memoryview(buffer), offset)])


def pieces(spec: Spec, size: int = PIECE) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, stop) of all numbers: tensors in order of their names, at most `size` numbers at once."""
    for name in sorted(spec):
        yield from runs(name, math.prod(spec[name][0]), size)


def runs(name: str, numbers: int, size: int = PIECE) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, stop) of the numbers of one tensor."""
    for start in range(0, numbers, size):
        yield name, start, min(start + size, numbers)


def read(tensors: ReadableTensors, size: int = PIECE) -> Iterator[Piece]:
    """Yield all numbers, in the order of `pieces`."""
    for name, start, stop in pieces(tensors.spec, size):
        yield name, start, tensors.piece(name, start, stop)


def encode_pieces(
    spec: Spec, values: Iterable[Piece], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes that `tensors.encode` makes of the same tensors, without holding them.

    Args:
        values: tensors in the order of `file_order`, each from its beginning to its end.
        metadata: texts for the header, written in the order of their names. The library's order differs from run to
            run.

    Raises:
        TensorError: `not-finite`.
        ValueError: pieces that are missing, too many or in another order.
    """
    yield _header(spec, metadata)
    due = [(name, math.prod(spec[name][0])) for name in file_order(spec)]
    due = [(name, numbers) for name, numbers in due if numbers]
    done = 0
    for name, start, piece in values:
        if not due or (name, start) != (due[0][0], done) or done + piece.size > due[0][1]:
            raise ValueError(f"a piece of {name} comes out of its order")
        require_finite(name, piece)
        yield np.ascontiguousarray(piece, np.dtype(spec[name][1]).newbyteorder("<")).data.cast("B")
        done += piece.size
        if done == due[0][1]:
            due, done = due[1:], 0
    if due:
        raise ValueError(f"numbers of {due[0][0]} are missing")


def encode_model(tensors: Mapping[str, Array], metadata: Mapping[str, str]) -> bytes:
    """Return a file with texts in its header. Equal tensors and texts give equal bytes. Raises as `encode_pieces`."""
    spec = Arrays(tensors).spec
    whole = ((name, 0, tensors[name].reshape(-1)) for name in file_order(spec) if tensors[name].size)
    return b"".join(encode_pieces(spec, whole, metadata))


def file_order(spec: Spec) -> list[str]:
    """Return the names in the order of their numbers in a file: wider types first, so that all lie aligned."""
    return sorted(spec, key=lambda name: (-np.dtype(spec[name][1]).itemsize, name))


def gather_tensors(spec: Spec, values: Iterable[Piece]) -> dict[str, Array]:
    """Return the tensors in memory, out of pieces in any order."""
    flat = {name: np.empty(math.prod(shape), dtype) for name, (shape, dtype) in sorted(spec.items())}
    for name, start, piece in values:
        flat[name][start : start + piece.size] = piece
    return {name: array.reshape(spec[name][0]) for name, array in flat.items()}


def _header(spec: Spec, metadata: Mapping[str, str] | None) -> bytes:
    written: dict[str, Any] = {METADATA: dict(sorted(metadata.items()))} if metadata else {}
    codes = {dtype: code for code, dtype in DTYPES.items()}
    end = 0
    for name in file_order(spec):
        shape, dtype = spec[name]
        begin, end = end, end + math.prod(shape) * np.dtype(dtype).itemsize
        written[name] = {"dtype": codes[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(written, ensure_ascii=False, separators=(",", ":")).encode()
    # Numbers begin at a multiple of eight bytes.
    text += b" " * (-len(text) % LENGTH_BYTES)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _read_header(
    descriptor: int, size: int
) -> tuple[dict[str, tuple[tuple[int, ...], str]], dict[str, int], dict[str, str]]:
    """Return names → (shape, type code), names → where the numbers begin in the file, metadata. Raises ValueError."""
    length = int.from_bytes(_bytes_at(descriptor, LENGTH_BYTES, 0), "little")
    if length > min(LONGEST_HEADER, size - LENGTH_BYTES):
        raise ValueError("the header is longer than the file, or than the library reads")
    text = _bytes_at(descriptor, length, LENGTH_BYTES)
    header = load_json(text)
    if not text.startswith(b"{") or not isinstance(header, dict):
        raise ValueError("the header is no object")
    entries = {name: _entry(value) for name, value in cast(dict[str, Any], header).items() if name != METADATA}
    start = LENGTH_BYTES + length
    _require_filled(size - start, sorted(entry[2:] for entry in entries.values()))
    shapes = {name: (shape, code) for name, (shape, code, _, _) in entries.items()}
    begins = {name: start + begin for name, (_, _, begin, _) in entries.items()}
    return shapes, begins, texts_of(cast(Any, header))


def _require_filled(size: int, spans: Iterable[tuple[int, int]]) -> None:
    end = 0
    # One behind the other, without holes, to the file's end: every byte is of exactly one tensor.
    for begin, stop in spans:
        if begin != end:
            raise ValueError("the tensors do not lie one behind the other")
        end = stop
    if end != size:
        raise ValueError("the file is longer or shorter than its tensors")


def _entry(value: Any) -> tuple[tuple[int, ...], str, int, int]:
    """Return (shape, type code, first and last byte) of one tensor, as the header says them. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("a tensor's entry is no object")
    entry = cast(dict[str, Any], value)
    code, shape, offsets = map(entry.get, ("dtype", "shape", "data_offsets"))
    if not (isinstance(code, str) and _are_counts(shape) and _are_counts(offsets) and len(offsets) == 2):
        raise ValueError("a tensor's entry does not say its type, shape and place")
    width = np.dtype(DTYPES[code]).itemsize if code in DTYPES else None
    if offsets[0] > offsets[1] or (width is not None and offsets[1] - offsets[0] != math.prod(shape) * width):
        raise ValueError("a tensor has another size than its shape and type")
    return tuple(shape), code, offsets[0], offsets[1]


def _are_counts(value: Any) -> TypeGuard[list[int]]:
    # By the very type: True is an int, too.
    return isinstance(value, list) and all(type(each) is int and each >= 0 for each in cast(list[Any], value))
