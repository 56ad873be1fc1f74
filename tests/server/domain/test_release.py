from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from client_sdk.protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from client_sdk.protocol.study.training import ServerOptimiser, Training
from client_sdk.protocol.wire.tensors import UPDATE, Array, decode, encode, spec_of
from server.domain.admission import CentralNoise
from server.domain.release import (
    NotFinite,
    State,
    Sum,
    average,
    begin,
    from_tensors,
    noised_sum,
    released,
    require_finite,
    server_step,
    state_spec,
    to_tensors,
)
from tests.factories.settings import settings

MODEL: dict[str, Array] = {"a": np.zeros((300, 7), np.float32), "b": np.zeros(5, np.float32)}
SPEC = spec_of(MODEL)
WEIGHTS = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
STEP_SPEC = spec_of(WEIGHTS)
STEPS = 6


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

    noise = CentralNoise(200.0, chosen.privacy.noise_multiplier, 2105)
    total = noised_sum(chosen, SPEC, (update.items() for update in given), None, draw)
    assert set(drawn) == {noise.units}
    weights, state = released(chosen, MODEL, {name: values.copy() for name, values in total.items()}, State(0, {}, {}))
    for name, values in weights.items():
        exact = sum(update[UPDATE + name].astype(np.float64) for update in given) + noise.spacing
        np.testing.assert_allclose(total[name], exact, atol=2 * noise.spacing)
        np.testing.assert_allclose(values, exact / 4.0, rtol=1e-6, atol=noise.spacing)
    assert state.steps == 1


def training(algorithm: Literal["fedsgd", "fedavg"], **optimiser: Any) -> Training:
    return Training(
        task="logistic", algorithm=algorithm, local_steps=1, optimiser=ServerOptimiser.model_validate(optimiser)
    )


def gradients() -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    rng = np.random.default_rng(3)
    for _ in range(STEPS):
        yield rng.normal(size=(3, 4))


def _sgd(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3)


def _momentum(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.8)


def _adam(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.3, betas=(0.8, 0.95), eps=1e-3)


@pytest.mark.parametrize(
    ("optimiser", "theirs"),
    [
        ({"name": "plain", "learning_rate": 0.3}, _sgd),
        ({"name": "momentum", "learning_rate": 0.3, "momentum": 0.8}, _momentum),
        (
            {"name": "adam", "learning_rate": 0.3, "momentum": 0.8, "second_momentum": 0.95, "stability": 1e-3},
            _adam,
        ),
    ],
)
def test_steps_agree_with_torch(
    optimiser: dict[str, Any], theirs: Callable[[list[torch.Tensor]], torch.optim.Optimizer]
) -> None:
    chosen = training("fedsgd", **optimiser)
    parameter = torch.tensor(WEIGHTS["w"].astype(np.float64), requires_grad=True)
    stepper = theirs([parameter])
    weights, state = WEIGHTS, begin(chosen.optimiser, STEP_SPEC)
    for gradient in gradients():
        parameter.grad = torch.tensor(gradient)
        stepper.step()
        weights, state = server_step(chosen, weights, {"w": gradient}, state)
        # Weights and moments are kept in float32, torch's here in float64.
        np.testing.assert_allclose(weights["w"], parameter.detach().numpy(), rtol=3e-5, atol=3e-6)
    assert state.steps == STEPS


def test_differences_of_weights_are_followed_not_opposed() -> None:
    moved, _ = server_step(training("fedavg"), WEIGHTS, {"w": np.full((3, 4), 0.5)}, State(0, {}, {}))
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] + 0.5)
    moved, _ = server_step(training("fedsgd"), WEIGHTS, {"w": np.full((3, 4), 0.5)}, State(0, {}, {}))
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] - 0.5)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_a_saved_state_goes_on_where_it_stopped(name: str) -> None:
    chosen = training("fedsgd", name=name)
    first, second = list(gradients())[:2]
    _, state = server_step(chosen, WEIGHTS, {"w": first}, begin(chosen.optimiser, STEP_SPEC))
    saved = encode(to_tensors(state))
    restored = from_tensors(decode(saved, state_spec(chosen.optimiser, STEP_SPEC)))
    live, _ = server_step(chosen, WEIGHTS, {"w": second}, state)
    again, _ = server_step(chosen, WEIGHTS, {"w": second}, restored)
    np.testing.assert_array_equal(live["w"], again["w"])


def test_a_step_out_of_float32_is_refused() -> None:
    with pytest.raises(NotFinite):
        server_step(training("fedavg"), WEIGHTS, {"w": np.full((3, 4), 1e300)}, State(0, {}, {}))


def test_a_median_or_a_trimmed_mean_takes_the_place_of_the_mean() -> None:
    """One update of 1e30 and one of −1e30 among honest ones; what is released does not know of them."""
    given = updates(5)
    wild = [{name: np.full_like(array, value) for name, array in given[0].items()} for value in (1e30, -1e30)]
    nothing: Any = None
    for robustness, kept in (
        ({"aggregation": "median"}, lambda rows: np.median(rows, axis=0)),
        ({"aggregation": "trimmed-mean", "trim": 2}, lambda rows: np.sort(rows, axis=0)[2:-2].mean(0)),
    ):
        chosen = settings(robustness=robustness, expected_clients=4.0, schedule={"min_clients": 5})
        everybody = [*given, *wild]
        total = noised_sum(chosen, SPEC, (sorted(update.items()) for update in everybody), None, nothing)
        for name, values in average(total, 4.0).items():
            rows = np.stack([update[UPDATE + name] for update in everybody]).astype(np.float64)
            np.testing.assert_allclose(values, kept(rows), rtol=1e-12)
            assert np.abs(values).max() < 10
    # An even number: the mean of the middle two.
    chosen = settings(robustness={"aggregation": "median"}, expected_clients=1.0, schedule={"min_clients": 3})
    total = noised_sum(chosen, SPEC, (sorted(update.items()) for update in given[:4]), None, nothing)
    expected = np.median([update[UPDATE + "b"].astype(np.float64) for update in given[:4]], axis=0)
    np.testing.assert_allclose(total["b"], expected, rtol=1e-12)
