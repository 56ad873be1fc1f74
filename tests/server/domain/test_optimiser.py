from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import pytest
import torch

from client_sdk.protocol.study.training import ServerOptimiser, Training
from client_sdk.protocol.wire.tensors import decode, encode, spec_of
from server.domain.aggregation import NotFinite
from server.domain.optimiser import State, begin, from_tensors, release, state_spec, to_tensors

WEIGHTS = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)}
SPEC = spec_of(WEIGHTS)
STEPS = 6


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
    weights, state = WEIGHTS, begin(chosen.optimiser, SPEC)
    for gradient in gradients():
        parameter.grad = torch.tensor(gradient)
        stepper.step()
        weights, state = release(chosen, weights, {"w": gradient}, state)
        # Weights and moments are kept in float32, torch's here in float64.
        np.testing.assert_allclose(weights["w"], parameter.detach().numpy(), rtol=3e-5, atol=3e-6)
    assert state.steps == STEPS


def test_differences_of_weights_are_followed_not_opposed() -> None:
    moved, _ = release(training("fedavg"), WEIGHTS, {"w": np.full((3, 4), 0.5)}, State(0, {}, {}))
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] + 0.5)
    moved, _ = release(training("fedsgd"), WEIGHTS, {"w": np.full((3, 4), 0.5)}, State(0, {}, {}))
    np.testing.assert_allclose(moved["w"], WEIGHTS["w"] - 0.5)


@pytest.mark.parametrize("name", ["plain", "momentum", "adam"])
def test_a_saved_state_goes_on_where_it_stopped(name: str) -> None:
    chosen = training("fedsgd", name=name)
    first, second = list(gradients())[:2]
    _, state = release(chosen, WEIGHTS, {"w": first}, begin(chosen.optimiser, SPEC))
    saved = encode(to_tensors(state))
    restored = from_tensors(decode(saved, state_spec(chosen.optimiser, SPEC)))
    live, _ = release(chosen, WEIGHTS, {"w": second}, state)
    again, _ = release(chosen, WEIGHTS, {"w": second}, restored)
    np.testing.assert_array_equal(live["w"], again["w"])


def test_a_step_out_of_float32_is_refused() -> None:
    with pytest.raises(NotFinite):
        release(training("fedavg"), WEIGHTS, {"w": np.full((3, 4), 1e300)}, State(0, {}, {}))
