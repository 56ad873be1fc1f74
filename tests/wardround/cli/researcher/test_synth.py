"""`wardround synth verify`: what it says of good and of changed files."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from tests.synthesis.test_file import written
from wardround.cli.main import build

RUNNER = CliRunner()


def test_a_file_is_verified_and_a_changed_one_is_not(tmp_path: Path) -> None:
    path = written(tmp_path / "synthetic.csv")
    found = RUNNER.invoke(build(), ["synth", "verify", str(path)])
    assert found.exit_code == 0
    assert "2,000 synthetic records of study registry, made again here" in found.output
    path.write_text(path.read_text().replace("f", "m", 1))
    changed = RUNNER.invoke(build(), ["synth", "verify", str(path)])
    assert changed.exit_code == 1
    assert "not verified: synthetic.csv holds other records" in " ".join(changed.output.split())
