"""The commands of operators and hospitals, by name, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import typer
from typer.testing import CliRunner

from wardround.cli.registration import register

COMMANDS = (
    *(
        "ask",
        "budget",
        "card",
        "doctor",
        "egress-log",
        "enrol",
        "evaluate",
        "evidence",
        "export",
        "invite",
        "join",
        "own-budget",
        "plan",
        "predict",
        "revoke",
        "rotate-key",
        "withdraw",
    ),
    *(
        "certificate pdf",
        "certificate show",
        "certificate verify",
    ),
    *("data check",),
    *(
        "ledger export",
        "ledger seen",
        "ledger verify",
    ),
    *("policy template",),
    *(
        "query approve",
        "query deny",
        "query list",
        "query show",
        "query template",
        "roster pin",
        "roster show",
    ),
    *(
        "study create",
        "study delete",
        "study list",
        "study model",
        "study pause",
        "study resume",
        "study rounds",
        "study show",
        "study start",
        "study stop",
        "study template",
        "study weights",
    ),
    *(
        "witness compare",
        "witness export",
        "witness key",
        "witness sign",
    ),
)


def test_every_command_is_there_and_says_what_it_does() -> None:
    app = typer.Typer()
    register(app)
    groups = {"": app, **{f"{group.name} ": group.typer_instance for group in app.registered_groups}}
    found = {
        f"{prefix}{command.name or command.callback.__name__}": command.help or command.callback.__doc__
        for prefix, group in groups.items()
        if group is not None
        for command in group.registered_commands
        if command.callback is not None
    }
    assert sorted(found) == sorted(COMMANDS)
    assert all(found.values())


def test_the_moves_of_a_study_take_its_name_alone() -> None:
    app = typer.Typer()
    register(app)
    for move in ("start", "pause", "resume", "stop"):
        done = CliRunner().invoke(app, ["study", move])
        assert (done.exit_code, "Missing argument" in done.output) == (2, True)


def test_neither_torch_nor_the_network_is_loaded_before_a_command_runs() -> None:
    program = (
        "import sys, wardround.cli.registration; print(sorted({'torch', 'httpx', 'pydantic_core'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['pydantic_core']")
