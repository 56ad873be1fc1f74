"""The budget as it is printed; the ledger is fetched whole, computed again, and not believed where it does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import text

from accounting.budget.budget import replay
from accounting.budget.ledger import Entry, append, digest, verify_chain
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow
from server.signing_key import SigningKey
from study_protocol.study.messages import BudgetLedger, BudgetStatement, LedgerHead, LimitStatement, Study
from study_protocol.wire.signing import LEDGER_HEAD, canonical_json
from tests.factories.commands import Run, finished, opened
from tests.factories.live_coordinator import Live
from wardround.cli.officer.ledger import show


@pytest.mark.slow
def test_a_study_from_its_creation_to_its_verified_ledger(here: Live, run: Run, tmp_path: Path) -> None:
    outcome = finished(run, here, tmp_path)
    assert (outcome["reason"], outcome["rounds_sent"], outcome["rounds_refused"]) == ("max-steps-reached", 2, 0)

    budget = json.loads(run("budget", "sepsis", "--json").stdout)
    charges = budget.pop("charges")
    assert [(one["round"], one["query"]) for one in charges] == [(1, None), (2, None)]
    assert budget == here.operator("GET", "/v1/studies/sepsis/budget").json()
    shown = run("budget", "sepsis").stdout
    assert "ended: max-steps-reached" in shown
    assert "does not hold against whoever sees" in shown
    assert "unbounded" in shown

    verified = json.loads(run("ledger", "verify", "sepsis", "--json").stdout)
    # Opened and joined, then reserved, settled and released twice, the initial model, and the end. Three name a person.
    assert verified["entries"] == 10 + 3
    assert all(row["shown"] == row["recomputed"] for row in verified["limits"])

    run("ledger", "export", "sepsis", "--out", str(tmp_path / "ledger.jsonl"), operator=True)
    lines = (tmp_path / "ledger.jsonl").read_text().splitlines()
    *exported, signed = [json.loads(line) for line in lines]
    assert {w["client"]: w["head"]["entries"] for w in signed["witnesses"]} == {"mercy": verified["entries"]}
    assert signed["head"]["head"]["sha256"] == verified["head"]
    assert [member["client"] for member in signed["roster"]["members"]] == ["mercy"]
    assert verify_chain([Entry.from_dict(entry) for entry in exported]) == (13, verified["head"])
    _verified_without_a_network(here, run, tmp_path / "ledger.jsonl", verified["head"])

    left = json.loads(run("egress-log", "--json").stdout)
    assert [(d["round"], d["what"], d["answer"]) for d in left] == [
        (1, "update", "accepted"),
        (2, "update", "accepted"),
    ]
    assert "accepted" in run("egress-log").stdout


def _verified_without_a_network(here: Live, run: Run, file: Path, head: str) -> None:
    mark = here.coordinator.signer.fingerprint
    offline = ("ledger", "verify", "sepsis", "--file", str(file), "--coordinator-key")
    again = json.loads(run(*offline, mark, "--json").stdout)
    assert (again["head"], again["entries"]) == (head, 13)
    said = run(*offline, here.coordinator.signer.public_key).stdout
    assert "the newest entry (the ledger's head) is signed with the key that you named" in said
    assert "2 rounds reserved: 2 settled" in said
    # Read out in groups, written down in capitals.
    grouped = " ".join(mark[i : i + 8] for i in range(0, 64, 8)).upper()
    assert run(*offline, grouped).stdout == run(*offline, mark).stdout
    assert "not the one that you named" in run(*offline, "a" * 64, code=4).stderr
    assert "--coordinator-key" in run(*offline[:-1], code=1).stderr
    # One byte of one entry, and nothing else.
    broken = file.read_text().replace('"reason": "max-steps-reached"', '"reason": "stopped"')
    (file.parent / "broken.jsonl").write_text(broken)
    offline = (*offline[:4], str(file.parent / "broken.jsonl"), "--coordinator-key")
    assert "its content does not have its hash" in run(*offline, mark, code=4).stderr


@pytest.mark.slow
def test_a_hospital_checks_with_its_own_key_and_its_own_settings(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are what it joined under, whatever the coordinator serves now."""
    from client_sdk.api.client import Client

    finished(run, here, tmp_path)
    said = run("ledger", "verify", "sepsis").stdout
    assert "the key that was pinned at enrolment" in said
    assert "these are the settings that this hospital joined under" in said
    shown = here.operator("GET", "/v1/studies/sepsis").json()
    assert "which was not compared: fingerprint" in run("ledger", "verify", "sepsis", operator=True).stdout

    # It asks the coordinator that it enrolled with, and says so rather than ask nobody else in silence.
    other = run("ledger", "verify", "sepsis", "--server", "https://another.example.org", code=1).stderr
    assert "leave --server out" in other
    assert here.url in other
    assert run("ledger", "verify", "sepsis", "--server", f"{here.url}/").stdout == said

    # A coordinator with another key serves it, too: a hospital does not ask for it.
    stranger = SigningKey(Ed25519PrivateKey.generate())
    real = Client.ledger

    def signed_anew(self: Client, name: str, after: int = 0, *rest: Any) -> Any:
        page = real(self, name, after, *rest)
        signature = stranger.sign(LEDGER_HEAD, page.head.head.model_dump(mode="json"))
        return page.model_copy(update={"head": page.head.model_copy(update={"signature": signature})})

    monkeypatch.setattr(Client, "ledger", signed_anew)
    monkeypatch.setattr(
        Client, "study", lambda *_: Study.model_validate({**shown, "coordinator_key": stranger.public_key})
    )
    assert "not signed with this coordinator's key" in run("ledger", "verify", "sepsis", code=4).stderr


