"""The command `wardround`: one root, and the commands of the table in `wardround.cli.commands`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from wardround.cli.commands import command_in, list_in_words
from wardround.extras import extra_of

if TYPE_CHECKING:
    import typer


def build() -> typer.Typer:
    """Return the root with every command of the table. A command is imported when it runs."""
    # Imported here, so that `main` can name the extra that brings it.
    import typer

    from wardround.cli.lazy import CommandsByRole

    app = typer.Typer(
        name="wardround",
        cls=CommandsByRole,
        help="Federated learning for hospitals with a privacy budget that is measured, shown, and kept.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        pretty_exceptions_show_locals=False,
    )
    version_option = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version and exit."
    )

    @app.callback()
    def root(version: bool = version_option) -> None:
        pass

    return app


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from wardround.installation import version

        print(f"wardround {version()}")
        raise SystemExit(0)


def _answered_without_typer(words: list[str]) -> bool:
    """Print the version or the list of commands if the words ask for one of them alone."""
    if words == ["--version"]:
        from wardround.installation import version

        print(f"wardround {version()}")
    elif words == ["--help"]:
        print(list_in_words())
    return words in (["--version"], ["--help"])


def main() -> None:
    """Run the command line. An error names the extra of a missing part, or the place of a foreign one."""
    from wardround.cli.shared.terminal import close_quietly, escape_what_cannot_be_shown, output_is_closed

    escape_what_cannot_be_shown()
    try:
        build()()
    except ImportError as error:
        from wardround.installation import clashes

        words = sys.argv[1:]
        if error.name == "typer" and _answered_without_typer(words):
            return
        command = command_in(words)
        extra = extra_of(error, None if command is None else command.extra)
        reasons = clashes() if extra is None else [f"this command needs more: pip install 'wardround[{extra}]'"]
        # A bug of ours shows where it is.
        if not reasons:
            raise
        print(*(f"wardround: {reason}" for reason in reasons), sep="\n", file=sys.stderr)
        raise SystemExit(2) from error
    finally:
        if output_is_closed():
            close_quietly()


if __name__ == "__main__":
    main()
