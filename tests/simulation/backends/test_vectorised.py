"""Blocks of linear clients: the SDK's own step before noise, and its charges, for thousands at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from client_sdk.errors import ConfigurationError
from private_learning.tasks import TaskDataset, load
from private_learning.tasks.registry import EXAMPLES
from simulation.backends.base import Loop
from simulation.backends.vectorised import Vectorised
from simulation.engine import Engine, SimulationOutcome
from simulation.population import Population
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import records
from tests.factories.made_up import made_up
from tests.factories.settings import TASK_PARAMETERS, limit, settings

# Noise far below the rounding of a float32 step: what differs is the step itself.
QUIET = 1e-6
WIDE = [limit("client", epsilon=1e20)]
QUIET_RECORDS = [limit("instance", epsilon=1e20)]
FEDAVG = {"algorithm": "fedavg", "local_steps": 3, "learning_rate": 0.3}
MEDIAN = {"aggregation": "median"}
STUDIES: dict[str, tuple[str, dict[str, Any]]] = {
    "client": ("client", {"training": FEDAVG, "limits": WIDE}),
    "client-fedsgd": ("client", {"limits": WIDE}),
    "client-masked": ("client", {"limits": WIDE, "masked": True, "training": FEDAVG}),
    "parallel": ("parallel", {"training": FEDAVG | {"local_optimiser": {"name": "momentum"}}, "limits": QUIET_RECORDS}),
    "parallel-proximal": ("parallel", {"training": FEDAVG | {"proximal": 0.5}, "limits": QUIET_RECORDS}),
    "parallel-median": (
        "parallel",
        {"limits": QUIET_RECORDS, "robustness": {"aggregation": "median"}, "schedule": {"min_clients": 3}},
    ),
    "sequential": ("sequential", {"limits": QUIET_RECORDS}),
    # Some clients' sums are longer than the ball that they are moved to, others not.
    "joint": ("joint", {"limits": [*QUIET_RECORDS, *WIDE], "client_clip_norm": 2.0}),
}


def population(clients: int, seed: int = 0) -> Population:
    task = load("logistic-regression", TASK_PARAMETERS)
    sizes = np.random.default_rng(seed).integers(20, 60, clients)
    # Names of two digits, so that their order is that of the places.
    return Population.of({f"client-{i:02d}": task.dataset(records(int(size), seed=i)) for i, size in enumerate(sizes)})


def study(name: str, clients: int, *, noise: float = QUIET, rate: float = 1.0, **more: Any) -> StudySettings:
    scheme, options = STUDIES[name]
    steps = options.get("training", {}).get("local_steps", 1)
    rounds = 3 * (1 if scheme == "client" else steps)
    chosen: dict[str, Any] = {"noise_multiplier": noise, "sampling_rate": rate, "expected_batch_size": 40.0 * rate}
    chosen |= {"max_steps": rounds, "expected_clients": float(clients), "clip_norm": 0.2}
    return settings(scheme, **{**options, **chosen, **more})


def run(chosen: StudySettings, clients: Population, backend: Any, seed: int = 3) -> SimulationOutcome:
    return Engine(chosen, clients, seed, backend).run()


@pytest.mark.parametrize("name", STUDIES)
def test_before_noise_it_is_the_clients_own_step(name: str) -> None:
    clients = population(7)
    # Masks bear no less noise than this; it is a thousandth of the clip norm's rounding there.
    chosen = study(name, 7, noise=1e-4 if study_is_masked(name) else QUIET)
    one, other = run(chosen, clients, Loop), run(chosen, clients, Vectorised)
    tolerance = 2e-3 if study_is_masked(name) else 1e-6
    for parameter, found in one.weights.items():
        scale = float(np.abs(found).max())
        np.testing.assert_allclose(other.weights[parameter], found, rtol=0, atol=tolerance * scale)
    assert one.statements == other.statements
    assert [(event.kind, event.round) for event in one.events] == [(event.kind, event.round) for event in other.events]


def study_is_masked(name: str) -> bool:
    return settings(STUDIES[name][0], **STUDIES[name][1]).privacy.masking is not None


def test_one_client_at_the_first_weights_is_charged_alike() -> None:
    """Before any noise has moved the weights the two see one model: costs agree but for float32 norms."""
    clients = population(5)
    limits = [limit("instance", epsilon=1e6), limit("instance", "bayesian", epsilon=1e6)]
    chosen = settings("parallel", bayesian=True, limits=limits, max_steps=1, expected_clients=5.0, clip_norm=0.2)
    one, other = run(chosen, clients, Loop), run(chosen, clients, Vectorised)
    (first,), (second,) = (
        [event.body["report"] for event in found.events if event.kind == "settled"] for found in (one, other)
    )
    np.testing.assert_allclose(second["moments"], first["moments"], rtol=1e-4)
    np.testing.assert_allclose(second["filter"], first["filter"], rtol=1e-4)
    assert one.statements[0] == other.statements[0]


@pytest.mark.parametrize("radius", [0.3, 3.0])
def test_sums_in_a_clients_ball_are_charged_as_in_the_loop(radius: float) -> None:
    clients = population(6)
    limits = [limit(level, epsilon=1e6) for level in ("instance", "client")]
    bayesian = {"bayesian": True, "limits": [*limits, limit("client", "bayesian", epsilon=1e6)]}
    whole = {"sampling_rate": 1.0, "expected_batch_size": 40.0, "expected_clients": 6.0, "clip_norm": 0.2}
    chosen = settings("joint", noise_multiplier=0.05, max_steps=1, client_clip_norm=radius, **{**bayesian, **whole})
    one, other = run(chosen, clients, Loop), run(chosen, clients, Vectorised)
    assert [event.body for event in one.events] == [event.body for event in other.events]
    assert one.statements == other.statements


def test_histograms_of_clients_are_those_of_the_loop() -> None:
    clients = population(9)
    limits = [limit("client", epsilon=1e20), limit("client", "bayesian", epsilon=1e20)]
    scheme = {"limits": limits, "bayesian": True, "max_steps": 2, "expected_clients": 9.0, "sampling_rate": 1.0}
    chosen = settings("client", noise_multiplier=0.5, expected_batch_size=40.0, **scheme)
    one, other = run(chosen, clients, Loop), run(chosen, clients, Vectorised)
    assert [event.body for event in one.events] == [event.body for event in other.events]
    assert one.statements == other.statements


@pytest.mark.slow
def test_batches_and_noise_have_the_variance_that_they_should() -> None:
    """The first step of forty clients over sixty seeds, against closed forms of its mean and variance.

    Means to five deviations, deviations of sixty draws to four tenths: false alarms below 10^-5 together.
    """
    count, rate, draws = 40, 0.5, 60
    clients = population(count)
    chosen = study("parallel-median", count, noise=2.0, rate=rate, robustness={}, max_steps=1)
    drawn = np.stack([_flat(run(chosen, clients, Vectorised, seed)) for seed in range(draws)])
    # At weights of zero: sigmoid(0) - y, times the inputs and the bias's one.
    inputs, targets = clients.dataset.inputs.double().numpy(), clients.dataset.targets.numpy()
    records_ = np.concatenate([np.ones((len(inputs), 1)), inputs], axis=1)
    gradients = (0.5 - targets)[:, None] * records_
    clip = chosen.privacy.clip_norm
    gradients *= np.minimum(1.0, clip / np.linalg.norm(gradients, axis=1))[:, None]
    over = chosen.privacy.expected_batch_size * count
    noise = count * (chosen.privacy.noise_multiplier * clip) ** 2
    std = np.sqrt(noise + rate * (1 - rate) * np.square(gradients).sum(axis=0)) / over
    rate_of_server = chosen.training.optimiser.learning_rate
    mean = -rate_of_server * rate * gradients.sum(axis=0) / over
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * std / np.sqrt(draws)).all()
    assert (np.abs(drawn.std(axis=0, ddof=1) / std - 1) < 0.4).all()


def _flat(found: SimulationOutcome) -> np.ndarray:
    return np.concatenate([found.weights["bias"].ravel(), found.weights["weight"].ravel()]).astype(np.float64)


def test_ten_thousand_clients_take_part_at_once() -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    dataset = task.dataset(records(5000))
    rows = np.random.default_rng(1).integers(0, 5000, (10_000, 5))
    clients = Population.split(dataset, [np.unique(row).astype(np.int64) for row in rows])
    chosen = study("parallel", 10_000, noise=1.0, rate=0.5)
    found = Engine(chosen, clients, 5, Vectorised).run()
    assert [round.clients for round in found.rounds] == [10_000] * 3


def test_what_is_not_linear_is_refused_in_words() -> None:
    chosen = settings("parallel", training={"task": "mlp"}, max_steps=1)
    dataset = load("mlp", TASK_PARAMETERS).dataset(records(40))
    assert isinstance(dataset, TaskDataset)
    clients = Population.split(dataset, [np.arange(20), np.arange(20, 40)])
    with pytest.raises(ConfigurationError, match="not one linear layer"):
        Engine(chosen, clients, 0, Vectorised).run()


def test_a_client_whose_model_overflows_is_named() -> None:
    from simulation.local_work import ClientStopped

    clients = population(3)
    chosen = study("client", 3)
    weights = {"weight": np.full((1, 2), np.float32(3e38)), "bias": np.full(1, np.float32(np.inf))}
    for backend in (Loop, Vectorised):
        with pytest.raises(ClientStopped, match="client-00 stopped in round 1"):
            Engine(chosen, clients, 0, backend, weights=weights).run()


LOSSES: dict[str, dict[str, Any]] = {
    "logistic-regression": {"loss": "focal", "class-weights": "1|4"},
    "regression": {"loss": "huber", "delta": 5},
    "multi-label": {},
    "discrete-survival": {"proportional": False},
    "piecewise-exponential": {"proportional": False},
}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_that_it_takes_is_the_clients_own(name: str) -> None:
    parameters = {**EXAMPLES[name], **LOSSES[name]}
    task = load(name, parameters)
    clients = Population.of({f"client-{i}": task.dataset(made_up(task, 30, seed=i)) for i in range(5)})
    chosen = study("parallel", 5, training=FEDAVG | {"task": name, "task_parameters": parameters})
    one, other = run(chosen, clients, Loop), run(chosen, clients, Vectorised)
    # A bias is a difference of gradients that are as large as the weights' own, and has their rounding.
    scale = max(float(np.abs(found).max()) for found in one.weights.values())
    for parameter, found in one.weights.items():
        np.testing.assert_allclose(other.weights[parameter], found, rtol=0, atol=1e-6 * scale)


def test_a_model_of_more_than_one_layer_is_not_taken() -> None:
    parameters = EXAMPLES["piecewise-exponential"]
    task = load("piecewise-exponential", parameters)
    clients = Population.of({f"client-{i}": task.dataset(made_up(task, 30, seed=i)) for i in range(5)})
    chosen = study("parallel", 5, training={"task": "piecewise-exponential", "task_parameters": parameters})
    with pytest.raises(ConfigurationError, match="not one linear layer"):
        run(chosen, clients, Vectorised)
