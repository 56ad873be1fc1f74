"""The ledger is fetched whole, computed again, and not believed where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.ledger import Entry, verify_chain
from tests.factories.commands import Run, finished
from tests.factories.live_coordinator import Live


def test_a_study_from_its_creation_to_its_verified_ledger(here: Live, run: Run, tmp_path: Path) -> None:
    outcome = finished(run, here, tmp_path)
    assert (outcome["reason"], outcome["rounds_sent"], outcome["rounds_refused"]) == ("max-steps-reached", 2, 0)

    budget = json.loads(run("budget", "sepsis", "--json").stdout)
    assert budget == here.operator("GET", "/v1/studies/sepsis/budget").json()
    shown = run("budget", "sepsis").stdout
    assert "ended: max-steps-reached" in shown
    assert "does not hold against whoever sees" in shown
    assert "unbounded" in shown

    verified = json.loads(run("ledger", "verify", "sepsis", "--json").stdout)
    assert verified["entries"] == 6
    assert all(row["shown"] == row["recomputed"] for row in verified["limits"])

    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    assert verify_chain([Entry.from_dict(json.loads(line)) for line in lines]) == (6, verified["head"])

    left = json.loads(run("egress-log", "--json").stdout)
    assert [(d["round"], d["what"], d["answer"]) for d in left] == [
        (1, "update", "accepted"),
        (2, "update", "accepted"),
    ]
    assert "accepted" in run("egress-log").stdout


def test_a_ledger_that_does_not_give_what_is_shown_is_not_believed(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_sdk.api.client import Client

    finished(run, here, tmp_path)
    real = Client.budget

    def flattered(self: Client, name: str) -> Any:
        statement = real(self, name)
        first = statement.limits[0].model_copy(update={"spent": statement.limits[0].spent / 2})
        return statement.model_copy(update={"limits": [first, *statement.limits[1:]]})

    monkeypatch.setattr(Client, "budget", flattered)
    assert "not the one that the ledger gives" in run("ledger", "verify", "sepsis", code=4).stderr
