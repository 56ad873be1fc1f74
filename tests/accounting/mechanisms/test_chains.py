"""Chains of neighbours: against mechanisms whose chain is known in closed form."""

from __future__ import annotations

import math

import pytest

from accounting.mechanisms.chains import chained_delta, chained_epsilon


@pytest.mark.parametrize("links", [1, 2, 5])
def test_pure_privacy_adds_up(links: int) -> None:
    assert chained_epsilon(lambda _: 0.3, 1e-6, links) == pytest.approx(0.3 * links, rel=1e-5)
    assert chained_epsilon(lambda _: 0.3, 1e-6, links) >= 0.3 * links


@pytest.mark.parametrize("links", [2, 4])
def test_delta_is_taken_in_every_link_with_its_factor(links: int) -> None:
    epsilon, link = 1.2, 1.2 / links
    expected = 1e-3 * sum(math.exp(i * link) for i in range(links))
    assert chained_delta(lambda value: 1e-3 if value == link else 1.0, epsilon, links) == pytest.approx(expected)
    assert chained_delta(lambda _: 0.9, epsilon, links) == 1.0


def test_both_readings_are_inverse() -> None:
    def delta(epsilon: float) -> float:
        return math.exp(-5 * epsilon)

    found = chained_epsilon(lambda value: -math.log(value) / 5, 1e-4, 3)
    assert chained_delta(delta, found, 3) == pytest.approx(1e-4, rel=1e-3)
    assert chained_delta(delta, found, 3) <= 1e-4


def test_without_an_answer_it_is_infinite() -> None:
    assert chained_epsilon(lambda _: math.inf, 1e-4, 2) == math.inf
    assert chained_epsilon(lambda _: 650.0, 1e-4, 3) == math.inf


def test_factors_beyond_every_float_do_not_hide_a_small_delta() -> None:
    # e^1333 times 1e-320 is far above 1.
    assert chained_delta(lambda _: 1e-320, 2000.0, 3) == 1.0
