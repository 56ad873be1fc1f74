"""The commands as a person types them, against a coordinator that really answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from tests.factories.commands import Run
from tests.factories.live_coordinator import Live, live
from wardround.cli.main import build


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    return build()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        monkeypatch.setenv("WARDROUND_SERVER", running.url)
        monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "mercy"))
        (tmp_path / "administrator.key").write_text(running.operator_key + "\n")
        yield running


@pytest.fixture
def run(app: typer.Typer, tmp_path: Path) -> Run:
    def call(*arguments: str, code: int = 0, operator: bool = False, **options: Any) -> Result:
        key = ["--key-file", str(tmp_path / "administrator.key")] if operator else []
        result = CliRunner().invoke(app, [*arguments, *key], **options)
        assert result.exit_code == code, result.output
        return result

    return call
