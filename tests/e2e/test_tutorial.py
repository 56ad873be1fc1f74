"""docs/tutorial.md, word for word, with the wheel in an environment of its own, away from the checkout."""

from __future__ import annotations

import csv
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.factories.installation import built_wheel, environment_of
from tests.factories.tutorial import PAGE, tutorial_lines


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _script(port: int) -> str:
    """Everything that a reader types and saves."""
    lines = ["set -euo pipefail", "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT"]
    return "\n".join([*lines, *tutorial_lines(PAGE, port)]) + "\n"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_tutorial_leads_from_a_csv_to_predictions_and_a_certificate(tmp_path: Path) -> None:
    here, port = tmp_path / "tutorial", _free_port()
    here.mkdir()
    commands = environment_of(built_wheel(tmp_path), tmp_path / "environment")
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and "WARDROUND" not in name}
    environment = own | {"PATH": f"{commands}:{os.environ['PATH']}", "WARDROUND_PORT": str(port)}
    (here / "tutorial.sh").write_text(_script(port))
    done = subprocess.run(
        ["bash", "tutorial.sh"], cwd=here, env=environment, capture_output=True, text=True, check=False
    )
    logs = "".join(f"\n== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(here.glob("*.log")))
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:] + logs

    assert "4 of 30 within max_steps" in done.stdout
    assert "30 of 30 within max_steps" in done.stdout
    with (here / "new.csv").open(newline="") as file:
        patients = [row["patient"] for row in csv.DictReader(file)]
    with (here / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["patient"] for row in rows] == patients
    assert {row["predicted"] for row in rows} == {"no", "yes"}
    certificate = json.loads((here / "certificate.json").read_text())
    assert "readmission" in json.dumps(certificate)
    assert (here / "certificate.pdf").read_bytes().startswith(b"%PDF-")
    assert "computed again from the raw events" in done.stdout
