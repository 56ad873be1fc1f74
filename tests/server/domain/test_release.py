from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from server.domain.admission import mechanism
from server.domain.optimiser import begin, released
from server.domain.release import NotFinite, noised_sum, rescaling_factor
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import UPDATE, Array, spec_of
from tests.factories.settings import settings

MODEL: dict[str, Array] = {"a": np.zeros((300, 7), np.float32), "b": np.zeros(5, np.float32)}
SPEC = spec_of(MODEL)


def updates(count: int, scale: float = 1.0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(11)
    return [
        {UPDATE + name: (scale * rng.normal(size=array.shape)).astype(np.float32) for name, array in MODEL.items()}
        for _ in range(count)
    ]


def nothing(std: float, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.zeros(size, np.int64)


def never(std: float, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    raise AssertionError


def central(**options: Any) -> StudySettings:
    return settings(scheme="client", clip_norm=100.0, **options)


def test_a_plain_sum_is_the_sum_and_draws_nothing() -> None:
    given = updates(5)
    for name, values in noised_sum(settings(), SPEC, [Arrays(update) for update in given], None, never).items():
        exact = [math.fsum(column) for column in zip(*(u[UPDATE + name].ravel() for u in given), strict=True)]
        np.testing.assert_allclose(values.ravel(), exact, rtol=1e-12, atol=1e-12)


def test_a_sum_under_central_noise_is_exact_in_any_order() -> None:
    noise = mechanism(central(), SPEC)
    assert noise is not None
    given = updates(4)
    results = [
        noised_sum(central(), SPEC, [Arrays(update) for update in order], None, nothing)
        for order in itertools.permutations(given)
    ]
    for other in results[1:]:
        for name, values in results[0].items():
            np.testing.assert_array_equal(values, other[name])
    # And every number lies on the grid.
    units = results[0]["a"] / noise.spacing
    np.testing.assert_array_equal(units, np.rint(units))
    np.testing.assert_allclose(
        results[0]["a"], sum(u[UPDATE + "a"].astype(np.float64) for u in given), atol=2.01 * noise.spacing
    )


def test_the_noise_has_its_standard_deviation() -> None:
    noise = mechanism(central(), SPEC)
    assert noise is not None
    found = noised_sum(central(), SPEC, [], None, DiscreteGaussianNoise().of(1))
    drawn = np.concatenate([values.ravel() for values in found.values()])
    # The grid is 1e-6 of the noise: the continuous law cannot be told apart. False alarm 1e-9.
    assert kstest(drawn / noise.std, "norm").pvalue > 1e-9
    assert drawn.size == 2105


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_that_is_not_finite_gets_through(value: float) -> None:
    broken = {UPDATE + name: np.full_like(array, value) for name, array in MODEL.items()}
    for chosen in (settings(), central()):
        with pytest.raises(NotFinite):
            noised_sum(chosen, SPEC, [Arrays(broken)], None, nothing)


def test_a_sum_beyond_the_grid_is_refused_before_noise_is_drawn() -> None:
    update = Arrays({UPDATE + "b": np.array([3e38], np.float32)})
    with pytest.raises(NotFinite, match="grid"):
        noised_sum(settings(scheme="client", clip_norm=1e-6), {"b": ((1,), "float32")}, [update], None, never)


def test_a_round_from_its_updates_to_its_model() -> None:
    """Sum, noise and average are what the server optimiser steps along, with nothing of a file or a database."""
    chosen, given = (
        settings(scheme="client", clip_norm=200.0, expected_clients=4.0, training={"algorithm": "fedavg"}),
        updates(3),
    )
    drawn: list[float] = []

    def draw(std: float, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        drawn.append(std)
        return np.ones(size, np.int64)

    noise = mechanism(chosen, SPEC)
    assert noise is not None
    total = noised_sum(chosen, SPEC, [Arrays(update) for update in given], None, draw)
    assert set(drawn) == {noise.units}
    weights, state = released(chosen, Arrays(MODEL), Arrays(total), begin())
    for name, values in weights.items():
        exact = sum(update[UPDATE + name].astype(np.float64) for update in given) + noise.spacing
        np.testing.assert_allclose(total[name], exact, atol=2 * noise.spacing)
        np.testing.assert_allclose(values, exact / 4.0, rtol=1e-6, atol=noise.spacing)
    assert state.steps == 1


def test_a_median_or_a_trimmed_mean_takes_the_place_of_the_mean() -> None:
    """One update of 1e30 and one of −1e30 among honest ones; what is released does not know of them."""
    given = updates(5)
    wild = [{name: np.full_like(array, value) for name, array in given[0].items()} for value in (1e30, -1e30)]
    for robustness, kept in (
        ({"aggregation": "median"}, lambda rows: np.median(rows, axis=0)),
        ({"aggregation": "trimmed-mean", "trim": 2}, lambda rows: np.sort(rows, axis=0)[2:-2].mean(0)),
    ):
        chosen = settings(robustness=robustness, expected_clients=4.0, schedule={"min_clients": 5})
        everybody = [*given, *wild]
        total = noised_sum(chosen, SPEC, [Arrays(update) for update in everybody], None, nothing)
        for name, values in ((name, values / 4.0) for name, values in total.items()):
            rows = np.stack([update[UPDATE + name] for update in everybody]).astype(np.float64)
            np.testing.assert_allclose(values, kept(rows), rtol=1e-12)
            assert np.abs(values).max() < 10
    # An even number: the mean of the middle two.
    chosen = settings(robustness={"aggregation": "median"}, expected_clients=1.0, schedule={"min_clients": 3})
    total = noised_sum(chosen, SPEC, [Arrays(update) for update in given[:4]], None, nothing)
    expected = np.median([update[UPDATE + "b"].astype(np.float64) for update in given[:4]], axis=0)
    np.testing.assert_allclose(total["b"], expected, rtol=1e-12)


def test_what_is_too_long_is_drawn_back_and_nothing_else_is_touched() -> None:
    assert rescaling_factor([9.0, 16.0], 5.0) is None
    assert rescaling_factor([9.0, 16.0], 0.5) == 0.1
    # Left for whoever refuses it.
    assert rescaling_factor([math.nan], 1.0) is None
