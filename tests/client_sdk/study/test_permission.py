"""Who lets a question be answered at a hospital; and refusals that tell nothing of who is there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.budget.ledger import Entry, append
from client_sdk.errors import Refused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.split import PatientSplit
from client_sdk.outbox import Outbox
from client_sdk.study.answers import AnsweringWork, require_never_opened
from client_sdk.study.permission import Permission
from client_sdk.study.preparation import able
from client_sdk.study.work import RoundCharges
from study_protocol.study.messages import AssignmentBody, LedgerHead
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.queries import QueryAsked, QueryDocument
from tests.factories.hospitals import plain_policy, records
from tests.factories.settings import limit, settings

QUESTION: dict[str, Any] = {"prediction": "binary", "noise_multiplier": 3.0, "edges": [0.4]}
# Three rounds: one evaluation after the second, one after the last.
STUDY = settings(
    statistics={"max_queries": 9, "max_cells": 100},
    evaluation={"share": 0.4, "every": 2, "question": QUESTION},
    limits=[limit("instance", epsilon=1e6)],
    max_steps=3,
)


def document(model: int = 2, version: str = "1", **entries: Any) -> QueryDocument:
    asked = {"kind": "evaluation", "model": model} | QUESTION | entries
    return QueryDocument.model_validate({"question": asked, "data_version": version})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger") as found:
        yield found


def permission(tmp_path: Path, ledger: HospitalLedger, queries: str = "ask") -> Permission:
    policy = plain_policy(statistics={"queries": queries})
    return Permission("sepsis", STUDY, policy, Approvals(tmp_path), ledger)


def pay(ledger: HospitalLedger, round: int, asked: QueryDocument) -> None:
    ledger.charge("sepsis", round, Charge.of_query(asked.cost()), (), asked.digest())


def test_what_stands_in_the_settings_needs_no_person_and_anything_else_does(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    asks = permission(tmp_path, ledger)
    assert asks.of(QueryAsked(number=1, document=document())) is True
    other = (
        {"noise_multiplier": 2.9},
        {"edges": [0.41]},
        {"groups": [{"column": "age", "edges": [50]}]},
        {"rows": "any"},
    )
    for entries in (*other, {"model": 0}, {"title": "the same"}, {"where": [{"column": "age", "low": 90}]}):
        assert asks.of(QueryAsked(number=1, document=document(**entries))) is None
    assert asks.of(QueryAsked(number=1, document=document(version="2"))) is None
    assert permission(tmp_path, ledger, "allow").of(QueryAsked(number=1, document=document(**other[0]))) is True
    asks.approvals.decide(document().digest(), approved=False, words="no")
    assert asks.of(QueryAsked(number=1, document=document())) is False
    assert permission(tmp_path, ledger, "allow").of(QueryAsked(number=1, document=document())) is False


def test_a_coordinator_gets_no_more_evaluations_than_the_schedule_has(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks = permission(tmp_path, ledger)
    # The same one twice: a round that came to nothing is a draw, too.
    for round in (3, 4):
        assert asks.of(QueryAsked(number=1, document=document()), except_round=round) is True
        pay(ledger, round, document())
        # Killed after it has paid, the hospital goes on with that round.
        assert asks.of(QueryAsked(number=1, document=document()), except_round=round) is True
    assert asks.of(QueryAsked(number=1, document=document(3)), except_round=5) is None
    assert asks.of(QueryAsked(number=1, document=document(3))) is None
    asks.approvals.decide(document(3).digest(), approved=True, words="yes")
    assert asks.of(QueryAsked(number=1, document=document(3)), except_round=5) is True


def test_what_a_person_approved_takes_no_place_of_the_schedule(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks = permission(tmp_path, ledger)
    for round in (1, 2, 3):
        by_hand = document(1, noise_multiplier=5.0 + round)
        asks.approvals.decide(by_hand.digest(), approved=True, words="yes")
        pay(ledger, round, by_hand)
    assert asks.of(QueryAsked(number=1, document=document())) is True


@pytest.mark.parametrize("somebody", [True, False])
def test_whether_a_column_lacks_is_said_also_where_nobody_is_set_aside(
    tmp_path: Path, ledger: HospitalLedger, somebody: bool
) -> None:
    data, policy = records(3), plain_policy(statistics={"queries": "allow"})
    split = next(
        one
        for n in range(256)
        if (one := PatientSplit(bytes([n]) * 32, 0.4)).set_aside(data.patients).any() == somebody
    )
    here = able(None, data, policy, STUDY, None, "cpu", 60.0, "mercy", "1", split)
    books, allowed = RoundCharges("sepsis", ledger, policy, Outbox(tmp_path)), permission(tmp_path, ledger, "allow")
    # Neither models nor a way out: it is refused before either is needed.
    models: Any = object()
    delivery: Any = SimpleNamespace(has_opened=lambda round: False)
    work = AnsweringWork("mercy", books, here, models, delivery, allowed)
    asked = document(groups=[{"column": "nowhere", "edges": [50]}])
    model = ModelInfo(version=2, sha256="a" * 64, bytes=9)
    with pytest.raises(Refused, match="nowhere") as refused:
        work.open(assigned(QueryAsked(number=1, document=asked, model=model)))
    assert refused.value.code == "unknown-column"


def test_an_approval_covers_two_sessions_and_then_a_person_is_asked_again(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    asks, asked = permission(tmp_path, ledger), QueryAsked(number=1, document=document(where=[FROM_FIFTY]))
    subject, price = asked.approved_digest, Charge.of_query(asked.document.cost())
    for round in (3, 6):
        asks.approvals.decide(subject, approved=True, words="one")
        for number in (round, round + 1):
            assert asks.of(asked, except_round=number) is True
            ledger.charge("sepsis", number, price, (), subject, asks.under(subject))
            # Started again in the same round it is no other session.
            assert asks.of(asked, except_round=number) is True
        assert asks.of(asked, except_round=round + 2) is None
        assert asks.of(asked) is None
    assert permission(tmp_path, ledger, "allow").of(asked) is True
    asks.approvals.decide(subject, approved=False, words="one")
    assert permission(tmp_path, ledger, "allow").of(asked) is False


def test_an_approval_of_an_earlier_version_covers_two_sessions_too(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks, asked = permission(tmp_path, ledger), QueryAsked(number=1, document=document(where=[FROM_FIFTY]))
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / f"{asked.approved_digest}.json").write_text('{"approved": true, "question": "", "at": ""}')
    for round in (3, 4):
        assert asks.of(asked) is True
        pay(ledger, round, asked.document)
    assert asks.of(asked) is None


def test_an_approval_is_of_one_model(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks, asked = permission(tmp_path, ledger), document(where=[FROM_FIFTY])
    of = [QueryAsked(number=1, document=asked, model=ModelInfo(version=2, sha256=c * 64, bytes=9)) for c in "ab"]
    asks.approvals.decide(of[0].approved_digest, approved=True, words="one")
    assert asks.of(of[0]) is True
    assert asks.of(of[1]) is None
    assert asks.of(QueryAsked(number=1, document=asked)) is None


@pytest.mark.parametrize("ending", ["settled", "cancelled", "charged-in-full", None])
@pytest.mark.parametrize("opened", [False, True])
def test_what_was_opened_is_answered_no_more(ending: Any, opened: bool) -> None:
    entries: list[Entry] = []
    digest = "ab" * 32
    for kind, round in (("asked", 1), (ending, 1), ("asked", 2)):
        if kind is not None:
            entries.append(append(entries[-1] if entries else None, kind, round, {"query": digest}))
    require_never_opened(entries, "cd" * 32, 2, lambda round: True)
    require_never_opened(entries[:1], digest, 1, lambda round: True)
    if ending in ("cancelled", "charged-in-full") and not opened:
        require_never_opened(entries, digest, 2, lambda round: False)
        return
    with pytest.raises(Refused, match="round 1 opened") as refused:
        require_never_opened(entries, digest, 2, lambda round: opened)
    assert refused.value.code == "opened-before"


FROM_FIFTY = {"column": "age", "low": 50, "high": 100}


def assigned(query: QueryAsked) -> AssignmentBody:
    return AssignmentBody(
        study="sepsis",
        client="mercy",
        round=4,
        phase="query",
        deadline=datetime(2030, 1, 1, tzinfo=UTC),
        model=None,
        query=query,
        settings_sha256=STUDY.digest(),
        roster_sha256="b" * 64,
        ledger=LedgerHead(study="sepsis", entries=1, sha256="c" * 64),
    )
