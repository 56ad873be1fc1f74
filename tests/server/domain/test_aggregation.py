from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import kstest

from client_sdk.protocol.randomness.coins import DiscreteGaussianNoise
from client_sdk.protocol.wire.tensors import UPDATE, Array, spec_of
from server.domain.aggregation import NotFinite, Sum, average, require_finite
from server.domain.mechanism import CentralNoise

MODEL: dict[str, Array] = {"a": np.zeros((300, 7), np.float32), "b": np.zeros(5, np.float32)}
SPEC = spec_of(MODEL)


def updates(count: int, scale: float = 1.0) -> list[dict[str, Array]]:
    rng = np.random.default_rng(11)
    return [
        {UPDATE + name: (scale * rng.normal(size=array.shape)).astype(np.float32) for name, array in MODEL.items()}
        for _ in range(count)
    ]


def test_a_plain_sum_is_the_sum() -> None:
    given = updates(5)
    total = Sum(SPEC, None)
    for update in given:
        total.add(update.items())
    for name, values in total.result().items():
        exact = [math.fsum(column) for column in zip(*(u[UPDATE + name].ravel() for u in given), strict=True)]
        np.testing.assert_allclose(values.ravel(), exact, rtol=1e-12, atol=1e-12)


def test_a_sum_under_central_noise_is_exact_in_any_order() -> None:
    noise = CentralNoise(100.0, 1.0, 2105)
    given = updates(4)
    results = []
    for order in itertools.permutations(given):
        total = Sum(SPEC, noise)
        for update in order:
            total.add(update.items())
        results.append(total.result())
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
    noise = CentralNoise(1.0, 3.0, 2105)
    total = Sum(SPEC, noise)
    total.add_noise(DiscreteGaussianNoise().of(1))
    drawn = np.concatenate([values.ravel() for values in total.result().values()])
    # The grid is 1e-6 of the noise: the continuous law cannot be told apart. False alarm 1e-9.
    assert kstest(drawn / noise.std, "norm").pvalue > 1e-9
    assert drawn.size == 2105


def test_without_a_mechanism_nothing_is_added() -> None:
    def no_draw(std: float, size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        raise AssertionError

    total = Sum(SPEC, None)
    total.add_noise(no_draw)
    assert not total.result()["a"].any()


def test_an_average_divides_by_the_public_constant() -> None:
    assert average({"x": np.array([1.0, 2.0])}, 4.0)["x"].tolist() == [0.25, 0.5]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nothing_that_is_not_finite_gets_through(value: float) -> None:
    with pytest.raises(NotFinite):
        require_finite({"fine": np.ones(3), "broken": np.array([0.0, value])})


def test_a_sum_beyond_the_grid_is_refused_before_noise_is_drawn() -> None:
    total = Sum({"b": ((1,), "float32")}, CentralNoise(1e-6, 1.0, 1))
    total.add([(UPDATE + "b", np.array([3e38], np.float32))])
    with pytest.raises(NotFinite, match="grid"):
        total.add_noise(DiscreteGaussianNoise().of(1))
