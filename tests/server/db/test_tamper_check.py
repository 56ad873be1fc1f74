"""Rows against what was signed: the first difference is named, and true rows pass."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.ledger import LedgerError, digest
from server.db.rows import find_with_budget
from server.db.session import Transaction
from server.db.tables import BudgetRow, LedgerRow, StudyRow
from server.db.tamper_check import (
    DatabaseDiffers,
    entry_of,
    require_as_signed,
    require_asked,
    require_queries_as_charged,
    require_whole,
    round_that_opened,
)
from server.services.coordinator import Coordinator
from server.signing_key import SigningKey
from tests.factories.asked_studies import STUDY, consented, document, open_asked, send
from tests.factories.forging import forge, while_forged
from tests.factories.studies import open_study, work

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
Check = Callable[[Transaction, StudyRow, BudgetRow], Any]


def checked(coordinator: Coordinator, check: Check, study: str = "sepsis") -> Any:
    return coordinator.database.read("check", lambda tx: check(tx, *find_with_budget(tx, study)))


def as_signed(coordinator: Coordinator, signer: SigningKey | None = None) -> Any:
    return coordinator.database.read("compare", lambda tx: _as_signed(tx, signer or coordinator.signer))


@pytest.fixture
def running(coordinator: Coordinator) -> Coordinator:
    """Round 1 is reserved."""
    open_study(coordinator, clients=3)
    work(coordinator)
    return coordinator


def ledger_row(**changes: Any) -> LedgerRow:
    """An entry, hashed by hand."""
    content = {"sequence": 2, "kind": "cancelled", "round": 1, "body": {}, "previous": "a" * 64}
    return LedgerRow(**{**content, "body": "{}", "sha256": digest(content)} | changes)


@pytest.mark.usefixtures("database_url")
def test_an_entry_is_read_as_it_was_hashed() -> None:
    entry = entry_of(ledger_row())
    assert (entry.sequence, entry.kind, entry.round, entry.body) == (2, "cancelled", 1, {})
    for bad in ("{", "[" * 100_000):
        with pytest.raises(LedgerError, match="no JSON"):
            entry_of(ledger_row(body=bad))


def test_rows_that_nobody_changed_pass(running: Coordinator) -> None:
    assert as_signed(running) == "reserved"
    checked(running, require_whole)


NEWEST = "(SELECT max(sequence) FROM ledger)"
CHANGED = {
    "settings": ("UPDATE studies SET settings = json_set(settings, '$.privacy.noise_multiplier', 0.1)", "its settings"),
    "digest": (f"UPDATE studies SET settings_sha256 = '{'0' * 64}'", "its settings"),
    "protocol": ("UPDATE studies SET protocol = 99", "its protocol"),
    "quorum": ("UPDATE studies SET quorum = 1", "its quorum"),
    "member gone": ("UPDATE clients SET state = 'revoked' WHERE name = 'h0'", "names or keys of its members"),
    "roster": (f"UPDATE studies SET roster_sha256 = '{'0' * 64}'", "names or keys of its members"),
    "state": ("UPDATE budgets SET state = json_set(state, '$.charged_rounds', 0, '$.x', 1)", "state of its budget"),
    "no JSON": ("UPDATE budgets SET state = json_set(state, '$.x', 1e999)", "state of its budget"),
    "can continue": ("UPDATE budgets SET can_continue = NOT can_continue", "whether it can continue"),
    "round": ("UPDATE budgets SET round = 7", "the newest round of its budget"),
    "max_steps": ("UPDATE budgets SET max_steps = 99", "its max_steps"),
    "limits": ("UPDATE budgets SET limits = '[]'", "the statement of its budget"),
    "entry more": ("UPDATE budgets SET entries = entries - 1", "longer or shorter"),
    "head": (f"UPDATE budgets SET head_sha256 = '{'0' * 64}'", "not the head that was signed"),
    "entry": (f"UPDATE ledger SET body = '{{}}' WHERE sequence = {NEWEST}", "newest entry was changed"),
}


def test_each_change_is_named(running: Coordinator) -> None:
    for statement, said in CHANGED.values():
        with pytest.raises(DatabaseDiffers, match=said) as found:
            while_forged(running, statement, lambda tx: _as_signed(tx, running.signer))
        assert found.value.study == "sepsis"
    # And all was taken back.
    assert as_signed(running) == "reserved"


def _as_signed(tx: Transaction, signer: SigningKey) -> str:
    return require_as_signed(tx, signer, *find_with_budget(tx, "sepsis")).kind


@pytest.mark.slow
def test_another_coordinators_signature_is_none(running: Coordinator) -> None:
    with pytest.raises(DatabaseDiffers, match="does not carry this coordinator's signature"):
        as_signed(running, SigningKey(Ed25519PrivateKey.generate()))


def test_an_older_entry_is_found_on_the_walk_and_not_before(running: Coordinator) -> None:
    forge(running, "UPDATE ledger SET body = json_set(body, '$.x', 1) WHERE sequence = 1")
    assert as_signed(running) == "reserved"
    with pytest.raises(DatabaseDiffers, match="entry 1"):
        checked(running, require_whole)


def test_a_ledger_of_which_an_entry_is_missing_is_not_whole(running: Coordinator) -> None:
    forge(running, f"DELETE FROM ledger WHERE sequence = {NEWEST}")
    with pytest.raises(DatabaseDiffers, match="does not lead to the head"):
        checked(running, require_whole)


def of_queries(coordinator: Coordinator, check: Callable[..., Any], *arguments: Any) -> Any:
    return checked(coordinator, lambda tx, study, _: check(tx, study, *arguments), STUDY)


def test_a_round_asks_what_the_ledger_charges(coordinator: Coordinator) -> None:
    consented(coordinator, open_asked(coordinator), document())
    of_queries(coordinator, require_asked, 1)
    with pytest.raises(DatabaseDiffers, match="another query than the one"):
        of_queries(coordinator, require_asked, 2)
    other = document(noise_multiplier=50.0)
    forge(coordinator, "UPDATE queries SET sha256 = :sha256, document = :to", sha256=other.digest(),
          to=json.dumps(other.model_dump(mode="json")))  # fmt: skip
    with pytest.raises(DatabaseDiffers, match="another query than the one"):
        of_queries(coordinator, require_asked, 1)
    with pytest.raises(DatabaseDiffers, match="is missing in the database"):
        of_queries(coordinator, require_queries_as_charged)


def test_a_settled_query_stays_so(coordinator: Coordinator) -> None:
    hospitals, asked = open_asked(coordinator), document()
    query = consented(coordinator, hospitals, asked)
    assert of_queries(coordinator, round_that_opened, asked.digest()) is None
    for hospital in hospitals:
        send(hospital, query)
    work(coordinator)
    assert of_queries(coordinator, round_that_opened, asked.digest()) == query.round
    assert of_queries(coordinator, round_that_opened, "0" * 64) is None
    of_queries(coordinator, require_queries_as_charged)
    forge(coordinator, "UPDATE queries SET answer = NULL, state = 'waiting', due_at = 0")
    # Asked about another query, this one is not looked at.
    of_queries(coordinator, require_queries_as_charged, "0" * 64)
    for sha256 in (None, asked.digest()):
        with pytest.raises(DatabaseDiffers, match="query 1 stands in the database where"):
            of_queries(coordinator, require_queries_as_charged, sha256)
