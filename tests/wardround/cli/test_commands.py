"""The table of commands: every row is a function with a help text, and reading the table imports none of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wardround.cli.commands import COMMANDS, GROUPS, ROLES, Command, command_in, list_in_words
from wardround.cli.main import build
from wardround.extras import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
WIDE = {"COLUMNS": "160", "TERM": "dumb"}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_row_is_a_function_that_says_what_it_does(command: Command) -> None:
    module, _, name = command.function.partition(":")
    function = getattr(import_module(module, "wardround.cli"), name)
    assert function.__doc__
    assert command.help.endswith(".")
    assert len(command.help) <= 80
    assert command.extra in PROJECT["optional-dependencies"]
    assert command.extra in EXTRAS


def test_no_name_stands_in_the_table_twice() -> None:
    assert len(COMMANDS) == sum(map(len, ROLES.values()))
    assert not set(GROUPS) & set(COMMANDS)
    assert {name.split()[0] for name in COMMANDS if " " in name} == set(GROUPS)


def test_the_help_has_a_panel_for_each_role_and_a_line_for_each_command() -> None:
    shown = CliRunner().invoke(build(), ["--help"], env=WIDE).output
    assert [line.split("─ ")[1].rstrip(" ─╮") for line in shown.splitlines() if "─ " in line] == ["Options", *ROLES]
    for line in [*(command.help for name, command in COMMANDS.items() if " " not in name), *GROUPS.values()]:
        assert line in shown


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_lists_its_commands_and_has_no_panels(group: str) -> None:
    shown = CliRunner().invoke(build(), [group, "--help"], env=WIDE).output
    assert GROUPS[group] in shown
    assert "─ Commands ─" in shown
    for name, command in COMMANDS.items():
        assert (command.help in shown) == name.startswith(f"{group} "), name


def test_the_help_of_a_command_is_its_docstring() -> None:
    shown = CliRunner().invoke(build(), ["certificate", "pdf", "--help"], env=WIDE)
    assert shown.exit_code == 0
    assert "wardround certificate pdf [OPTIONS]" in shown.output


def test_a_wrong_name_ends_with_2_and_a_likely_one() -> None:
    done = CliRunner().invoke(build(), ["simulat"], env=WIDE)
    assert (done.exit_code, "Did you mean 'simulate'" in done.output) == (2, True)


@pytest.mark.parametrize("move", ["start", "pause", "resume", "stop"])
def test_the_moves_of_a_study_take_its_name_alone(move: str) -> None:
    done = CliRunner().invoke(build(), ["study", move])
    assert (done.exit_code, "Missing argument" in done.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["study", "create", "sepsis"], "study create"),
        (["join", "study"], "join"),
        (["study"], None),
        ([], None),
        (["--help"], None),
    ],
)
def test_a_command_line_names_its_row(words: list[str], name: str | None) -> None:
    row = command_in(words)
    assert (None if row is None else row.name) == name


def test_the_plain_list_has_every_command() -> None:
    assert all(f"  {name} " in list_in_words() for name in COMMANDS)


def test_the_help_imports_no_command_and_no_library_of_theirs() -> None:
    program = """
import sys
for name in ("httpx", "torch", "pydantic", "numpy", "scipy", "cryptography"):
    sys.modules[name] = None
sys.argv = ["wardround", "--help"]
from wardround.cli.main import main
try:
    main()
except SystemExit as ended:
    print(ended.code, sorted(name for name in sys.modules if name.startswith("wardround.cli.") and name.count(".") > 2))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 ['wardround.cli.shared.terminal']"
