"""Commands that are imported when they run."""

from __future__ import annotations

import sys

import pytest
import typer
from typer.core import TyperGroup
from typer.testing import CliRunner

from wardround.cli.commands import ROLES, Command
from wardround.cli.lazy import CommandsByRole, LazyCommand, loaded

MODULE = "wardround.cli.lead.reference"


def root() -> CommandsByRole:
    return CommandsByRole(name="wardround")


def test_every_row_of_the_table_is_a_command_or_one_of_a_group() -> None:
    group = root()
    for rows in ROLES.values():
        for row in rows:
            name, _, inner = row.name.partition(" ")
            command = group.commands[name]
            if inner:
                assert isinstance(command, TyperGroup)
                command = command.commands[inner]
            assert isinstance(command, LazyCommand)
            assert command.help == row.help


def test_a_row_knows_its_options_once_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def greet(name: str, loud: bool = False) -> None:
        """Greet somebody."""
        typer.echo(name.upper() if loud else name)

    module = type(sys)("greeting")
    module.greet = greet  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "greeting", module)
    row = Command("say hello", "greeting:greet", "Greet.")
    command = LazyCommand(row, None)
    assert (command.name, command.params) == ("hello", [])
    assert {parameter.name for parameter in command.load().params} == {"name", "loud"}
    done = CliRunner().invoke(_app(command), ["hello", "ward", "--loud"])
    assert (done.exit_code, done.output) == (0, "WARD\n")
    wrong = CliRunner().invoke(_app(command), ["hello", "ward", "--quiet"])
    assert wrong.exit_code == 2


def _app(command: LazyCommand) -> typer.Typer:
    class Group(TyperGroup):
        def __init__(self, **attributes: object) -> None:
            super().__init__(**attributes)  # type: ignore[arg-type]
            self.commands["hello"] = command

    app = typer.Typer(cls=Group, add_completion=False)
    app.callback()(lambda: None)
    return app


def test_a_module_that_lacks_is_an_error_of_the_import(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModuleNotFoundError):
        LazyCommand(Command("x", "no_such_module:run", ""), None).load()


def test_for_pages_every_command_is_imported() -> None:
    group = root()
    group.commands = {name: group.commands[name] for name in ("policy", "doctor")}
    done = loaded(group)
    policy = done.commands["policy"]
    assert isinstance(policy, TyperGroup)
    assert not isinstance(policy.commands["template"], LazyCommand)
    assert "--output" in {name for parameter in policy.commands["template"].params for name in parameter.opts}
    assert not isinstance(done.commands["doctor"], LazyCommand)
