"""Covariances and correlations: those of numpy without noise, possible ones under noise."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from study_protocol.queries import second_moments
from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.covariance import moments_of, sum_of_products, triangle
from study_protocol.queries.variables import Range
from tests.factories.questions import DOCUMENTS, answer_without_noise, clipped, column, patients, question

X, Y, Z = ({"column": name, "low": -width, "high": width} for name, width in (("x", 4), ("y", 8), ("z", 4)))


def test_covariances_are_those_of_numpy() -> None:
    columns = patients(3000)
    found = answer_without_noise(question(DOCUMENTS["covariance"], noise_multiplier=0.001), columns)
    complete = clipped(columns).dropna().to_numpy()
    upper, above = np.triu_indices(3), np.triu_indices(3, 1)
    assert column(found, "covariance") == pytest.approx(np.cov(complete.T)[upper], rel=1e-6)
    assert column(found, "correlation") == pytest.approx(np.corrcoef(complete.T)[above], rel=1e-6)
    assert column(found, "mean") == pytest.approx(complete.mean(axis=0), rel=1e-8)
    assert column(found, "patients") == pytest.approx([len(complete)], rel=1e-9)


def test_covariances_shown_are_possible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 patients under noise: no combination of columns has a negative variance, no correlation passes 1.

    A correlation of a column whose variance may be noise is not shown.
    """
    monkeypatch.setattr(second_moments, "SIMULATIONS", 500)
    asked = question({"kind": "covariance", "numbers": [X, Y, Z]})
    source = np.random.default_rng(1)
    x, z = source.normal(0.5, 1, (2, 600))
    y = 1 + 1.5 * x - 0.5 * z + source.normal(0, 1, 600)
    columns = {"x": x[:30], "y": y[:30], "z": z[:30]}
    spacing = asked.grid().spacing
    shown, related = 0, 0
    for std, seed in itertools.product((2.0, 0.1), range(40)):
        noise = np.random.default_rng(seed).normal(0, std, asked.cells)
        answer = asked.answer(NoisedSum(asked.total(columns, spacing) * spacing + noise, std, seed))
        found, correlations = column(answer, "covariance"), column(answer, "correlation")
        if np.isnan(found).any():
            continue
        shown += 1
        matrix = np.zeros((3, 3))
        matrix[np.triu_indices(3)] = found
        matrix += np.triu(matrix, 1).T
        assert np.linalg.eigvalsh(matrix)[0] >= -1e-9 * np.trace(matrix)
        known = correlations[~np.isnan(correlations)]
        related += len(known)
        assert (np.abs(known) <= 1).all()
    assert shown > 5
    assert related > 5


def test_one_patient_is_a_vector_of_products_whose_norm_is_that_of_its_numbers() -> None:
    """Middles of both ranges: only the 1 of u = (1, 0, 0)/√3 is left. Ends of both: u·uᵀ has norm 1."""
    numbers = (Range(column="x", low=-4, high=4), Range(column="y", low=0, high=10))
    step = 2.0**-30
    for x, y, norm in ((0.0, 5.0, 1 / 3), (4.0, 10.0, 1.0), (-9.0, 99.0, 1.0)):
        one = {"x": np.array([x]), "y": np.array([y])}
        vector = sum_of_products(numbers, one, np.ones(1, bool), step) * step
        assert np.linalg.norm(vector) == pytest.approx(norm, rel=1e-7)
        assert np.linalg.norm(vector) <= 1


def test_moments_are_read_from_the_vector_that_stands_for_them() -> None:
    """A patient (x, y) scaled to [-1, 1] contributes the outer product of (1, x, y)."""
    numbers = (Range(column="x", low=-4, high=4), Range(column="y", low=0, high=10))
    columns = {"x": np.array([2.0, -4.0, np.nan]), "y": np.array([5.0, 7.5, 1.0])}
    step = 2.0**-30
    total = sum_of_products(numbers, columns, np.ones(3, bool), step) * step
    rows = np.array([[1, 0.5, 0.0], [1, -1.0, 0.5]])
    found = moments_of(NoisedSum(total, 0.25, 1), 2)
    assert found.matrix == pytest.approx(rows.T @ rows, abs=1e-7)
    # The diagonal of u·uᵀ is divided by 3, the rest by 3/√2.
    assert np.diagonal(found.noise) == pytest.approx([0.75] * 3)
    assert found.noise[0, 1] == pytest.approx(0.75 / np.sqrt(2))
    assert triangle(2) == len(total) == 6
