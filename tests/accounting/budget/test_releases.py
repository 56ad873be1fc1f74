"""The models that a ledger names: which ones can be there, and where a reader goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from accounting.budget.ledger import Entry, LedgerError
from accounting.budget.releases import NamedModel, Releases, named_models
from tests.accounting.budget.plans import cost, plan
from tests.factories.ledgers import after, opened

QUERY = {"query": "a" * 64, "cost": cost(9.0).to_dict()}


def ledger(*happened: tuple[str, int | None]) -> list[Entry]:
    """Entries of these kinds and rounds. A model's digest is its round's digit, its size its entry's number."""
    bodies: dict[str, dict[str, Any]] = {
        "settled": {"report": None},
        "asked": QUERY,
        "cancelled": {"reason": "too-few-clients"},
    }
    entries = opened(plan())
    for kind, number in happened:
        model = {"sha256": str(number or 0) * 64, "bytes": len(entries) + 1}
        entries.append(after(entries, kind, number, **(model if kind == "released" else bodies.get(kind, {}))))
    return entries


def taken(entries: list[Entry]) -> Releases:
    releases = Releases()
    for entry in entries:
        releases.take(entry)
    return releases


TRAINED = [("released", None), ("reserved", 1), ("settled", 1), ("released", 1), ("reserved", 2), ("settled", 2)]


def test_the_newest_model_is_that_of_the_round_that_was_settled_last() -> None:
    entries = ledger(*TRAINED)
    assert taken(entries).newest == NamedModel(1, "1" * 64, 5, 5)
    assert taken(entries[:2]).newest == NamedModel(0, "0" * 64, 2, 2)
    assert taken(entries[:1]).newest is None
    assert named_models(entries) == {0: NamedModel(0, "0" * 64, 2, 2), 1: NamedModel(1, "1" * 64, 5, 5)}


@pytest.mark.parametrize(
    ("happened", "reason"),
    [
        ([("reserved", 1), ("released", None)], "initial model after the study had begun"),
        ([("released", None), ("released", None)], "initial model after the study had begun"),
        ([("reserved", 1), ("released", 1)], "model of round 1, which was not just settled"),
        ([("reserved", 1), ("cancelled", 1), ("released", 1)], "not just settled"),
        ([*TRAINED, ("released", 1)], "not just settled"),
        ([*TRAINED, ("released", 2), ("released", 2)], "not just settled"),
        ([("asked", 1), ("settled", 1), ("released", 1)], "not just settled"),
        ([*TRAINED, ("reserved", 3), ("released", 2)], "not just settled"),
    ],
    ids=["late", "twice", "unsettled", "cancelled", "earlier", "again", "question", "next-begun"],
)
def test_a_model_that_cannot_be_there_is_refused(happened: list[tuple[str, int | None]], reason: str) -> None:
    entries = ledger(*happened)
    releases = taken(entries[:-1])
    before = releases.newest
    with pytest.raises(LedgerError, match=reason) as refused:
        releases.take(entries[-1])
    assert str(len(entries)) in str(refused.value)
    assert releases.newest == before


@pytest.mark.parametrize("place", range(len(TRAINED) + 2))
def test_a_reader_goes_on_from_what_it_saved(place: int) -> None:
    entries = ledger(*TRAINED, ("released", 2))
    saved = json.loads(json.dumps(taken(entries[:place]).to_json()))
    again = Releases.restored(saved)
    for entry in entries[place:]:
        again.take(entry)
    assert again.newest == NamedModel(2, "2" * 64, 8, 8)


def test_nothing_saved_is_before_the_first_entry() -> None:
    assert Releases.restored(None).to_json() == Releases().to_json()