@pytest.mark.slow
def test_a_plan_that_is_not_the_settings_is_refused_over_the_network(here: Live, run: Run, tmp_path: Path) -> None:
    """Whoever holds the coordinator's key writes the ledger anew with a hundred times the noise, and signs it."""
    finished(run, here, tmp_path)
    quieter = 0.0

    def forged(tx: Transaction) -> None:
        nonlocal quieter
        for name in tx.session.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all():
            tx.session.execute(text(f"DROP TRIGGER {name}"))
        chain: list[Entry] = []
        rows, budget = tx.session.query(LedgerRow).order_by(LedgerRow.sequence).all(), tx.session.query(BudgetRow).one()
        for row in rows:
            body = json.loads(row.body)
            if row.kind == "opened":
                body["plan"]["noise_multiplier"] *= 100
            chain.append(append(chain[-1] if chain else None, row.kind, row.round, body))
        told, last = replay(chain).statements(whole=False), chain.pop()
        quieter = told[0]["spent"] / budget.limits[0]["spent"]
        # What is shown, and the digest of it in the newest entry, are the liar's too.
        shown = {"statement_sha256": digest({"limits": told, "percentiles": budget.percentiles})}
        chain.append(append(chain[-1], last.kind, last.round, {**last.body, **shown}))
        for row, entry in zip(rows, chain, strict=True):
            row.body, row.previous, row.sha256 = canonical_json(entry.body).decode(), entry.previous, entry.sha256
        head = LedgerHead(study="sepsis", entries=len(chain), sha256=chain[-1].sha256)
        budget.head_sha256, budget.limits = head.sha256, told
        budget.signature = here.coordinator.signer.sign(LEDGER_HEAD, head.model_dump(mode="json"))

    here.coordinator.database.write("forge", forged)
    # It would be believed by whoever replays the plan that is shown.
    assert quieter < 0.5
    for operator in (False, True):
        refused = run("ledger", "verify", "sepsis", operator=operator, code=4).stderr
        assert "its plan is not the plan of its settings: noise_multiplier differ" in refused


@pytest.mark.slow
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


@pytest.mark.quick("99")
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
        state="running",
        round=3,
        limits=list(limits),
        ledger=BudgetLedger.model_construct(entries=7, head="sha256:ab"),
        **{"can_continue": True, "pause_reason": None, "stop_reason": None, "max_steps": 30, **given},
    )


def test_numbers_are_rounded_up_and_what_is_left_down(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(spent=1.00001, reserved=0.5, remaining=6.49999, epsilon=8.0, delta=1e-5)))
    shown = capsys.readouterr().out
    assert "sepsis, round 3: may continue" in shown
    assert all(text in shown for text in ("1.001", "0.500", "6.499", "8.000", "1e-05", "coordinator"))
    assert "ledger: 7 entries. The newest stands for all of them: sha256:ab" in shown


def test_a_level_that_nothing_protects_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(level="client", state="unbounded")))
    assert "no limit protects this level" in capsys.readouterr().out


def test_an_ended_study_says_why_and_a_certificate_what_it_assumes(capsys: pytest.CaptureFixture[str]) -> None:
    certified = limit(spent=1.0, epsilon=2.0, certificate={"assumption": "records are drawn alike"})
    show(statement(certified, can_continue=False, stop_reason="budget-exhausted"))
    shown = capsys.readouterr().out
    assert "ended: budget-exhausted" in shown
    assert "instance classical: records are drawn alike" in shown


