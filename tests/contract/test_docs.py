"""Every command that a document or a message of a file names exists, with its options; every setting is documented."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import wardround
from server.config import Settings
from wardround.cli.main import build
from wardround.installation import PACKAGES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLIC = {
    "wardround": wardround.__all__,
    "wardround.accounting": wardround.accounting.__all__,
    "wardround.learning": wardround.learning.__all__,
    "wardround.queries": wardround.queries.__all__,
}
COMMAND = re.compile(r"(?<!from )\bwardround ((?:[a-z][a-z-]+)(?: [^`\n|&;>]*)?)")


def _commands(path: Path) -> set[str]:
    """What stands in backticks or in a code block after the word `wardround`."""
    text = path.read_text()
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) + re.findall(r"`([^`\n]+)`", text)
    joined = [piece.replace("\\\n", " ") for piece in code]
    return {found.strip() for piece in joined for found in COMMAND.findall(piece) if not found.startswith("wardround")}


@pytest.mark.quick(
    "README.md1",
    "as-printed.md",
    "both-levels.md",
    "classical.md",
    "experiments.md",
    "fixed-order.md",
    "http-and-polling.md",
    "no-ghost-clipping.md",
    "private-training.md",
    "ring.md",
    "study.md0",
    "training.md",
)
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_that_is_named_exists(path: Path) -> None:
    app = build()
    for command in sorted(_commands(path)):
        words = [word for word in shlex.split(command, comments=True) if word not in ("…", "...")]
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0, f"wardround {command}"


def test_the_search_finds_commands() -> None:
    assert {"migrate", "serve"} <= _commands(ROOT / "docs" / "operations.md")


def test_every_setting_of_the_coordinator_is_documented() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    named = set(re.findall(r"`WARDROUND_([A-Z_]+)`", text))
    assert {name.upper() for name in Settings.model_fields} <= named


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_import_from_wardround_alone(path: Path) -> None:
    for example in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.M | re.S):
        for node in ast.walk(ast.parse(example)):
            if isinstance(node, ast.ImportFrom) and (node.module in PACKAGES or node.module in PUBLIC):
                assert node.module in PUBLIC, path.name
                assert {alias.name for alias in node.names} <= set(PUBLIC[node.module]), path.name
