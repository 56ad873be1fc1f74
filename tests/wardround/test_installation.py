"""Clashes are made: folders and installed distributions of the same names, as another project would bring them."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from wardround.installation import PACKAGES, clashes, remarks

ROOT = Path(__file__).parents[2]


def _package(folder: Path, name: str, text: str = "") -> Path:
    path = folder / name / "__init__.py"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return path


def _distribution(folder: Path, direct_url: str | None = None) -> Distribution:
    """Installed in `folder`, with a record of the files that lie there now."""
    lines: list[str] = []
    for path in sorted(folder.rglob("*.py")):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        lines.append(f"{path.relative_to(folder)},sha256={digest},{path.stat().st_size}")
    info = folder / "wardround-0.1.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("\n".join([*lines, "accounting/__pycache__/__init__.cpython-311.pyc,,"]))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wardround\nVersion: 0.1.0\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(direct_url)
    return PathDistribution(info)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name in PACKAGES:
        _package(tmp_path / "home", name)
    return tmp_path / "home"


def _found_in(*folders: Path) -> dict[str, ModuleSpec | None]:
    """What `import` would find with these folders first on its path."""
    return {name: PathFinder.find_spec(name, [str(folder) for folder in folders]) for name in PACKAGES}


def test_a_clean_installation_is_clean(home: Path) -> None:
    installed = _distribution(home)
    assert clashes(home, installed=installed, find=_found_in(home).get) == []
    assert remarks(home, installed=installed, owners=lambda: {"server": ["wardround"]}) == []


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "client_sdk"])
def test_a_folder_that_comes_first_is_named(home: Path, tmp_path: Path, name: str) -> None:
    _package(tmp_path / "other", name)
    (found,) = clashes(home, installed=_distribution(home), find=_found_in(tmp_path / "other", home).get)
    assert f"`{name}` is imported from {tmp_path / 'other' / name}, not from {home / name}" in found
    assert "an environment of its own" in found


def test_a_package_that_is_not_found_is_named(home: Path) -> None:
    found = _found_in(home) | {"server": None}
    assert "`server` is imported from nowhere" in clashes(home, installed=_distribution(home), find=found.get)[0]


def test_a_package_that_is_not_part_of_this_version_is_not_missed(home: Path) -> None:
    (home / "simulation" / "__init__.py").unlink()
    assert clashes(home, installed=_distribution(home), find=_found_in(home).get) == []


@pytest.mark.parametrize("how", ["overwritten", "deleted"])
def test_files_that_are_not_as_installed_are_counted(home: Path, how: str) -> None:
    installed = _distribution(home)
    path = home / "accounting" / "__init__.py"
    path.write_text("'another project'\n") if how == "overwritten" else path.unlink()
    (found,) = clashes(home, installed=installed, find=_found_in(home).get)
    assert found.startswith("1 files are not as they were installed, accounting/__init__.py first")


def test_other_distributions_that_bring_the_same_name_are_noted(home: Path) -> None:
    owners = {"server": ["wardround", "waiter"], "numpy": ["numpy"]}
    (found,) = remarks(home, installed=_distribution(home), owners=lambda: owners)
    assert found.startswith("waiter installs files in `server` too")


def test_an_editable_installation_may_change(home: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    url = f'{{"dir_info": {{"editable": true}}, "url": "{home.as_uri()}"}}'
    installed = _distribution(tmp_path / "site", url)
    (home / "accounting" / "__init__.py").write_text("'edited'\n")
    assert clashes(home, installed=installed, find=_found_in(home).get) == []
    assert remarks(home, installed=installed, owners=dict) == []


def test_code_that_is_not_the_installed_one_is_noted(home: Path, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    installed = _distribution(tmp_path / "site")
    (found,) = remarks(home, installed=installed, owners=dict)
    assert found == f"wardround 0.1.0 is installed in {tmp_path / 'site'}, but what runs is {home}"


@pytest.mark.parametrize("command", [["doctor"], ["budget", "sepsis", "--server", "https://study.example.org"]])
def test_a_command_that_meets_another_accounting_says_where_it_lies(tmp_path: Path, command: list[str]) -> None:
    _package(tmp_path, "accounting", "'''Invoices.'''\n")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    env["WARDROUND_CLIENT_HOME"] = str(tmp_path / "hospital")
    program = "import sys; from wardround.cli.main import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", program, *command], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2, run.stdout + run.stderr
    assert f"wardround: `accounting` is imported from {tmp_path / 'accounting'}, not from" in run.stderr
    assert "Traceback" not in run.stderr
