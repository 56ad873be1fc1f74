"""Public names that load on first use: a type stub beside a module says where each of its names is defined.

Type checkers read the same stub, so they and the program cannot differ.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(module: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a module whose names load on first use.

    Args:
        module: the module's `__name__`.
        file: the module's `__file__`. The stub has the same path with the ending `.pyi`.
    """
    homes = _homes(module, Path(file).with_suffix(".pyi"))
    names = sorted(homes)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = _imported(f"{module}.{name}", *homes[name])
        # The next access finds it without this function.
        setattr(sys.modules[module], name, value)
        return value

    return get, lambda: names, names


def _homes(module: str, stub: Path) -> dict[str, tuple[str, str | None]]:
    """Public name -> the module that defines it and its name there, or None if the name is that module."""
    homes: dict[str, tuple[str, str | None]] = {}
    for line in ast.parse(stub.read_text(encoding="utf-8")).body:
        if not isinstance(line, ast.ImportFrom):
            continue
        for alias in line.names:
            if line.level:
                homes[alias.name] = (f"{module}.{alias.name}", None)
            elif alias.name == "*":
                homes |= {name: (str(line.module), name) for name in dir(import_module(str(line.module)))}
            else:
                # A name that is another one where it is defined is imported with an underscore first.
                homes[(alias.asname or alias.name).lstrip("_")] = (str(line.module), alias.name)
    return homes


def _imported(full_name: str, module: str, name: str | None) -> Any:
    try:
        home = import_module(module)
        return home if name is None else getattr(home, name)
    except ModuleNotFoundError as error:
        from wardround.extras import extra_of

        # A package that no extra installs: the error says what it is.
        if (extra := extra_of(error)) is None:
            raise
        text = f"{full_name} needs {error.name}: pip install 'wardround[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from error
