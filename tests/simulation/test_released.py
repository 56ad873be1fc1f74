"""The mean of released models, against numpy, while those that count no more are let go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulation.released import Released
from study_protocol.study.training import Averaging


def models(count: int) -> list[dict[str, Any]]:
    draw = np.random.default_rng(1)
    return [{"a": draw.normal(size=(2, 3)).astype(np.float32)} for _ in range(count)]


def taken(averaging: Averaging | None, released: list[dict[str, Any]]) -> Released:
    kept = Released(averaging)
    # A round that failed released none: numbers are not places.
    for place, model in enumerate(released):
        kept.take(2 * place + 1, model)
    return kept


def test_the_tail_is_the_plain_mean_of_the_newest() -> None:
    released = models(7)
    kept = taken(Averaging(name="tail", share=0.5), released)
    assert kept.result is not None
    expected = np.mean([model["a"].astype(np.float64) for model in released[-4:]], axis=0)
    np.testing.assert_allclose(kept.result["a"], expected, rtol=1e-6)
    assert sorted(kept.arrays()) == [f"released/{number}/a" for number in (11, 13, 7, 9)]


def test_an_exponential_mean_weighs_by_age() -> None:
    released = models(5)
    kept = taken(Averaging(name="exponential", decay=0.5), released)
    assert kept.result is not None
    weights = np.array([0.5**age for age in (4, 3, 2, 1, 0)])
    expected = np.average([model["a"].astype(np.float64) for model in released], axis=0, weights=weights)
    np.testing.assert_allclose(kept.result["a"], expected, rtol=1e-6)


def test_without_a_mean_nothing_is_kept() -> None:
    kept = taken(None, models(3))
    assert (kept.result, kept.rounds, kept.arrays()) == (None, [], {})
    assert Released(Averaging(name="tail", share=0.5)).result is None


@pytest.mark.parametrize("averaging", [Averaging(name="tail", share=0.4), Averaging(name="exponential", decay=0.9)])
def test_a_mean_is_gone_on_with_from_what_was_saved(averaging: Averaging) -> None:
    released = models(6)
    whole, first = taken(averaging, released), taken(averaging, released[:4])
    again = Released(averaging)
    again.restore(list(first.rounds), first.arrays() | {"weights/a": np.zeros(1)})
    for place in (4, 5):
        again.take(2 * place + 1, released[place])
    assert again.rounds == whole.rounds
    assert again.result is not None
    assert whole.result is not None
    assert np.array_equal(again.result["a"], whole.result["a"])
