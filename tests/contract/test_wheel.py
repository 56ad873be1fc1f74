"""What users get: the wheel's files, and its types as a strict checker sees them where nothing of the checkout is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from email.parser import Parser
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.factories.installation import built_wheel, environment_of

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
USER_FILE = Path(__file__).with_name("user_file.py")

# One line each: what a user may write by mistake.
WRONG_USES = """
wardround.Hospitall
wardround.Hospital.open(3)
wardround.Hospital.open(".").join("sepsis", 3, 4)
wardround.ClassicalAccountant(delta="small")
wardround.ClassicalAccountant(delta=1e-5).step(2.0, 0.1)
wardround.calibrate_noise(epsilon=1.0)
wardround.load_records("records.csv", patient="id")
wardround.SitePolicy(least_survivors="four")
wardround.learning.poisson_batch(10, 0.1)
wardround.Client(wardround.Connection()).study(3)
wardround.AsyncClient(wardround.Connection()).study("sepsis", 3)
number: str = wardround.ClassicalAccountant(delta=1e-5).epsilon()
""".strip().splitlines()


def _outside(command: list[str | Path], where: Path) -> subprocess.CompletedProcess[str]:
    """A command that finds nothing of the checkout: another folder, and no PYTHONPATH."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=where, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment that holds the wheel."""
    return environment_of(wheel, tmp_path_factory.mktemp("environment")) / "python"


@pytest.fixture(scope="module")
def diagnostics(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """File -> what strict pyright says of the user's file and of the wrong uses."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "right.py").write_text(USER_FILE.read_text())
    (folder / "wrong.py").write_text("\n".join(["import wardround", *WRONG_USES]) + "\n")
    (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "pythonVersion": "3.11"}))
    pyright = Path(sys.executable).with_name("pyright")
    run = _outside([pyright, "--outputjson", "--pythonpath", python], folder)
    answer = json.loads(run.stdout)
    assert answer["summary"]["filesAnalyzed"] == 2, run.stdout
    found: dict[str, list[dict[str, Any]]] = {"right.py": [], "wrong.py": []}
    for diagnostic in answer["generalDiagnostics"]:
        found[Path(diagnostic["file"]).name].append(diagnostic)
    return found


def test_the_wheel_holds_every_file_of_every_package_and_nothing_else(wheel: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", *PACKAGES, "migrations"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    here = [name for name in tracked.stdout.splitlines() if (ROOT / name).exists()]
    expected = {f"server/{name}" if name.startswith("migrations/") else name for name in here}
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert expected - names == set()
    strangers = {name for name in names if name.partition("/")[0] not in PACKAGES or "test" in Path(name).name}
    assert strangers == set()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert {"server/migrations/env.py", "server/web/static/dashboard.js", "server/web/bundle/charts.js.gz"} <= names
    licences = {name.partition("/licenses/")[2] for name in ZipFile(wheel).namelist() if "/licenses/" in name}
    assert licences == {"LICENSE", "LICENSES/charts-library.txt"}


def test_the_wheel_asks_for_what_the_project_names(wheel: Path) -> None:
    archive = ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(archive.read(name).decode())
    assert set(metadata.get_all("Provides-Extra", [])) == set(PROJECT["project"]["optional-dependencies"])
    plain = {text for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text}
    assert plain == set(PROJECT["project"]["dependencies"])


@pytest.mark.slow
def test_the_packages_run_where_only_the_wheel_is(python: Path, tmp_path: Path) -> None:
    program = f"""
import importlib, pathlib, wardround
for name in {PACKAGES!r}:
    assert pathlib.Path(importlib.import_module(name).__file__).is_relative_to({str(python.parents[1])!r}), name
from wardround.installation import clashes, remarks
print(wardround.ClassicalAccountant.__name__, wardround.SitePolicy.__name__, clashes(), remarks())
"""
    run = _outside([python, "-c", program], tmp_path)
    assert (run.stdout.strip(), run.stderr) == ("ClassicalAccountant SitePolicy [] []", "")


@pytest.mark.slow
def test_a_user_s_file_has_no_error_and_no_unknown_type(diagnostics: dict[str, list[dict[str, Any]]]) -> None:
    assert [(d["range"]["start"]["line"] + 1, d["message"]) for d in diagnostics["right.py"]] == []


@pytest.mark.slow
@pytest.mark.parametrize("text", WRONG_USES)
def test_a_wrong_use_is_an_error(text: str, diagnostics: dict[str, list[dict[str, Any]]]) -> None:
    line = WRONG_USES.index(text) + 1
    errors = [d for d in diagnostics["wrong.py"] if d["severity"] == "error" and d["range"]["start"]["line"] == line]
    assert any(d["rule"] != "reportUnusedExpression" for d in errors), text
