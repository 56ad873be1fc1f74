"""Sets of synthetic records, and intervals from their estimates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from study_protocol.study.queries import PublishedAnswer
from synthesis.chain import Chain, follow
from synthesis.model.arithmetic import RandomWords
from synthesis.model.noised import Noised, NoisedTable
from synthesis.sets import combined, drawn_again, sets_of
from tests.factories.synthesis import answered, section


def _chain(patients: int = 6000, seed: int = 1, std: float = 2.0) -> Chain:
    synthesis, found = section(rows=4000), dict[str, PublishedAnswer]()
    while (chain := follow(synthesis, found.get)).document is not None:
        found[chain.document.digest()] = answered(chain.document, patients, seed, std)
    return chain


def test_an_interval_is_that_of_student() -> None:
    # 1, 2, 3, 4: mean 2.5, variance 5/3, t of 3 degrees at 97.5 % is 3.18245 (printed tables).
    found = combined([1, 2, 3, 4])
    assert (float(found.estimate), found.freedom) == (2.5, 3)
    assert float(found.standard_error) == pytest.approx(((1 + 1 / 4) * 5 / 3) ** 0.5)
    assert float(found.high - found.estimate) == pytest.approx(3.18245 * float(found.standard_error), rel=1e-5)


def test_vectors_are_combined_entry_by_entry() -> None:
    values = np.random.default_rng(0).normal(size=(10, 3))
    found = combined(values, confidence=0.9)
    for place in range(3):
        single = combined(values[:, place], confidence=0.9)
        assert (found.low[place], found.high[place]) == pytest.approx((float(single.low), float(single.high)))


@pytest.mark.parametrize(
    ("estimates", "confidence", "words"),
    [
        ([1.0], 0.95, "at least two sets"),
        (1.0, 0.95, "at least two sets"),
        ([1.0, float("nan")], 0.95, "not a finite number"),
        ([1.0, 2.0], 1.0, "between 0 and 1"),
    ],
)
def test_what_gives_no_interval_is_refused(estimates: Sequence[float], confidence: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        combined(estimates, confidence)


def test_a_set_is_the_same_however_many_there_are() -> None:
    chain = _chain()
    first, second = sets_of(section(rows=4000), chain, [1, 2])
    assert np.array_equal(second, next(sets_of(section(rows=4000), chain, [2])))
    assert not np.array_equal(first, second)


def test_tables_are_drawn_with_the_variance_of_patients_and_noise() -> None:
    shares, patients, std = np.array([[0.5, 0.2], [0.1, 0.2]]), 1000, 12.0
    records = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], (shares.ravel() * 2000).astype(int), axis=0)
    noised = Noised((2, 2), 1, {}, {0: NoisedTable(shares * patients, std)}, {}, {})
    drawn = np.array([drawn_again(noised, records, RandomWords(3, number)).columns[0].counts for number in range(600)])
    assert np.allclose(drawn.mean(axis=0), shares * patients, atol=4 * 20 / 600**0.5)
    # Of a multinomial count, and of the noise. The covariance of two cells is the multinomial's alone.
    assert np.allclose(drawn.var(axis=0), patients * shares * (1 - shares) + std**2, rtol=0.25)
    covariance = np.cov(drawn[:, 0, 0], drawn[:, 1, 1])[0, 1]
    assert covariance == pytest.approx(-patients * 0.5 * 0.2, rel=0.35)
