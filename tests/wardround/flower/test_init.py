"""The code of the pages runs as it stands there."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

import wardround.flower
from client_sdk.errors import OwnBudgetExceeded

DOCS = Path(__file__).parents[3] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_opacus_example_charges_trainings_until_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("opacus.md")
    exec(block, {})
    assert re.fullmatch(r"ε = [01]\.\d{3} of 2\.0\n", capsys.readouterr().out)
    code = compile(f"for _ in range(20):\n{textwrap.indent(block, ' ')}", "opacus.md", "exec")
    with pytest.raises(OwnBudgetExceeded):
        exec(code, {})


@pytest.mark.parametrize("page", ["flower.md", "opacus.md"])
def test_every_name_of_the_pages_exists(page: str) -> None:
    names = {
        alias.name
        for block in blocks(page)
        for line in ast.walk(ast.parse(block))
        if isinstance(line, ast.ImportFrom) and line.module == "wardround.flower"
        for alias in line.names
    }
    assert names
    assert names <= set(wardround.flower.__all__)
