from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch

from server.domain.optimiser import OptimiserState, begin, new_state, released, restored, state_spec
from server.domain.release import NotFinite, OutOfBounds
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays, encode_pieces
from study_protocol.wire.tensors import Array, decode, spec_of
from tests.factories.settings import settings

WEIGHTS = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
STEP_SPEC = spec_of(WEIGHTS)
STEPS = 6


def step(
    chosen: StudySettings, weights: dict[str, Array], total: Array, state: OptimiserState
) -> tuple[dict[str, Array], OptimiserState]:
    return released(chosen, Arrays(weights), Arrays({"w": total}), state)


def study(algorithm: Literal["fedsgd", "fedavg"], **optimiser: Any) -> StudySettings:
    """`expected_clients` is 1: the sum is the average."""
    return settings(expected_clients=1.0, training={"algorithm": algorithm, "local_steps": 1, "optimiser": optimiser})


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
    chosen = study("fedsgd", **optimiser)
    parameter = torch.tensor(WEIGHTS["w"].astype(np.float64), requires_grad=True)
    stepper = theirs([parameter])
    weights, state = dict(WEIGHTS), begin()
    for gradient in gradients():
        parameter.grad = torch.tensor(gradient)
        stepper.step()
        weights, state = step(chosen, weights, gradient, state)
        # Weights and moments are kept in float32, torch's here in float64.
        np.testing.assert_allclose(weights["w"], parameter.detach().numpy(), rtol=3e-5, atol=3e-6)
    assert state.steps == STEPS


def test_differences_of_weights_are_followed_not_opposed() -> None:
    moved, _ = step(study("fedavg"), WEIGHTS, np.full((3, 4), 0.5), begin())
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] + 0.5)
    moved, _ = step(study("fedsgd"), WEIGHTS, np.full((3, 4), 0.5), begin())
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] - 0.5)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_a_saved_state_goes_on_where_it_stopped(name: str) -> None:
    chosen = study("fedsgd", name=name)
    first, second = list(gradients())[:2]
    _, state = step(chosen, WEIGHTS, first, begin())
    assert state.moments is not None
    spec = state_spec(chosen.training.optimiser, STEP_SPEC)
    saved = b"".join(encode_pieces(spec, new_state(chosen, Arrays(WEIGHTS), Arrays({"w": first}), begin())))
    live, _ = step(chosen, WEIGHTS, second, state)
    again, _ = step(chosen, WEIGHTS, second, restored(Arrays(decode(saved, spec))))
    np.testing.assert_array_equal(live["w"], again["w"])


def test_a_step_out_of_float32_is_refused() -> None:
    with pytest.raises(NotFinite):
        step(study("fedavg"), WEIGHTS, np.full((3, 4), 1e300), begin())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_model_beyond_the_bound_of_weights_is_refused(sign: float) -> None:
    largest = {"w": np.full((3, 4), sign * MAX_WEIGHT, np.float32)}
    moved, _ = step(study("fedavg"), largest, np.zeros((3, 4)), begin())
    np.testing.assert_array_equal(moved["w"], largest["w"])
    one_more = np.zeros((3, 4))
    one_more[2, 3] = sign * 2**12
    with pytest.raises(OutOfBounds, match="the new w "):
        step(study("fedavg"), largest, one_more, begin())


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_an_averaging_changes_no_round(name: str) -> None:
    # It is taken of what was released: the next round trains from the model itself, and nothing more is kept for it.
    plain = study("fedsgd", name=name)
    averaged = study("fedsgd", name=name, averaging={"name": "tail", "share": 0.5})
    one, other, first, second = WEIGHTS, WEIGHTS, begin(), begin()
    for total in gradients():
        one, first = step(plain, one, total, first)
        other, second = step(averaged, other, total, second)
        np.testing.assert_array_equal(one["w"], other["w"])
    optimiser = averaged.training.optimiser
    assert state_spec(optimiser, STEP_SPEC) == state_spec(plain.training.optimiser, STEP_SPEC)
