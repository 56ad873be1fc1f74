"""The budget as it is printed; the ledger is fetched whole, computed again, and not believed where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.ledger import Entry, verify_chain
from client_sdk.commands.ledger import show
from client_sdk.protocol.study.messages import BudgetLedger, BudgetStatement, LimitStatement
from tests.factories.commands import Run, finished, opened
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
    assert verified["entries"] == 7
    assert all(row["shown"] == row["recomputed"] for row in verified["limits"])

    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    *exported, signed = [json.loads(line) for line in lines]
    assert {w["client"]: w["head"]["entries"] for w in signed["witnesses"]} == {"mercy": verified["entries"]}
    assert signed["head"]["head"]["sha256"] == verified["head"]
    assert [member["client"] for member in signed["roster"]["members"]] == ["mercy"]
    assert verify_chain([Entry.from_dict(entry) for entry in exported]) == (7, verified["head"])

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


@pytest.mark.parametrize("entries", [0, 99])
def test_a_budget_on_entries_that_are_not_there_is_not_believed(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    from client_sdk.api.client import Client

    opened(run, tmp_path)
    real = Client.budget

    def beyond(self: Client, name: str) -> Any:
        statement = real(self, name)
        return statement.model_copy(update={"ledger": statement.ledger.model_copy(update={"entries": entries})})

    monkeypatch.setattr(Client, "budget", beyond)
    assert "does not have" in run("ledger", "verify", "sepsis", code=4).stderr


def test_an_entry_that_cannot_be_read_is_told_in_words(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from client_sdk.api.client import Client

    opened(run, tmp_path)
    real = Client.ledger

    def broken(self: Client, name: str, after: int = 0) -> Any:
        page = real(self, name, after)
        return page.model_copy(update={"entries": [page.entries[0].model_copy(update={"kind": "nonsense"})]})

    monkeypatch.setattr(Client, "ledger", broken)
    assert run("ledger", "verify", "sepsis", code=4).stderr.startswith("wardround:")


def limit(**given: Any) -> LimitStatement:
    empty: dict[str, Any] = dict.fromkeys(LimitStatement.model_fields) | {"reports": []}
    own = {"level": "instance", "definition": "classical", "state": "within", "enforced_by": "coordinator"}
    return LimitStatement.model_validate(empty | own | given)


def statement(*limits: LimitStatement, **given: Any) -> BudgetStatement:
    return BudgetStatement.model_construct(
        study="sepsis",
        round=3,
        limits=list(limits),
        ledger=BudgetLedger.model_construct(entries=7, head="sha256:ab"),
        **{"can_continue": True, "stop_reason": None, **given},
    )


def test_numbers_are_rounded_up_and_what_is_left_down(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(spent=1.00001, reserved=0.5, remaining=6.49999, epsilon=8.0, delta=1e-5)))
    shown = capsys.readouterr().out
    assert "sepsis, round 3: may continue" in shown
    assert all(text in shown for text in ("1.001", "0.500", "6.499", "8.000", "1e-05", "coordinator"))
    assert "ledger: 7 entries, head sha256:ab" in shown


def test_a_level_that_nothing_protects_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(level="client", state="unbounded")))
    assert "nothing protects this level" in capsys.readouterr().out


def test_an_ended_study_says_why_and_a_certificate_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    certified = limit(spent=1.0, epsilon=2.0, certificate={"assumption": "records are drawn alike"})
    show(statement(certified, can_continue=False, stop_reason="budget-exhausted"))
    shown = capsys.readouterr().out
    assert "ended: budget-exhausted" in shown
    assert "instance classical: records are drawn alike" in shown
