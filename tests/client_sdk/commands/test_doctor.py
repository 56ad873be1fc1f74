"""The doctor against a coordinator that answers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factories.commands import Run, opened
from tests.factories.live_coordinator import Live


def test_doctor_finds_the_live_coordinator(here: Live, run: Run, tmp_path: Path) -> None:
    assert "identity.key" in run("doctor", code=1).stdout
    opened(run, tmp_path)
    findings = {f["check"]: f["verdict"] for f in json.loads(run("doctor", "--json").stdout)}
    assert findings["coordinator"] == "good"
    assert findings["clock"] == "good"
