"""Canaries: in the study's own columns, different from one another, and dealt out only where their coin says so."""

from __future__ import annotations

import numpy as np

from simulation.audit.canaries import candidates, chosen, with_canaries
from simulation.audit.releases import RecordGradients
from simulation.engine import initial_weights
from tests.factories.hospitals import records
from tests.simulation.audit.studies import study


def test_candidates_have_the_columns_of_different_patients() -> None:
    attacked, table = study(), records(40)
    pool = candidates(attacked.task, table, 1, 10, seed=1)
    assert len(pool) == 40
    own = attacked.task.dataset(table).inputs
    for column in range(own.shape[1]):
        assert set(np.asarray(pool.inputs)[:, column]) <= set(np.asarray(own)[:, column])
    assert not np.array_equal(np.sort(np.asarray(pool.inputs), axis=0)[:, 0], np.asarray(pool.inputs)[:, 0])


def test_no_more_are_chosen_than_have_independent_gradients() -> None:
    attacked = study()
    gradients = RecordGradients(attacked.task, "logistic-regression", grouped=False)
    weights = initial_weights(attacked.settings, 1, attacked.task)
    pool = candidates(attacked.task, records(40), 1, 10, seed=1)
    taken = chosen(pool, gradients, weights, 1.0, 10)
    values = gradients.of(taken, weights, 1.0)
    assert 1 < len(taken) <= values.shape[1]
    assert np.linalg.matrix_rank(values) == len(taken)


def test_canaries_whose_coin_says_in_are_dealt_out_to_the_first_clients() -> None:
    attacked = study()
    planted = candidates(attacked.task, records(40), 1, 1, seed=1)
    inside = np.array([True, False, True, True])
    whole = with_canaries(attacked.population, planted, inside, 2)
    added = [np.setdiff1d(new, old) for new, old in zip(whole.rows, attacked.population.rows, strict=True)]
    start = len(attacked.population.dataset)
    assert sorted(np.concatenate(added).tolist()) == [start, start + 2, start + 3]
    assert all(len(rows) == 0 for rows in added[2:])
