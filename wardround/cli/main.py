"""The command `wardround`: one root, and whatever commands the installed parts bring."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

# The packages that each extra brings and the ones before it do not.
_EXTRAS = {
    "cli": ("typer", "rich", "tomlkit"),
    "protocol": ("pydantic", "cryptography", "safetensors", "jwt"),
    "operator": ("httpx",),
    "client": ("torch",),
    "server": ("fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "prometheus_client"),
    "objects": ("obstore",),
    "traces": ("opentelemetry",),
    "documents": ("typst",),
    "simulation": ("vl_convert",),
    "export": ("onnx", "onnxscript", "onnxruntime"),
    "frames": ("pandas",),
    "parquet": ("pyarrow",),
    "images": ("PIL",),
    "imaging": ("pydicom", "nibabel"),
}


def extra_of(error: ImportError) -> str | None:
    """The extra that brings the missing package; None where none does."""
    missing = (error.name or "").partition(".")[0]
    return next((extra for extra, packages in _EXTRAS.items() if missing in packages), None)


def build() -> typer.Typer:
    """The root with every command that is installed."""
    # Here, so that `main` can name the extra that brings it.
    import typer

    from wardround.cli import registration
    from wardround.cli.coordinator import coordinator
    from wardround.cli.researcher import simulate
    from wardround.demo.command import demo

    app = typer.Typer(
        name="wardround",
        help="Federated learning for hospitals with a privacy budget that is measured, shown, and kept.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    shown = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Print the version, and end.")

    @app.callback()
    def root(version: bool = shown) -> None:
        pass

    registration.register(app)
    simulate.register(app)
    coordinator.register(app)
    app.command("demo")(demo)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        from wardround.installation import version

        print(f"wardround {version()}")
        raise SystemExit(0)


def main() -> None:
    """Run; a part that is not installed is named with its extra, one that is somebody else's with its place."""
    from wardround.cli.shared.terminal import close_quietly, escape_what_cannot_be_shown, output_is_closed

    escape_what_cannot_be_shown()
    try:
        build()()
    except ImportError as error:
        from wardround.installation import clashes

        extra = extra_of(error)
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
