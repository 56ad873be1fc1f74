"""The forecast on made-up records whose typical ranges were guessed."""

from __future__ import annotations

import pytest

from research.accuracy.guessed_ranges import FAMILIES, lost
from study_protocol.study.suggestion import AccuracyForecast

PARTED = "without error"


@pytest.fixture(scope="module")
def losses() -> dict[tuple[str, float], tuple[float, AccuracyForecast]]:
    return {(family.name, epsilon): lost(family, epsilon) for family in FAMILIES for epsilon in (1.0, 2.0)}


@pytest.mark.slow
def test_the_bound_holds_in_four_of_five_and_nothing_is_far_off(
    losses: dict[tuple[str, float], tuple[float, AccuracyForecast]],
) -> None:
    usual = [found for (name, _), found in losses.items() if PARTED not in name]
    assert sum(reached <= forecast.lost_at_most for reached, forecast in usual) >= 0.8 * len(usual)
    assert all(abs(reached - forecast.lost) < 0.05 for reached, forecast in usual)


@pytest.mark.slow
def test_where_classes_are_told_apart_without_error_the_loss_is_below_its_own_bound(
    losses: dict[tuple[str, float], tuple[float, AccuracyForecast]],
) -> None:
    parted = [found for (name, _), found in losses.items() if PARTED in name]
    assert len(parted) == 6
    assert all(reached <= forecast.if_parted for reached, forecast in parted)
    assert any(reached > forecast.lost_at_most for reached, forecast in parted)
