"""An interpreter with Flower, of an environment of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("FLOWER_PYTHON", ROOT / ".flower-venv" / "bin" / "python"))
needs_flower = pytest.mark.skipif(
    not PYTHON.exists(), reason=f"needs Flower: make .flower-venv/.installed, or FLOWER_PYTHON ({PYTHON})"
)


def run_with_flower(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python there with this checkout's packages, and without what belongs to this process."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "WARDROUND", "COVERAGE"))}
    # Beside other work, Ray's usual niceness of 15 would starve its workers.
    quiet = {
        "RAY_worker_niceness": "0",
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    environment = {**kept, **quiet, "PYTHONPATH": str(ROOT)}
    return subprocess.run([str(PYTHON), *words], capture_output=True, text=True, check=False, env=environment)
