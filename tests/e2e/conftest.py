"""One small run of the demonstration, shared by the tests that look at what it leaves behind."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from wardround.demo.processes import WARDROUND

DEMO_SECONDS = 240


@dataclass(frozen=True)
class Demonstration:
    """What it printed, and where its files lie."""

    home: Path
    printed: str

    def read(self, name: str) -> Any:
        return json.loads((self.home / "report" / name).read_text())


@pytest.fixture(scope="session", params=["parallel", pytest.param("client", marks=pytest.mark.slow)])
def demonstration(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, worker_id: str):
    """`wardround demo` with a budget for a few rounds; run once, however many workers test."""
    shared = tmp_path_factory.getbasetemp() if worker_id == "master" else tmp_path_factory.getbasetemp().parent
    home = shared / f"demo-{request.param}"
    with FileLock(f"{home}.lock"):
        printed = home / "printed.txt"
        if not printed.exists():
            home.mkdir()
            short = {"parallel": ["--rounds", "6"], "client": ["--epsilon", "8.5"]}[request.param]
            arguments = ["--scheme", request.param, *short, "--home", str(home)]
            done = subprocess.run(
                [*WARDROUND, "demo", *arguments],
                capture_output=True,
                text=True,
                timeout=DEMO_SECONDS,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            printed.write_text(done.stdout)
    return Demonstration(home, printed.read_text())
