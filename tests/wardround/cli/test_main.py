"""The command `wardround`: commands of all installed parts, and a part that is missing is named."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from wardround.cli import main


@pytest.mark.parametrize(
    ("missing", "extra"),
    [
        ("httpx", "operator"),
        ("torch", "learning"),
        ("sklearn.datasets", "demo"),
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
    monkeypatch.setattr(sys, "argv", ["wardround"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"wardround: this command needs more: pip install 'wardround[{extra}]'\n"


@pytest.mark.parametrize(
    ("words", "missing", "extra"),
    [
        (["join", "sepsis"], "torch", "client"),
        (["join", "sepsis"], "typer", "client"),
        (["study", "show", "sepsis"], "pydantic", "operator"),
        (["serve"], "pydantic", "server"),
        (["certificate", "pdf", "file.json"], "typst", "documents"),
        (["demo"], "torch", "demo"),
    ],
)
def test_a_command_names_the_extra_that_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], missing: str, extra: str
) -> None:
    def build() -> object:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(main, "build", build)
    monkeypatch.setattr(sys, "argv", ["wardround", *words])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, f"pip install 'wardround[{extra}]'" in capsys.readouterr().err) == (2, True)


@pytest.mark.parametrize(("words", "start"), [(["--version"], "wardround "), (["--help"], "Usage: wardround COMMAND")])
def test_help_and_version_need_no_typer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], start: str
) -> None:
    def build() -> object:
        raise ModuleNotFoundError("No module named 'typer'", name="typer")

    monkeypatch.setattr(main, "build", build)
    monkeypatch.setattr(sys, "argv", ["wardround", *words])
    main.main()
    assert capsys.readouterr().out.startswith(start)


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