def test_a_database_that_was_changed_is_told_with_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(level="client", state="unbounded"), can_continue=False, stop_reason="database-differs"))
    shown = " ".join(capsys.readouterr().out.split())
    assert "database-differs. The coordinator's database was changed without its key" in shown
    assert "Keep a copy of the database and find the cause" in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "part"),
    [
        (lambda said: {"limits": said["limits"][:1]}, "limits has 1 parts"),
        (lambda said: {"limits": [said["limits"][0] | {"delta": 1e-12}, *said["limits"][1:]]}, "delta"),
        (lambda said: {"limits": [said["limits"][0] | {"epsilon": 0.5}, *said["limits"][1:]]}, "epsilon"),
        (lambda said: {"limits": [said["limits"][0] | {"reports": []}, *said["limits"][1:]]}, "reports has 0 parts"),
        (lambda said: {"max_steps": said["max_steps"] + 1}, "max_steps"),
        (lambda said: {"can_continue": True}, "can_continue"),
    ],
    ids=["a limit left out", "a smaller delta", "a smaller limit", "no reports", "more steps", "goes on"],
)
def test_a_budget_that_shows_another_limit_than_the_ledger_is_refused(
    here: Live, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: Any, part: str
) -> None:
    """What is spent agrees in all of them: it was all that was compared."""
    from client_sdk.api.client import Client

    finished(run, here, tmp_path)
    run("ledger", "verify", "sepsis")
    said = Client.budget
    monkeypatch.setattr(
        Client,
        "budget",
        lambda self, name: BudgetStatement.model_validate((truth := said(self, name).model_dump()) | lie(truth)),
    )
    refused = run("ledger", "verify", "sepsis", code=4).stderr
    assert "the budget that is shown is not the one that the ledger gives" in refused
    assert part in refused


COUNTED: dict[str, Any] = {
    "spent": 1.99901,
    "epsilon": 2.0,
    "delta": 1e-5,
    "remaining": 0.0009,
    "certificate": {"assumption": "steps were counted"},
    "progress": {
        "enforcement": "fixed-plan",
        "steps": {"used": 12, "reserved": 1, "allowed": 254},
        "squares": {"used": 0.0025, "reserved": 0.0, "allowed": 0.0503},
    },
    "reports": [
        {
            "name": "privacy-loss distribution",
            "epsilon": 0.2601,
            "certificate": {
                "assumption": "ε so far, if the study ended here for reasons that do not depend on its results"
            },
        }
    ],
}


def test_a_plan_is_printed_with_its_guarantee_before_the_number_so_far(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(**COUNTED), can_continue=False, stop_reason="stopped"))
    shown = " ".join(capsys.readouterr().out.split())
    guarantee = (
        "instance classical: ε 2.000 at δ = 1e-5, of the whole plan of 254 steps and its whole share for questions, "
        "whenever the study stops"
    )
    progress = "step 12 of 254, step 13 is under way; questions: used 0.0025 of μ² = 0.0503, 5.0 %"
    running = (
        "instance classical: ε so far 0.261, if the study ended here for reasons that do not depend on its results"
    )
    assert f"{guarantee}: {progress}" in shown
    assert shown.index(guarantee) < shown.index(running)
    # What is left: of the steps, and of the share for questions.
    assert "95.2 % of the steps, 95.0 % of the share for questions" in shown


def test_a_plan_whose_steps_are_done_goes_on_with_questions(capsys: pytest.CaptureFixture[str]) -> None:
    done = COUNTED["progress"] | {"steps": {"used": 254, "reserved": 0, "allowed": 254}}
    show(statement(limit(**COUNTED | {"progress": done, "rounds_left_estimate": 0})))
    shown = " ".join(capsys.readouterr().out.split())
    assert "round 3: training done, takes questions" in shown
    assert "0.0 % of the steps, 95.0 % of the share for questions" in shown


def test_steps_that_abandoned_rounds_lost_do_not_remain(capsys: pytest.CaptureFixture[str]) -> None:
    steps = {"used": 22, "reserved": 0, "allowed": 24, "abandoned": 2}
    show(statement(limit(**COUNTED | {"progress": COUNTED["progress"] | {"steps": steps}})))
    shown = " ".join(capsys.readouterr().out.split())
    assert "step 22 of 24, 2 are lost with abandoned rounds" in shown
    assert "0.0 % of the steps" in shown


def test_before_the_first_charge_no_number_so_far_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    show(statement(limit(**COUNTED | {"spent": 0.0})))
    shown = " ".join(capsys.readouterr().out.split())
    assert "nothing is charged yet" in shown
    assert "so far" not in shown
