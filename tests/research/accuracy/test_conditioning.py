"""Other conditionings of the step: what their maps do to the second moments, and that a table has a number for each."""

from __future__ import annotations

import numpy as np
import pytest

from research.accuracy.conditioning import (
    WAYS,
    by_matrix,
    noised_moments,
    reached,
    row,
    second_moments,
    whitening,
)
from research.accuracy.defaults_data import SiteSplit, TableCase

RANDOM = np.random.default_rng(2)
INPUTS = np.column_stack([RANDOM.normal(size=(400, 3)) @ RANDOM.normal(size=(3, 3)), np.ones(400)])


def _split(seed: int) -> SiteSplit:
    random = np.random.default_rng(seed)
    inputs = np.column_stack([random.uniform(0, 1, (400, 2)), np.ones(400)])
    labels = (inputs[:, 0] > 0.5).astype(np.int64)
    return SiteSplit(inputs[:300], labels[:300], np.arange(300) % 3, inputs[300:], labels[300:])


CASE = TableCase("made", "made", "one column decides", 2, 2, _split)


def test_whitened_records_have_equal_moments_in_all_directions() -> None:
    moments = second_moments(INPUTS)
    matrix = whitening(moments, 0.0)
    np.testing.assert_allclose(matrix @ moments @ matrix, np.eye(4), atol=1e-9)
    ridged = np.linalg.eigvalsh(matrix_of := whitening(np.diag([4.0, 0.0, -1.0]), 0.25))
    assert matrix_of == pytest.approx(np.diag([1 / 4.25**0.5, 2.0, 2.0]))
    assert ridged.max() == pytest.approx(2)


def test_a_map_leaves_the_mean_square_length_as_it_is() -> None:
    mapped = by_matrix(INPUTS, whitening(second_moments(INPUTS), 0.1))(INPUTS)
    assert np.linalg.norm(mapped) == pytest.approx(np.linalg.norm(INPUTS))


def test_noised_moments_are_symmetric_and_their_noise_has_the_norm_that_is_said() -> None:
    exact, nothing = noised_moments(INPUTS, 0.0, RANDOM)
    noised, norm = noised_moments(INPUTS, 5.0, RANDOM)
    assert nothing == 0
    np.testing.assert_array_equal(noised, noised.T)
    wide = np.column_stack([RANDOM.normal(size=(500, 150)), np.ones(500)])
    noise = noised_moments(wide, 5.0, RANDOM)[0] - noised_moments(wide, 0.0, RANDOM)[0]
    assert np.abs(np.linalg.eigvalsh(noise)).max() == pytest.approx(noised_moments(wide, 5.0, RANDOM)[1], rel=0.15)
    assert np.abs(noised - exact).max() < 3 * norm


def test_equal_lengths_are_of_each_record_by_itself() -> None:
    mapped = WAYS["equal lengths"].inputs(INPUTS, RANDOM)
    np.testing.assert_allclose(mapped(INPUTS)[:1], mapped(INPUTS[:1]))
    np.testing.assert_allclose(np.linalg.norm(mapped(INPUTS), axis=1), 2)


def test_a_row_has_the_accuracy_of_every_way() -> None:
    found = row(CASE, seeds=1)
    assert list(found) == list(WAYS)
    assert found["as encoded"] == pytest.approx(reached(CASE, WAYS["as encoded"], 0), abs=1e-4)
    assert all(0.4 < value <= 1 for value in found.values())
