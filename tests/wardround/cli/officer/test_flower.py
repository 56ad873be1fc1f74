"""`wardround flower show`: a ledger of runs is checked and shown, and its statement can be checked elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.factories.commands import run_offline
from wardround.cli.main import build
from wardround.flower.run_ledger import RunLedger
from wardround.flower.run_limit import charge_of


def test_a_ledger_and_its_statement_show_the_same(tmp_path: Path) -> None:
    path, copy = tmp_path / "runs.db", tmp_path / "statement.json"
    with RunLedger(path, epsilon=2.0, delta=1e-5) as ledger:
        ledger.reserve(charge_of("client", 8.0), "flower-1")
    shown = run_offline("flower", "show", path, "--json", "-o", copy)
    assert run_offline("flower", "show", copy, "--json") == shown
    text = CliRunner().invoke(build(), ["flower", "show", str(copy)], env={"COLUMNS": "160"}).stdout
    assert "flower-1" in text
    assert f"Head: {shown['head']['sha256']}" in " ".join(text.split())
    assert "of 2 at δ = 1e-05" in " ".join(text.split())


def test_a_changed_statement_is_an_error_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with RunLedger(path, epsilon=2.0, delta=1e-5) as ledger:
        ledger.charge(noise_multiplier=8.0)
    statement = run_offline("flower", "show", path, "--json")
    statement["epsilon"] = 0.01
    path.with_suffix(".json").write_text(json.dumps(statement))
    for name in ("runs.json", "missing.db"):
        done = CliRunner().invoke(build(), ["flower", "show", str(tmp_path / name)])
        assert done.exit_code == 1, done.output
        assert done.stderr.startswith("wardround: ")
        assert "Traceback" not in done.output
