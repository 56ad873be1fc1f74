"""What a hospital answers about later patients: windows of the settings, each once, after training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import PolicyRefused
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.charges import Charge
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.study.answers import price_of
from client_sdk.study.permission import Permission
from study_protocol.study.queries import QueryAsked, QueryDocument
from tests.factories.hospitals import plain_policy
from tests.factories.monitored_studies import monitored_study, monitoring
from tests.factories.settings import settings


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[HospitalLedger]:
    with HospitalLedger.open(tmp_path / "ledger") as opened:
        yield opened


def permission(directory: Path, ledger: HospitalLedger, queries: str = "ask", study: Any = None) -> Permission:
    policy = plain_policy(statistics={"queries": queries})
    return Permission("sepsis", study or monitored_study(), policy, Approvals(directory, "sepsis"), ledger)


def asked(number: int, model: int = 3) -> QueryAsked:
    return QueryAsked(number=number, document=monitoring().document(number, model))


def pay(ledger: HospitalLedger, asks: Permission, round: int, query: QueryAsked) -> None:
    ledger.charge("sepsis", round, price_of(query.document), (), query.approved_digest, asks.under(query))


def test_joining_agrees_to_every_window_once(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks = permission(tmp_path, ledger)
    for number in range(1, 5):
        query = asked(number)
        asks.require_by_rule(query)
        assert asks.of(query) is True
        pay(ledger, asks, number, query)
    assert [charge.bears for charge in ledger.charges()] == ["monitored"] * 4


@pytest.mark.parametrize("queries", ["ask", "allow"])
def test_a_window_about_another_model_is_refused_whoever_approved_it(
    tmp_path: Path, ledger: HospitalLedger, queries: str
) -> None:
    asks = permission(tmp_path, ledger, queries)
    pay(ledger, asks, 1, asked(1))
    other = asked(1, model=4)
    asks.approvals.decide(other.approved_digest, approved=True, words="yes")
    with pytest.raises(PolicyRefused, match="each has one"):
        asks.require_by_rule(other)
    # Killed after it has paid, the hospital goes on with that round.
    asks.require_by_rule(asked(1), except_round=1)
    # Another window is another matter.
    asks.require_by_rule(asked(2, model=4))


def test_a_window_that_came_to_nothing_is_tried_again_twice_at_most(tmp_path: Path, ledger: HospitalLedger) -> None:
    """Each may have been opened, whatever the coordinator says."""
    asks = permission(tmp_path, ledger, "allow")
    for round in (1, 2):
        assert asks.of(asked(1)) is True
        pay(ledger, asks, round, asked(1))
    assert asks.of(asked(1)) is False
    assert asks.of(asked(1), except_round=2) is True


@pytest.mark.parametrize(
    "window",
    [
        {"first_day": "2026-02-01", "end": "2026-05-02"},
        {"first_day": "2026-01-01", "end": "2026-04-02"},
        {"first_day": "2025-10-03", "end": "2026-01-01"},
        {"first_day": "2026-12-27", "end": "2027-03-27"},
    ],
)
def test_windows_that_overlap_or_are_none_are_refused_whoever_approved_them(
    tmp_path: Path, ledger: HospitalLedger, window: dict[str, str]
) -> None:
    asks = permission(tmp_path, ledger, "allow")
    dumped = asked(1).document.model_dump(mode="json")
    dumped["question"]["first_record"] |= window
    odd = QueryAsked(number=1, document=QueryDocument.model_validate(dumped))
    asks.approvals.decide(odd.approved_digest, approved=True, words="yes")
    with pytest.raises(PolicyRefused, match="no window"):
        asks.require_by_rule(odd)
    # Nor does a study without the section answer about any.
    other_study = settings(statistics={"max_queries": 9, "max_cells": 100})
    with pytest.raises(PolicyRefused, match="no window"):
        permission(tmp_path, ledger, "allow", other_study).require_by_rule(asked(1))


def test_a_person_here_may_say_no(tmp_path: Path, ledger: HospitalLedger) -> None:
    asks = permission(tmp_path, ledger)
    asks.approvals.decide(asked(1).approved_digest, approved=False, words="no")
    assert asks.of(asked(1)) is False


def test_only_windows_are_charged_as_such() -> None:
    count = QueryDocument.model_validate({"question": {"kind": "count", "noise_multiplier": 4.0}})
    assert price_of(count) == Charge.of_query(count.cost())
    assert price_of(asked(1).document).bears == "monitored"
