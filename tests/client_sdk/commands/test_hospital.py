"""What a hospital does: enrol, join, withdraw, look at its own budget."""

from __future__ import annotations

from pathlib import Path

from tests.factories.commands import Run, finished, opened
from tests.factories.live_coordinator import Live


def test_a_hospital_withdraws(here: Live, run: Run, tmp_path: Path) -> None:
    opened(run, tmp_path)
    assert run("withdraw", "sepsis").stdout == "withdrawn from sepsis\n"
    members = here.operator("GET", "/v1/studies/sepsis/roster").json()["members"]
    assert [(member["client"], member["state"]) for member in members] == [("mercy", "withdrawn")]


def test_charges_without_a_limit_of_ones_own_are_told(here: Live, run: Run, tmp_path: Path) -> None:
    finished(run, here, tmp_path)
    assert "2 charges, and no limit of your own" in run("own-budget").stdout
