"""Each extra in an environment that holds the wheel and what that extra brings: its commands run outside the checkout.

Nothing comes from a network. The environments have links to the distributions of the running one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from tests.factories.installation import built_wheel, environment_of_extra
from wardround.cli.commands import ROLES

# Extra -> modules that its environment must not have.
ABSENT = {
    "": ("typer", "pydantic", "torch", "httpx"),
    "cli": ("cryptography", "torch", "httpx", "fastapi"),
    "server": ("torch", "httpx", "sklearn"),
    "operator": ("torch", "fastapi", "sqlalchemy"),
    "learning": ("httpx", "typer", "fastapi"),
    "client": ("fastapi", "sqlalchemy", "sklearn"),
    "demo": ("playwright", "hypothesis", "opacus"),
}
ROWS = "\n".join(["age,rate,ill,patient", *(f"{20 + i % 60},{i % 10},{i % 2},p{i}" for i in range(200))])
SETTINGS = "study template --task logistic-regression -o {home}/study.toml"

Install = Callable[[str], Path]


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Install:
    """Makes the environment of an extra once, however many workers test, and returns its folder of commands."""
    base = tmp_path_factory.getbasetemp()
    shared = (base if worker_id == "master" else base.parent) / "extras"

    def environment(extra: str) -> Path:
        folder = shared / (extra or "bare")
        with FileLock(f"{shared}.lock"):
            wheel = next(shared.glob("*.whl"), None) or built_wheel(shared)
            if not (folder / "bin" / "wardround").exists():
                environment_of_extra(wheel, folder, extra)
        return folder / "bin"

    return environment


def _run(command: list[str | Path], home: Path) -> subprocess.CompletedProcess[str]:
    """In an empty folder, without PYTHONPATH and without settings of Wardround."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "WARDROUND"))}
    environment = {
        **inherited,
        "COLUMNS": "120",
        "WARDROUND_HOME": str(home / "coordinator"),
        "WARDROUND_CLIENT_HOME": str(home / "hospital"),
    }
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.quick("bare", "cli", "operator")
@pytest.mark.parametrize("extra", ABSENT, ids=lambda extra: extra or "bare")
def test_help_and_version_work_with_every_extra(install: Install, extra: str, tmp_path: Path) -> None:
    commands = install(extra)
    version = _run([commands / "wardround", "--version"], tmp_path)
    assert (version.returncode, version.stdout.split()[:1], version.stderr) == (0, ["wardround"], "")
    shown = _run([commands / "wardround", "--help"], tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    for words in (*ROLES, "enrol", "serve", "demo"):
        assert words in shown.stdout
    search = f"from importlib.util import find_spec; print([n for n in {ABSENT[extra]!r} if find_spec(n)])"
    assert _run([commands / "python", "-c", search], tmp_path).stdout.strip() == "[]"


@pytest.mark.quick("-serve-server", "cli-plan study.toml-operator", "cli-simulate study.toml --data records.csv-client")
@pytest.mark.parametrize(
    ("extra", "line", "named"),
    [
        ("", "budget sepsis", "operator"),
        ("", "serve", "server"),
        ("cli", "enrol wri_token", "operator"),
        ("cli", "budget sepsis", "operator"),
        ("cli", "plan study.toml", "operator"),
        ("cli", "simulate study.toml --data records.csv", "client"),
        ("cli", "migrate", "server"),
        ("server", "join sepsis --data records.csv", "client"),
        ("operator", "evaluate model.safetensors --data records.csv", "client"),
        ("operator", "migrate", "server"),
        ("client", "demo", "demo"),
        ("learning", "join sepsis --data records.csv", "client"),
    ],
)
def test_a_command_that_needs_more_names_its_extra(
    install: Install, extra: str, line: str, named: str, tmp_path: Path
) -> None:
    (tmp_path / "records.csv").write_text(ROWS)
    done = _run([install(extra) / "wardround", *line.split()], tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        f"wardround: this command needs more: pip install 'wardround[{named}]'\n",
    )


@pytest.mark.quick("client")
@pytest.mark.parametrize(
    ("extra", "lines"),
    [
        ("server", ["migrate", "key create --name someone --out {home}/administrator.key", "worker --check"]),
        ("operator", ["policy template", "witness key", SETTINGS, "plan {home}/study.toml"]),
        (
            "client",
            [
                SETTINGS,
                "study weights --settings {home}/study.toml -o {home}/initial.safetensors",
                "data check {home}/records.csv --patient-column patient --separator comma --decimal point",
            ],
        ),
    ],
    ids=["server", "operator", "client"],
)
def test_commands_of_each_role_run(install: Install, extra: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "records.csv").write_text(ROWS)
    for line in lines:
        done = _run([install(extra) / "wardround", *line.format(home=tmp_path).split()], tmp_path)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"


def test_the_accountants_need_no_extra(install: Install, tmp_path: Path) -> None:
    program = "import wardround; print(wardround.calibrate_noise(epsilon=1.0, delta=1e-5, sampling_rate=0.1, steps=10))"
    done = _run([install("") / "python", "-c", program], tmp_path)
    assert float(done.stdout) > 0, done.stderr


@pytest.mark.slow
def test_private_training_needs_no_network_library(install: Install, tmp_path: Path) -> None:
    program = """
import sys, torch
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.layers import cross_entropy
gradients = PerRecordGradients(torch.nn.Linear(3, 2), cross_entropy)
total = gradients.clipped_sum(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64), clip_norm=1.0)
import private_learning.tasks, private_learning.training
print(sorted({name.partition(".")[0] for name in sys.modules} & {"httpx", "requests", "typer", "fastapi"}))
"""
    done = _run([install("learning") / "python", "-c", program], tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.slow
def test_the_demonstration_reads_its_data_from_the_installation(install: Install, tmp_path: Path) -> None:
    # A Bayesian limit is kept at one order, where no noise reaches so small an ε.
    chosen = ["--epsilon", "1e-9", "--bayesian", "--home", tmp_path / "demo"]
    done = _run([install("demo") / "wardround", "demo", *chosen], tmp_path)
    assert (done.returncode, "choose a larger --epsilon" in done.stdout) == (2, True), done.stdout + done.stderr


@pytest.mark.slow
def test_the_demonstration_runs_to_its_end(install: Install, tmp_path: Path) -> None:
    done = _run([install("demo") / "wardround", "demo", "--rounds", "2", "--home", tmp_path / "demo"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    budget = json.loads((tmp_path / "demo" / "report" / "budget.json").read_text())
    assert budget["stop_reason"] == "budget-exhausted"
    assert sys.executable not in done.stdout
