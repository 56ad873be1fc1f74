"""Who lets a question be answered at a hospital; and refusals that tell nothing of who is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from study_protocol.study.model_info import ModelInfo
from study_protocol.study.queries import QueryAsked, QueryDocument
from tests.factories.questions import AGE, patients
from tests.factories.regressions import later_steps, regression
from tests.factories.scheduled_evaluations import document, permission


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger") as found:
        yield found


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


def test_a_question_by_hospital_needs_a_person_where_others_do_not(tmp_path: Path, ledger: HospitalLedger) -> None:
    question = {"kind": "count", "noise_multiplier": 4.0, "by": "hospital", "hospitals": ["alpha", "beta"]}
    asked = QueryDocument.model_validate({"question": question})
    pooled = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 4.0}})
    asks = permission(tmp_path, ledger, "allow")
    assert asks.of(QueryAsked(number=1, document=pooled)) is True
    assert asks.of(QueryAsked(number=1, document=asked)) is None
    # An approval is of these hospitals. Other ones make another question.
    asks.approvals.decide(asked.digest(), approved=True, words="yes")
    assert asks.of(QueryAsked(number=1, document=asked)) is True
    others = QueryDocument.model_validate({"question": question | {"hospitals": ["alpha", "gamma"]}})
    assert asks.of(QueryAsked(number=1, document=others)) is None


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


def test_an_approval_covers_two_sessions_and_then_a_person_is_asked_again(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    asks, asked = permission(tmp_path, ledger), QueryAsked(number=1, document=document(where=[FROM_FIFTY]))
    subject, price = asked.approved_digest, Charge.of_query(asked.document.cost())
    for round in (3, 6):
        asks.approvals.decide(subject, approved=True, words="one")
        for number in (round, round + 1):
            assert asks.of(asked, except_round=number) is True
            ledger.charge("sepsis", number, price, (), subject, asks.under(asked))
            # Started again in the same round it is no other session.
            assert asks.of(asked, except_round=number) is True
        assert asks.of(asked, except_round=round + 2) is None
        assert asks.of(asked) is None
    assert permission(tmp_path, ledger, "allow").of(asked) is True
    asks.approvals.decide(subject, approved=False, words="one")
    assert permission(tmp_path, ledger, "allow").of(asked) is False


def test_an_approval_of_an_earlier_version_covers_two_sessions_too(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks, asked = permission(tmp_path, ledger), QueryAsked(number=1, document=document(where=[FROM_FIFTY]))
    folder = tmp_path / "outbox" / "sepsis" / "queries"
    folder.mkdir(parents=True)
    (folder / f"{asked.approved_digest}.json").write_text('{"approved": true, "question": "", "at": ""}')
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


def test_one_approval_covers_every_step_of_a_regression_and_no_other_question(
    tmp_path: Path, ledger: HospitalLedger
) -> None:
    asks, steps = permission(tmp_path, ledger), later_steps(regression())
    asked = [QueryAsked(number=number, document=step) for number, step in enumerate(steps, 1)]
    assert [asks.of(query) for query in asked] == [None, None, None]
    asks.approvals.decide(asked[0].approved_digest, approved=True, words="a regression")
    assert [asks.of(query) for query in asked] == [True, True, True]
    # Two sums of each step, in case one fails. A coordinator that asks for more of any step needs a person again.
    round = 1
    for query in asked:
        for _ in range(2):
            assert asks.of(query, except_round=round) is True
            ledger.charge("sepsis", round, Charge.of_query(query.document.cost()), (), "ab" * 32, asks.under(query))
            round += 1
        assert asks.of(query) is None
    # The bound holds for any coefficients: another next step stands in the place of the first one, and not beside it.
    other = QueryAsked(number=9, document=later_steps(regression(), patients(400))[2])
    assert other.document != steps[2]
    assert (other.approved_digest, asks.of(other)) == (asked[2].approved_digest, None)
    # Other columns, noise or patients are other questions.
    for entries in ({"noise_multiplier": 3.9}, {"predictors": [AGE]}, {"steps": 4}, {"where": [FROM_FIFTY]}):
        changed = QueryAsked(number=1, document=later_steps(regression(**entries))[1])
        assert asks.of(changed) is None


def test_who_said_no_to_the_first_step_says_no_to_all(tmp_path: Path, ledger: HospitalLedger) -> None:
    steps = later_steps(regression())
    asks = permission(tmp_path, ledger, "allow")
    asks.approvals.decide(steps[0].digest(), approved=False, words="no")
    assert [asks.of(QueryAsked(number=1, document=step)) for step in steps] == [False] * 3


FROM_FIFTY = {"column": "age", "low": 50, "high": 100}
