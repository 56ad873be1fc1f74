"""Two plans that keep one limit, and the choice between them that does not: against the composed loss distribution."""

from __future__ import annotations

import pytest

from accounting.mechanisms.composed_loss import composed_delta
from accounting.mechanisms.unsampled import Steps
from research.enforcement.trading import Trade, traded


def test_each_plan_keeps_delta_and_the_choice_between_them_nearly_doubles_it() -> None:
    trade = Trade()
    found = traded(trade)
    noises = ((trade.rare_noise, trade.rate), (found.question_noise, 1.0))
    # Continuous noise: on a very fine grid.
    plans = [[Steps(noise, rate, 1, 2.0**60) for noise, rate in ((trade.first_noise, 1.0), then)] for then in noises]
    # In both directions, by the accountant.
    assert [composed_delta(plan, trade.epsilon, 1e-3) for plan in plans] == pytest.approx([found.rare] * 2, rel=2e-3)
    assert found.question <= found.rare * (1 + 1e-9)
    assert found.either > 1.9 * found.rare
    # It is no more than both together.
    assert found.either < found.rare + found.question


def test_more_points_change_nothing() -> None:
    assert traded(Trade(), points=10_001).either == pytest.approx(traded(Trade()).either, rel=1e-6)
