"""Histograms of predicted probabilities: fitted ones that rise, ratios of their cells, areas under curves."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from study_protocol.queries.evaluation.scores import RatioWeights, ScoreHistogram, fit_rising, total
from study_protocol.queries.tree import Tree

# Of four bins from low to high: patients without and with the outcome.
CELLS = np.array([[40.0, 30.0, 20.0, 10.0], [5.0, 10.0, 25.0, 60.0]])
TREE = Tree(4, flat=8)


def histogram(cells: np.ndarray[tuple[int, ...], np.dtype[np.float64]], variance: float = 0.0) -> ScoreHistogram:
    return ScoreHistogram.of(cells, variance, TREE, np.eye(4))


def test_counts_that_rise_stay_and_others_become_the_nearest_rising_ones() -> None:
    assert fit_rising(CELLS[0]).tolist() == CELLS[0].tolist()
    counts = np.array([5.0, -3.0, 4.0, -2.0, 6.0])
    fitted = fit_rising(counts)
    assert fitted.min() >= 0
    assert fitted.sum() == pytest.approx(10)
    aim = np.cumsum(counts)[:-1]
    rising = [{"type": "ineq", "fun": lambda x, i=i: x[i + 1] - x[i]} for i in range(3)]
    nearest = minimize(
        lambda x: ((x - aim) ** 2).sum(), aim, bounds=[(0, 10)] * 4, constraints=rising, tol=1e-12, method="SLSQP"
    )
    assert np.cumsum(fitted)[:-1] == pytest.approx(nearest.x, abs=1e-5)


def test_areas_are_those_of_all_pairs_of_patients() -> None:
    without, having = (np.repeat(np.arange(4), row.astype(int)) for row in CELLS)
    won = (having[:, None] > without).mean()
    tied = (having[:, None] == without).mean()
    precisions = [(having >= score).sum() / ((having >= score).sum() + (without >= score).sum()) for score in having]
    found = histogram(CELLS).areas(np.random.default_rng(1))
    assert found.estimate == pytest.approx([won + tied / 2, won, won + tied, np.mean(precisions)])
    assert (found.low <= found.estimate).all()
    assert (found.estimate <= found.high).all()


def test_without_patients_on_one_side_there_is_no_area() -> None:
    for cells, variance in ((CELLS * [[1], [0]], 0.0), (CELLS, 3000.0)):
        found = histogram(cells, variance).areas(np.random.default_rng(1))
        assert np.isnan(found.estimate).all()
        assert (found.low.tolist(), found.high.tolist()) == ([0] * 4, [1] * 4)


def test_a_share_has_the_errors_of_the_delta_method() -> None:
    """Sensitivity s at the second edge: 85 of 100. The noise v of four cells gives (2v·(1 - s)² + 2v·s²) / 100²."""
    above, below = np.zeros((1, 2, 4)), np.zeros((1, 2, 4))
    above[0, 1, 2:] = 1
    below[0, 1] = 1
    weights, share, variance = RatioWeights(above, below), 0.85, 9.0
    scores = histogram(CELLS, variance)
    found = scores.ratio(weights)
    assert found.estimate == pytest.approx([share])
    noise = variance * (2 * (1 - share) ** 2 + 2 * share**2)
    assert found.dp_error == pytest.approx([np.sqrt(noise) / 100])
    assert found.sampling_error == pytest.approx([np.sqrt(share * (1 - share) / 100)])
    assert scores.patients(weights).tolist() == [100]
    assert total(above, CELLS).tolist() == [85]


def test_counts_of_cells_and_of_all_have_the_noise_of_their_cells() -> None:
    scores = histogram(CELLS, 4.0)
    assert scores.cell_counts().estimate.tolist() == CELLS.ravel().tolist()
    assert scores.cell_counts().dp_error == pytest.approx([2.0] * 8)
    assert scores.in_all().raw.tolist() == [200]
    assert scores.in_all().dp_error == pytest.approx([np.sqrt(8 * 4)])
