"""Errors of life tables against finite differences; the χ² law against scipy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2

from study_protocol.queries.life_table import LifeTable, chi_square_tail, log_rank

EVENTS = np.array([20.0, 14.0, 9.0, 12.0, 3.0])
CENSORED = np.array([2.0, 11.0, 7.0, 4.0, 8.0])
Floats = NDArray[np.float64]


def table(cells: Floats, std: float = 0.0) -> LifeTable:
    """cells: (11,) five bins' events, five bins' censorings, those followed to the end."""
    return LifeTable(cells[:5], cells[5:10], float(cells[10]), std)


def slopes(read: Callable[[Floats], Floats], cells: Floats) -> Floats:
    """(…, cells) central differences."""
    steps = np.eye(len(cells)) * 1e-4
    return np.stack([(read(cells + step) - read(cells - step)) / 2e-4 for step in steps], axis=-1)


def test_the_noise_of_survival_is_that_of_its_slopes() -> None:
    cells = np.array([*EVENTS, *CENSORED, 30.0])
    jacobian = slopes(lambda changed: table(changed).survival.raw, cells)
    assert table(cells, 1.7).survival.dp_error == pytest.approx(1.7 * np.linalg.norm(jacobian, axis=1), rel=1e-6)


def test_the_noise_of_numbers_at_risk_is_that_of_their_cells() -> None:
    cells = np.array([*EVENTS, *CENSORED, 30.0])
    jacobian = slopes(lambda changed: table(changed).at_risk, cells)
    found = table(cells, 1.7).numbers_at_risk().dp_error
    assert found == pytest.approx(1.7 * np.linalg.norm(jacobian, axis=1), rel=1e-6)


def test_the_log_rank_test_divides_by_the_variance_of_noise_and_sampling_together() -> None:
    """statistic = excess² / (sampling + noise): the noise's part is that of the excess's slopes in all cells."""
    cells = np.array([*EVENTS, *CENSORED, 30.0, *(0.6 * EVENTS), *CENSORED, 45.0])

    def excess(both: Floats) -> Floats:
        first, second = both[:11], both[11:]
        at_risk = [
            np.array([(one[i:5].sum() + one[5 + i : 10].sum() + one[10]) for i in range(5)]) for one in (first, second)
        ]
        expected = (first[:5] + second[:5]) * at_risk[0] / (at_risk[0] + at_risk[1])
        return np.array([(first[:5] - expected).sum()])

    square = float(excess(cells)[0]) ** 2
    exact, noised = (log_rank([table(cells[:11], std), table(cells[11:], std)]) for std in (0.0, 1.7))
    expected = 1.7**2 * float((slopes(excess, cells) ** 2).sum())
    assert square / noised.statistic - square / exact.statistic == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("degrees", range(1, 12))
def test_the_tail_of_chi_square_is_scipys(degrees: int) -> None:
    for value in (0.0, 1e-9, 0.3, 4.0, 30.0, 300.0):
        assert chi_square_tail(value, degrees) == pytest.approx(chi2.sf(value, degrees), rel=1e-12)


def test_what_too_few_are_at_risk_for_is_unknown() -> None:
    found = LifeTable(EVENTS, CENSORED, 4.0, 4.0).survival
    unknown = np.isnan(found.estimate)
    # 94, 72, 47, 31, 15 are at risk, with noise of 13.3, 12, 10.6, 8.9, 6.9.
    assert unknown.tolist() == [False, False, False, False, False, True]
    assert found.low[unknown].tolist() == [0]
    assert found.high[unknown].tolist() == [1]
    nobody = LifeTable(np.zeros(5), np.zeros(5), 0.0, 0.0)
    assert np.isnan(log_rank([nobody, nobody]).p_value)
