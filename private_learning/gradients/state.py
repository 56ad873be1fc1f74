"""State that a loss or a model keeps between calls: attributes, buffers, closure cells, globals, generators.

A memory couples records as surely as a mean over the batch does. It is looked for before the first round, by calls on
generated records.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import random
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

# Beyond so many numbers PyTorch's own count of changes stands for a tensor's content.
_LARGE = 1 << 20
_DEEPEST = 6
# What every module has: parameters are the training's to change, the rest is PyTorch's. Buffers are looked at.
_OF_EVERY_MODULE = set(vars(nn.Module())) - {"_buffers"}
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


def state_of(*roots: object) -> dict[str, object]:
    """Return place -> fingerprint of its content, for all that the given callables and objects can reach.

    Two results of one object differ exactly in the places that changed between them.
    """
    places: dict[str, object] = {}
    visited: set[int] = set()
    for root in roots:
        _visit(root, "", places, visited, _DEEPEST)
    return places


def changed(before: Mapping[str, object], after: Mapping[str, object]) -> str | None:
    """Return the first place that differs, or None."""
    return next((place for place in (*before, *after) if before.get(place) != after.get(place)), None)


def kept_of_first_call(root: Any, first: Callable[[Any], object], second: Callable[[Any], object]) -> str | None:
    """Return a place that a first call fills by its data, as a cache of public things is not, or None.

    first: calls the root. second: calls a copy of it, which was never called, with other data of the same shapes.
    """
    before, spare = state_of(root), _copied(root)
    first(root)
    after = state_of(root)
    filled = [place for place, value in after.items() if before.get(place) != value]
    if not filled:
        return None
    if spare is None:
        return filled[0]
    second(spare)
    compared = state_of(spare)
    return next((place for place in filled if _content(after[place]) != _content(compared.get(place))), None)


class _Identity(NamedTuple):
    """An object without a content that is known here."""

    kind: str
    number: int


def _content(value: object) -> object:
    return value.kind if isinstance(value, _Identity) else value


def _copied(root: Any) -> Any:
    """Return a copy that shares its parameters and no other state of calls, or None where copying fails."""
    parameters = list(root.parameters()) if isinstance(root, nn.Module) else []
    try:
        return _copy(root, {id(parameter): parameter for parameter in parameters})
    # A user's object may raise any error when it is copied.
    except Exception:  # noqa: BLE001
        return None


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """Copy as `copy.deepcopy`, which takes functions as they are.

    Here their cells and named globals are copied, too.
    """
    if not isinstance(value, types.FunctionType) or _of_a_library(value):
        return copy.deepcopy(value, memo)
    if id(value) in memo:
        return memo[id(value)]
    namespace, closure = dict(value.__globals__), value.__closure__ or ()
    cells = tuple(types.CellType() for _ in closure)
    function = types.FunctionType(value.__code__, namespace, value.__name__, value.__defaults__, cells or None)
    memo[id(value)] = function
    function.__kwdefaults__, function.__dict__ = value.__kwdefaults__, copy.deepcopy(value.__dict__, memo)
    for name in _names(value.__code__):
        if isinstance(namespace.get(name), (list, dict, set, deque, Tensor, np.ndarray, types.FunctionType)):
            namespace[name] = _copy(namespace[name], memo)
    for cell, original in zip(cells, closure, strict=True):
        with suppress(ValueError):
            cell.cell_contents = _copy(original.cell_contents, memo)
    return function


def _visit(value: object, place: str, places: dict[str, object], visited: set[int], depth: int) -> None:
    if isinstance(value, weakref.ReferenceType):
        return
    if isinstance(value, _PLAIN):
        places[place] = value
        return
    generator = _generator(value)
    if generator is not None:
        places[place] = generator
        return
    places[place] = _fingerprint(value)
    if id(value) in visited or depth == 0 or isinstance(value, (types.ModuleType, Tensor, np.ndarray)):
        return
    visited.add(id(value))
    for name, part in _parts(value):
        _visit(part, f"{place}.{name}" if place else name, places, visited, depth - 1)


def _fingerprint(value: object) -> object:
    if isinstance(value, Tensor):
        if isinstance(value, nn.Parameter):
            return tuple(value.shape)
        content = None if value.numel() > _LARGE else hashlib.sha256(_bytes(value)).digest()
        return tuple(value.shape), value._version if content is None else content
    if isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        return array.shape, hashlib.sha256(array.tobytes()).digest() if array.size <= _LARGE else id(array)
    if isinstance(value, (list, tuple, set, frozenset, dict, deque)):
        return type(cast(object, value)).__name__, len(cast("list[Any]", value))
    if isinstance(value, types.MethodType):
        # Bound anew at each look.
        return id(value.__self__), id(value.__func__)
    return _Identity(type(value).__name__, id(value))


def _bytes(value: Tensor) -> bytes:
    # Values that vmap left behind have no storage of their own.
    try:
        return value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    except RuntimeError:
        return repr(value._version).encode()


def _generator(value: object) -> object | None:
    if isinstance(value, torch.Generator):
        return value.get_state().numpy().tobytes()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, np.random.RandomState):
        return repr(value.get_state())
    return value.getstate() if isinstance(value, random.Random) else None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, (list, tuple, deque)):
        parts = cast("list[object]", value)
        yield from zip(map(str, range(len(parts))), parts, strict=True)
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in cast("dict[Any, object]", value).items())
    elif isinstance(value, (set, frozenset)):
        yield "content", tuple(sorted(map(repr, cast("set[object]", value))))
    elif isinstance(value, functools.partial):
        partial = cast("functools.partial[Any]", value)
        yield from (("func", partial.func), ("args", partial.args), ("keywords", partial.keywords))
    elif isinstance(value, types.MethodType):
        yield from (("self", value.__self__), (value.__name__, value.__func__))
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, type):
        yield from _of_class(value)
    elif isinstance(value, nn.Module):
        yield from _of_module(value)
    else:
        yield from _of_object(value)


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield cells of the closure, defaults, attributes, and the globals that the code names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        # A cell that is not filled yet.
        except ValueError:
            continue
    yield from (("defaults", function.__defaults__), ("keywords", function.__kwdefaults__))
    yield from vars(function).items()
    for name in _names(function.__code__):
        referenced = function.__globals__.get(name)
        # Functions of libraries keep their own counsel: tables of operators, caches.
        if referenced is not None and not _of_a_library(referenced):
            yield name, referenced


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _of_a_library(value: object) -> bool:
    module = getattr(value, "__module__", None) if callable(value) else None
    return isinstance(module, str) and module.partition(".")[0] in ("torch", "numpy", "builtins", "math", "functools")


def _of_module(module: nn.Module) -> Iterator[tuple[str, object]]:
    for name, part in vars(module).items():
        if name == "_buffers":
            yield from cast("dict[str, object]", part).items()
        elif name not in _OF_EVERY_MODULE:
            yield name, part
    yield from module.named_children()
    yield from _of_class(type(module), "forward")


def _of_object(value: object) -> Iterator[tuple[str, object]]:
    yield from getattr(value, "__dict__", {}).items()
    for name in getattr(type(value), "__slots__", ()):
        if hasattr(value, name):
            yield name, getattr(value, name)
    if callable(value):
        yield from _of_class(type(value), "__call__")


def _of_class(kind: type, name: str | None = None) -> Iterator[tuple[str, object]]:
    """Yield values that the class itself keeps, and those that its method of that name reaches."""
    if kind.__module__.partition(".")[0] in ("torch", "numpy", "builtins"):
        return
    for key, part in vars(kind).items():
        plain = isinstance(part, (*_PLAIN, list, dict, set, deque, Tensor, np.ndarray))
        if plain and not key.startswith("__"):
            yield f"{kind.__name__}.{key}", cast(object, part)
    method = None if name is None else cast("Callable[..., Any] | None", getattr(kind, name, None))
    if name is not None and isinstance(method, types.FunctionType):
        yield name, method
