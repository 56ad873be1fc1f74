"""Least squares over the levels of a tree, against dense linear algebra."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from study_protocol.queries.tree import MAX_LEAVES, Tree

LEAVES = (2, 5, 32, 33, 40, 100, 101, 250)


def incidence(tree: Tree) -> NDArray[np.float64]:
    """(nodes, leaves) which leaves are under a node, of levels whose nodes have `branching` children."""
    rows: list[NDArray[np.float64]] = []
    for level, size in enumerate(tree.sizes):
        width = tree.branching ** (tree.levels - 1 - level)
        rows += [np.array([float(leaf // width == node) for leaf in range(tree.leaves)]) for node in range(size)]
    return np.array(rows)


@settings(max_examples=60, deadline=None)
@given(leaves=st.integers(2, 300), seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-3, 1.0, 1e5]))
def test_least_squares_are_those_of_dense_numpy(leaves: int, seed: int, scale: float) -> None:
    tree = Tree(leaves)
    matrix = incidence(tree)
    nodes = np.random.default_rng(seed).normal(0, scale, len(matrix))
    expected = np.linalg.lstsq(matrix, nodes, rcond=None)[0]
    assert tree.least_squares(nodes) == pytest.approx(expected, abs=1e-9 * scale)


@pytest.mark.parametrize("leaves", LEAVES)
def test_errors_of_sums_are_those_of_the_dense_inverse(leaves: int) -> None:
    tree = Tree(leaves)
    matrix = incidence(tree)
    covariance = np.linalg.inv(matrix.T @ matrix)
    sums = np.tri(leaves + 1, leaves, -1)
    found = tree.errors()
    assert found.leaves == pytest.approx(np.diag(covariance), rel=1e-9)
    assert found.starts == pytest.approx(np.diag(sums @ covariance @ sums.T), rel=1e-9, abs=1e-12)
    assert found.with_total == pytest.approx(sums @ covariance.sum(axis=1), rel=1e-9, abs=1e-12)
    assert found.total == pytest.approx(covariance.sum(), rel=1e-9)


@pytest.mark.parametrize("leaves", LEAVES)
def test_a_patient_is_in_one_node_of_every_level(leaves: int) -> None:
    tree = Tree(leaves)
    matrix = incidence(tree)
    for leaf in {0, leaves // 2, leaves - 1}:
        nodes = tree.count(np.array([leaf]))
        assert np.array_equal(nodes, matrix[:, leaf])
        assert nodes.sum() == tree.levels


@pytest.mark.parametrize("leaves", LEAVES)
def test_exact_counts_stay_as_they_are(leaves: int) -> None:
    tree = Tree(leaves)
    places = np.random.default_rng(1).integers(0, leaves, 500)
    expected = np.bincount(places, minlength=leaves)
    assert tree.least_squares(tree.count(places).astype(float)) == pytest.approx(expected, abs=1e-9)


def test_one_level_up_to_32_leaves_and_four_at_most() -> None:
    assert [Tree(leaves).levels for leaves in (2, 32, 33, 100, 101, 700, 701, MAX_LEAVES)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert Tree(MAX_LEAVES).branching == 8
