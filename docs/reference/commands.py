"""For the site: the page of all commands, from what they say of themselves: python docs/reference/commands.py"""

from __future__ import annotations

import click
from typer.cli import get_docs_for_click
from typer.main import get_command

from wardround.cli.lazy import loaded
from wardround.cli.main import build

if __name__ == "__main__":
    root = loaded(get_command(build()))
    print(
        get_docs_for_click(obj=root, ctx=click.Context(root, info_name="wardround"), name="wardround", title="Commands")
    )
