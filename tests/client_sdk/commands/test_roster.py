"""The roster is shown with its fingerprint and pinned under no other."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factories.commands import Run, opened
from tests.factories.live_coordinator import Live


def test_the_roster_is_pinned_only_under_the_fingerprint_that_was_compared(
    here: Live, run: Run, tmp_path: Path
) -> None:
    opened(run, tmp_path)
    roster = json.loads(run("roster", "show", "sepsis", "--json").stdout)
    assert roster["fingerprint"] in run("roster", "show", "sepsis").stdout
    run("roster", "pin", "sepsis", "0" * 64, code=4)
    assert run("roster", "pin", "sepsis", roster["fingerprint"]).stdout == "pinned: mercy\n"
    assert '"pinned"' in (tmp_path / "mercy" / "studies" / "sepsis.json").read_text()
