"""The limit of a ledger of runs, and ε of its charges beside closed forms."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from accounting.budget.ledger import append
from accounting.errors import InvalidArgument
from client_sdk.errors import LedgerDamaged
from tests.client_sdk.guard.test_monitored_charges import closed_form
from wardround.flower.run_limit import LIMIT, body_of, charge_of, delta_of, epsilon_of, limit_in, limit_of, steps_of

EXACT = limit_of(8.0, 1e-5, "instance", "gaussian", None)


def first_entry(**changes: Any) -> Any:
    return append(None, "opened", None, {"study": LIMIT, **body_of(EXACT), **changes})


def test_epsilon_and_delta_of_steps_are_those_of_one_gaussian_release() -> None:
    """25 steps at noise 10 are one at noise 2 (Balle & Wang 2018)."""
    steps = steps_of(charge_of("instance", 10.0, steps=25))
    by_hand = closed_form(0.5)
    assert by_hand <= epsilon_of(steps, EXACT) <= by_hand * 1.001
    # The other way round, discrete noise apart.
    assert 1e-5 <= delta_of(steps, EXACT, by_hand) <= 1.01e-5
    assert epsilon_of({}, EXACT) == 0.0


def test_a_limit_is_read_as_it_was_written() -> None:
    assert limit_in([first_entry()]) == EXACT
    renyi = limit_of(4.0, 1e-6, "client", "renyi", 6.0)
    assert limit_in([append(None, "opened", None, {"study": LIMIT, **body_of(renyi)})]) == renyi


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": -1.0},
        {"epsilon": "8"},
        {"version": 2},
        {"level": "record"},
        {"rule": "none"},
        {"more": 1},
        {"delta": 2.0},
    ],
)
def test_a_first_entry_that_is_no_limit_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(LedgerDamaged):
        limit_in([first_entry(**changes)])
    with pytest.raises(LedgerDamaged):
        limit_in([])


@pytest.mark.parametrize("values", [(0.0, 1e-5), (8.0, 0.0), (8.0, 1.5), (40.0, 1e-5), (float("nan"), 1e-5)])
def test_a_limit_out_of_its_range_is_refused(values: tuple[float, float]) -> None:
    with pytest.raises(InvalidArgument):
        limit_of(*values, "instance", "gaussian", None)


def test_an_order_belongs_to_the_rule_that_has_one() -> None:
    with pytest.raises(InvalidArgument, match="renyi"):
        limit_of(8.0, 1e-5, "instance", "gaussian", 4.0)
    assert replace(EXACT, epsilon=4.0) == limit_of(4.0, 1e-5, "instance", "gaussian", None)
    assert asdict(EXACT)["order"] == 0.0
