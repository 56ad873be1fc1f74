"""Models and updates as safetensors: named arrays whose names, shapes and types are fixed beforehand.

All content is checked before it is used: exactly the expected names, shapes and types, and finite numbers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from safetensors import (
    SafetensorError,
    deserialize,  # pyright: ignore[reportUnknownVariableType]
)
from safetensors.numpy import save

from study_protocol.wire.documents import load_json

UPDATE = "update/"
TERMS = "log-moments/"
ANSWER_TENSOR = "answer"

Array = np.ndarray[Any, np.dtype[Any]]
Spec = dict[str, tuple[tuple[int, ...], str]]

# The entry of a header that is no tensor.
METADATA = "__metadata__"
DTYPES = {"F32": "float32", "F64": "float64"}
_HEADER_ALLOWANCE = 4096
_HEADER_PER_TENSOR = 512
_FINITE_CHECK_CHUNK = 1 << 20
# A safetensors file begins with the length of its header, a little-endian number of 8 bytes.
LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000  # bytes, as in the library


class TensorError(Exception):
    """A body that is not the tensors expected. `code` is stable, the text names the tensor, never a value."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def spec_of(tensors: Mapping[str, Array]) -> Spec:
    """Return names → (shape, type) of `tensors`.

    Raises:
        TensorError: `wrong-dtype` for anything but float32 and float64.
    """
    for name, array in tensors.items():
        if array.dtype.name not in DTYPES.values():
            raise TensorError("wrong-dtype", f"{name} is {array.dtype.name}, and only float32 and float64 travel")
    return {name: (tuple(array.shape), array.dtype.name) for name, array in sorted(tensors.items())}


def prefixed(spec: Spec, prefix: str) -> Spec:
    """Return the same spec with every name under `prefix`."""
    return {prefix + name: value for name, value in spec.items()}


def terms_spec(orders: int) -> Spec:
    """Return a hospital's cumulative log-moment bounds: one at the filter order, one per order of the statement."""
    return {TERMS + "filter": ((1,), "float64"), TERMS + "moments": ((orders,), "float64")}


def answer_spec(cells: int) -> Spec:
    """Return the spec of a hospital's part of a query in the clear: whole numbers with noise, in steps of the grid."""
    return {ANSWER_TENSOR: ((cells,), "float64")}


def spec_to_json(spec: Spec) -> dict[str, Any]:
    """Return names → {"shape", "dtype"}."""
    return {name: {"shape": list(shape), "dtype": dtype} for name, (shape, dtype) in spec.items()}


def spec_from_json(value: Mapping[str, Any]) -> Spec:
    """Return the inverse of `spec_to_json`."""
    return {name: (tuple(item["shape"]), item["dtype"]) for name, item in value.items()}


def encoded_size_limit(spec: Spec, *, metadata: int = 0) -> int:
    """Return the most bytes that a body of this spec may have.

    They are the numbers, a bounded header and so many bytes of metadata.
    """
    numbers = sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in spec.values())
    return numbers + metadata + _HEADER_ALLOWANCE + sum(_HEADER_PER_TENSOR + 2 * len(name) for name in spec)


def encode(tensors: Mapping[str, Array]) -> bytes:
    """Return safetensors bytes. Equal arrays give equal bytes.

    Raises:
        TensorError: `wrong-dtype` or `not-finite`.
    """
    spec_of(tensors)
    # Sorted and in one memory order: a digest must not depend on how an array came about.
    contiguous = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    for name, array in contiguous.items():
        require_finite(name, array)
    return save(contiguous)


def decode(data: bytes, spec: Spec, *, metadata: int = 0) -> dict[str, Array]:
    """Return the arrays in `data`, which must be exactly those of `spec`.

    Args:
        metadata: most bytes that the header may hold beside them.

    Raises:
        TensorError: `too-large`, `malformed`, `wrong-names`, `wrong-dtype`, `wrong-shape`, `not-finite`.
    """
    # Before the parser sees it, whose work grows with the header.
    if len(data) > (limit := encoded_size_limit(spec, metadata=metadata)):
        raise TensorError("too-large", f"{len(data)} bytes, and at most {limit} are expected")
    parts = _deserialize(data)
    require_spec({name: (tuple(part["shape"]), part["dtype"]) for name, part in parts}, spec)
    arrays: dict[str, Array] = {}
    for name, part in parts:
        shape, dtype = spec[name]
        # A copy, for the bytes of the body are read-only and little-endian on any machine.
        array = np.frombuffer(part["data"], dtype=np.dtype(dtype).newbyteorder("<")).reshape(shape).astype(dtype)
        require_finite(name, array)
        arrays[name] = array
    return arrays


def metadata_in(data: bytes) -> dict[str, str]:
    """Return texts by name in the header of a file. Raises TensorError `malformed`."""
    return texts_of(_header_of(data))


def texts_of(header: Any) -> dict[str, str]:
    """Return the metadata of a parsed header. Raises TensorError `malformed`."""
    metadata = cast(dict[str, Any], header).get(METADATA) if isinstance(header, dict) else None
    # Null is what the library takes for none.
    texts = cast(dict[str, Any], {} if metadata is None else metadata)
    if not isinstance(metadata, dict | None) or not all(isinstance(text, str) for text in texts.values()):
        raise TensorError("malformed", "the metadata in the header are not texts by name")
    return texts


def _header_of(data: bytes) -> Any:
    """Return the header.

    If it names a tensor twice the library takes the last, and another reader may take the first.
    """
    length = int.from_bytes(data[:LENGTH_BYTES], "little")
    try:
        if length > LONGEST_HEADER:
            raise ValueError("the header is longer than the library reads")
        return load_json(data[LENGTH_BYTES : LENGTH_BYTES + length])
    except ValueError as error:
        reason = "the body is not a safetensors file, or its header says a name twice"
        raise TensorError("malformed", reason) from error


def _deserialize(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    _header_of(data)
    try:
        return cast(list[tuple[str, dict[str, Any]]], deserialize(data))
    except (SafetensorError, ValueError) as error:
        raise TensorError("malformed", "the body is not a safetensors file") from error


def require_spec(header: Mapping[str, tuple[tuple[int, ...], str]], spec: Spec) -> None:
    """Check that a file's header (names → shape, type code) is exactly `spec`.

    Raises:
        TensorError: `wrong-names`, `wrong-dtype`, `wrong-shape`.
    """
    if set(header) != set(spec):
        missing, unknown = sorted(set(spec) - set(header)), len(set(header) - set(spec))
        raise TensorError("wrong-names", f"missing tensors: {missing[:5]}, and {unknown} that were not expected")
    for name, (shape, dtype) in header.items():
        if DTYPES.get(dtype) != spec[name][1]:
            raise TensorError("wrong-dtype", f"{name} must be {spec[name][1]}")
        if shape != spec[name][0]:
            raise TensorError("wrong-shape", f"{name} must have shape {list(spec[name][0])}")


def require_finite(name: str, array: Array) -> None:
    """Raises TensorError `not-finite`."""
    flat = array.reshape(-1)
    # In pieces: isfinite makes an array as long as what it looks at.
    for start in range(0, flat.size, _FINITE_CHECK_CHUNK):
        if not np.isfinite(flat[start : start + _FINITE_CHECK_CHUNK]).all():
            raise TensorError("not-finite", f"{name} holds NaN or an infinity")
