"""Commands that typer shows from their row in `wardround.cli.commands` and that are imported when they run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from wardround.cli.commands import GROUPS, ROLES, Command


class LazyCommand(TyperCommand):
    """A row of the table. Its options are known once the function is imported."""

    def __init__(self, row: Command, role: str | None) -> None:
        super().__init__(name=row.name.rpartition(" ")[2], help=row.help, rich_help_panel=role)
        self._row = row

    def load(self) -> Any:
        """Import the function and return the command that typer makes of it."""
        module, _, function = self._row.function.partition(":")
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, pretty_exceptions_show_locals=False)
        app.command(self.name)(getattr(import_module(module, __package__), function))
        return get_command(app)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Return a context of the imported command, which typer then runs in place of this one."""
        return self.load().make_context(info_name, args, parent=parent, **extra)


class CommandsByRole(TyperGroup):
    """The root: every command and every group of the table, with a panel for each role."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for role, rows in ROLES.items():
            for row in rows:
                self._add(row, role)

    def _add(self, row: Command, role: str) -> None:
        name, _, of_group = row.name.partition(" ")
        if not of_group:
            self.commands[name] = LazyCommand(row, role)
            return
        if name not in self.commands:
            self.commands[name] = TyperGroup(name=name, help=GROUPS[name], no_args_is_help=True, rich_help_panel=role)
        group = self.commands[name]
        assert isinstance(group, TyperGroup), f"{name} is a command and a group"
        group.commands[of_group] = LazyCommand(row, None)


def loaded(group: TyperGroup) -> TyperGroup:
    """Return the group with every command imported, for pages that print all options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            loaded(command)
        elif isinstance(command, LazyCommand):
            group.commands[name] = command.load()
    return group
