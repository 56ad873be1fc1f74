"""The options by which a person says who decides, the same on every command."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from client_sdk.errors import ConfigurationError
from client_sdk.guard.people import SystemAccount
from wardround.cli.commands import COMMANDS
from wardround.cli.lazy import LazyCommand
from wardround.cli.shared.person_options import PersonOptions, with_person

OF_PEOPLE = {
    *("enrol", "join", "agree", "policy agree", "roster pin", "query approve", "query deny"),
    *("decision decline", "decision withdraw"),
}


def test_a_command_takes_the_three_options_as_one_argument() -> None:
    taken: list[tuple[str, PersonOptions]] = []

    @with_person
    def sign(name: Annotated[str, typer.Argument()], *, person: PersonOptions) -> None:
        """Sign."""
        taken.append((name, person))

    app = typer.Typer()
    app.command()(sign)
    assert CliRunner().invoke(app, ["x", "--as", "Ada", "--role", "IT", "--reason", "new key"]).exit_code == 0
    assert CliRunner().invoke(app, ["y"]).exit_code == 0
    assert taken == [("x", PersonOptions("Ada", "IT", "new key")), ("y", PersonOptions())]


@pytest.mark.parametrize("name", sorted(OF_PEOPLE))
def test_every_deciding_command_has_them(name: str) -> None:
    options = {opt for each in LazyCommand(COMMANDS[name], None).load().params for opt in each.opts}
    assert {"--as", "--role", "--reason"} <= options


def test_the_account_stands_beside_the_name() -> None:
    assert PersonOptions("Ada").acting().account == SystemAccount.current()
    for wrong in ("", " ", "a\x1b"):
        with pytest.raises(ConfigurationError, match="a person's name"):
            PersonOptions(wrong).acting()


def test_a_program_that_is_asked_nothing_and_has_no_name_is_no_person() -> None:
    assert PersonOptions().attending(is_asked=False) is None
    assert PersonOptions().attending(is_asked=True) is not None
    assert PersonOptions("Ada").attending(is_asked=False) is not None
