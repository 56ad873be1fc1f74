"""The command `wardround`: commands of all installed parts, and a part that is missing is named."""

from __future__ import annotations

import sys

import pytest

from client_sdk import main


def test_commands_of_both_sides_are_under_one_root() -> None:
    app = main.build()
    names = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {"serve", "worker", "migrate", "join", "budget"} <= names


@pytest.mark.parametrize(("missing", "extra"), [("httpx", "client"), ("typer", "cli"), ("sqlalchemy.orm", "server")])
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


def test_a_module_of_nobodys_extra_is_a_bug_and_shows_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def build() -> object:
        raise ModuleNotFoundError("No module named 'nobody'", name="nobody")

    monkeypatch.setattr(main, "build", build)
    monkeypatch.setattr(sys, "argv", ["wardround"])
    with pytest.raises(ModuleNotFoundError, match="nobody"):
        main.main()
