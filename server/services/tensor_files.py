"""Tensors in files: what a stored body holds, read one tensor at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from safetensors import SafetensorError, safe_open

from client_sdk.protocol.wire.tensors import Array, Spec, TensorError, read_file
from server.domain.errors import Code, Rejected

_CODES: dict[str, Code] = {"malformed": "malformed-tensors", "too-large": "body-too-large"}


def rejected(error: TensorError) -> Rejected:
    """The problem that a bad body is answered with."""
    return Rejected(_CODES.get(error.code, cast(Code, error.code)), error.detail)


def spec_of_model(path: Path) -> Spec:
    """Names, shapes and types of an initial model, every number of it finite.

    Raises:
        Rejected: `malformed-tensors`, `wrong-names` (no tensor at all), `wrong-dtype`, `wrong-shape` (an empty
            tensor), `not-finite`.
    """
    try:
        spec = _header(path)
        for _ in read_file(path, spec):
            pass
    except TensorError as error:
        raise rejected(error) from error
    return spec


def walk(path: Path, spec: Spec) -> Iterator[tuple[str, Array]]:
    """The tensors of a body that must be exactly `spec`. Raises Rejected."""
    try:
        yield from read_file(path, spec)
    except TensorError as error:
        raise rejected(error) from error


def names_in(path: Path) -> set[str]:
    """The names of the tensors in a body. Raises Rejected `malformed-tensors`."""
    try:
        return set(_slices(path))
    except TensorError as error:
        raise rejected(error) from error


def load(path: Path, spec: Spec) -> dict[str, Array]:
    """All tensors of a file that the coordinator wrote itself."""
    return dict(read_file(path, spec))


def _header(path: Path) -> Spec:
    slices = _slices(path)
    if not slices:
        raise TensorError("wrong-names", "a model has at least one tensor")
    spec: Spec = {}
    for name, (shape, dtype) in slices.items():
        if dtype != "F32":
            raise TensorError("wrong-dtype", "model parameters are float32")
        if 0 in shape:
            raise TensorError("wrong-shape", "a model has no empty tensors")
        spec[name] = (shape, "float32")
    return spec


def _slices(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    try:
        file: Any = safe_open(path, framework="numpy")
    except (SafetensorError, ValueError) as error:
        raise TensorError("malformed", "the body is not a safetensors file") from error
    with file as opened:
        slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118
        return {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in slices.items()}
