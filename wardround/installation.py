"""Whether the packages that are imported here are Wardround's own: their names are general, and others may use them.

Uses the standard library alone, because it must run where our own imports fail.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "wardround"
PACKAGES = (
    "accounting",
    "study_protocol",
    "private_learning",
    "synthesis",
    "record_sources",
    "client_sdk",
    "server",
    "simulation",
    "wardround",
)
_ADVICE = "give Wardround an environment of its own (python3 -m venv)"


def clashes(
    home: Path = Path(__file__).parents[1],
    *,
    installed: Distribution | None = None,
    find: Callable[[str], ModuleSpec | None] = find_spec,
) -> list[str]:
    """The faults of this installation, in words; empty where every package is the one that runs here.

    home: the folder that this code runs from, where its sibling packages must lie
    """
    faults: list[str] = []
    for name in _packages_in(home):
        spec, source = find(name), home / name / "__init__.py"
        origin = None if spec is None or spec.origin is None else Path(spec.origin)
        if origin is None or origin.resolve() != source.resolve():
            place = "nowhere" if origin is None else str(origin.parent)
            faults.append(f"`{name}` is imported from {place}, not from {source.parent}: {_ADVICE}")
    return faults + _changed_files(home, installed or _installed())


def remarks(
    home: Path = Path(__file__).parents[1],
    *,
    installed: Distribution | None = None,
    owners: Callable[[], Mapping[str, Sequence[str]]] = packages_distributions,
) -> list[str]:
    """What is not wrong but worth knowing: code that is not the installed one, names that others install too."""
    notes: list[str] = []
    distribution = installed or _installed()
    if distribution is None:
        notes.append(f"{NAME} is not installed here, it runs from {home}")
    elif home.resolve() not in (root := _roots(distribution)):
        notes.append(f"{NAME} {distribution.version} is installed in {root[-1]}, but what runs is {home}")
    all_owners = owners()
    for name in _packages_in(home):
        other_owners = sorted(set(all_owners.get(name, ())) - {NAME})
        if other_owners:
            notes.append(f"{', '.join(other_owners)} installs files in `{name}` too: {_ADVICE}")
    return notes


def version(home: Path = Path(__file__).parents[1], *, installed: Distribution | None = None) -> str:
    """Of the code that runs here: as it was installed, or, of a checkout that was not, as its pyproject.toml says."""
    distribution, project = installed or _installed(), home / "pyproject.toml"
    if distribution is not None and (home.resolve() in _roots(distribution) or not project.is_file()):
        return distribution.version
    return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def _packages_in(home: Path) -> list[str]:
    return [name for name in PACKAGES if (home / name / "__init__.py").exists()]


def _installed() -> Distribution | None:
    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None


def _roots(installed: Distribution) -> list[Path]:
    """Where its packages may lie: the folder of installed packages, or the checkout of an editable one (PEP 610)."""
    roots = [Path(str(installed.locate_file(""))).resolve()]
    url = json.loads(installed.read_text("direct_url.json") or "{}")
    if url.get("dir_info", {}).get("editable"):
        roots.append(Path(url2pathname(urlsplit(str(url["url"])).path)).resolve())
    return roots


def _changed_files(home: Path, installed: Distribution | None) -> list[str]:
    """Files that another distribution overwrote, or somebody edited, by the hashes of this one's record."""
    # A checkout is there to be edited; the record speaks of installed copies alone.
    if installed is None or _roots(installed)[0] != home.resolve():
        return []
    files = [file for file in installed.files or () if file.parts[0] in PACKAGES]
    # Byte code is made by the interpreter and has no hash in the record.
    changed = [str(f) for f in files if f.hash is not None and _digest(f.hash.mode, home / f) != f.hash.value]
    return [f"{len(changed)} files are not as they were installed, {changed[0]} first: {_ADVICE}"] if changed else []


def _digest(algorithm: str, path: Path) -> str | None:
    """As records of installed files write it (PEP 427: base64url, no padding); None for a file that is not there."""
    if not path.is_file():
        return None
    return base64.urlsafe_b64encode(hashlib.new(algorithm, path.read_bytes()).digest()).rstrip(b"=").decode()
