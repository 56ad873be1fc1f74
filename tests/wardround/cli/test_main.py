"""The command `wardround`: commands of all installed parts, and a part that is missing is named."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from wardround.cli import main


def test_commands_of_both_sides_are_under_one_root() -> None:
    app = main.build()
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {"serve", "worker", "migrate", "join", "budget"} <= names


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("httpx", "operator"),
        ("torch", "client"),
        ("typer", "cli"),
        ("sqlalchemy.orm", "server"),
        ("typst", "documents"),
    ],
)
def test_a_missing_package_is_named_by_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, extra: str
) -> None:
    def build() -> object:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(main, "build", build)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"wardround: this command needs more: pip install 'wardround[{extra}]'\n"


def brought_by(extras: Mapping[str, list[str]], name: str) -> set[str]:
    """Packages of an extra, and of the extras that it names."""
    found = {re.split(r"[\[<>=]", text)[0] for text in extras[name]}
    inner = [part for text in extras[name] for part in re.findall(r"^wardround\[(.*)\]", text)]
    return found.union(*(brought_by(extras, one) for part in inner for one in part.split(",")))


def test_every_extra_that_is_named_brings_what_it_is_named_for() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    of_package = packages_distributions()
    for extra, packages in main._EXTRAS.items():
        brought = brought_by(project["optional-dependencies"], extra)
        for package in packages:
            # fastapi brings starlette.
            owners = {owner.lower().replace("_", "-") for owner in of_package[package]}
            assert package == "starlette" or owners & brought, (extra, package)


def test_the_version_is_that_of_the_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    monkeypatch.setattr(sys, "argv", ["wardround", "--version"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().out) == (0, f"wardround {project['version']}\n")


def test_a_module_of_nobodys_extra_is_a_bug_and_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> object:
        raise ModuleNotFoundError("No module named 'nobody'", name="nobody")

    monkeypatch.setattr(main, "build", build)
    monkeypatch.setattr(sys, "argv", ["wardround"])
    with pytest.raises(ModuleNotFoundError, match="nobody"):
        main.main()
