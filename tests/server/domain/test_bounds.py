"""The bound on what one hospital sends: honest updates stay below it, and it is not much longer than they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from private_learning import tasks
from private_learning.training import LocalTraining, weights_of
from server.domain.bounds import (
    anchor,
    has_anchor,
    longest_update,
    noise_length,
)
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

TASK = tasks.load("logistic-regression", TASK_PARAMETERS)
START = weights_of(TASK.model())
SIZE = sum(array.size for array in START.values())


def test_the_noise_length_is_a_quantile_from_above() -> None:
    for coordinates in (1, 2, 10, 1000, 10**6, 10**9):
        for log_odds in (1.0, math.log(1e12)):
            beyond = stats.chi2.sf(noise_length(coordinates, log_odds) ** 2, coordinates)
            assert beyond <= math.exp(-log_odds)
    assert noise_length(10**6) < 1010


@pytest.mark.parametrize("std", [0.3, 1.0, 50.0])
def test_the_discrete_law_has_the_moments_that_the_bound_needs(std: float) -> None:
    """E exp(t X²) ≤ (1 − 2 t s²)^(−1/2) below t = 1/2s², summed over the integers."""
    x = np.arange(-math.ceil(60 * std) - 5, math.ceil(60 * std) + 6, dtype=np.float64)
    squares = x**2 / (2 * std**2)
    for share in (0.1, 0.5, 0.9):
        moment = np.exp((share - 1) * squares).sum() / np.exp(-squares).sum()
        assert moment <= (1 - share) ** -0.5 * (1 + 1e-12)


def study(**chosen: Any) -> StudySettings:
    training = {"learning_rate": 0.3, "optimiser": {"name": "plain", "learning_rate": 0.5}} | chosen.pop("training", {})
    return settings(training=training, max_steps=chosen.pop("max_steps", 40), **chosen)


LOCAL = {"algorithm": "fedavg", "local_steps": 8}
STUDIES = {
    "fedsgd": study(),
    "a narrow radius": study(robustness={"sum_radius": 1.0}),
    "small noise": study(noise_multiplier=0.01),
    "around the last round": study(training={"clipping_centre": "previous-update"}),
    "plain": study(training=LOCAL),
    "schedule": study(training=LOCAL | {"learning_rate_schedule": {"name": "step", "every": 1, "factor": 0.25}}),
    "momentum": study(training=LOCAL | {"local_optimiser": {"name": "momentum", "momentum": 0.9}}),
    "adam": study(training=LOCAL | {"local_optimiser": {"name": "adam", "momentum": 0.9, "second_momentum": 0.999}}),
    "adam, short memory": study(
        training=LOCAL | {"local_optimiser": {"name": "adam", "momentum": 0.5, "second_momentum": 0.1}}
    ),
    "drawn back": study(training=LOCAL | {"proximal": 1.5}),
    "drawn back, momentum": study(
        training=LOCAL | {"proximal": 3.0, "local_optimiser": {"name": "momentum", "momentum": 0.9}}
    ),
    "drawn back, adam": study(training=LOCAL | {"proximal": 1.5, "local_optimiser": {"name": "adam"}}),
    "a rate next to nothing": study(training=LOCAL | {"learning_rate": 1e-9}),
}


@pytest.mark.quick("fedsgd-50")
@pytest.mark.parametrize("updates", [50, 200])
@pytest.mark.parametrize("name", STUDIES)
def test_honest_updates_stay_below_their_bound(name: str, updates: int) -> None:
    """From many seeds and far weights; false alarms: one in 10¹² of each update."""
    chosen = STUDIES[name]
    data = TASK.dataset(records(60))
    draw = np.random.default_rng(5)
    reached = []
    for seed in range(updates):
        weights = {n: (draw.normal(size=a.shape) * 3).astype(np.float32) for n, a in START.items()}
        previous = {n: (weights[n] + draw.normal(size=a.shape)).astype(np.float32) for n, a in START.items()}
        local = LocalTraining(TASK, data, chosen, SeededRandomness(seed, allow_insecure=True))
        made = local.contribution(weights, None, round_number=1 + seed % 5, previous=previous).update
        assert has_anchor(chosen) == (name not in ("fedsgd", "a narrow radius", "small noise"))
        bound = longest_update(chosen, SIZE, 1 + seed % 5, anchor=anchor(chosen, Arrays(weights), Arrays(previous)))
        reached.append(float(np.linalg.norm(np.concatenate([a.ravel() for a in made.values()]))) / bound)
    assert max(reached) <= 1.0
    # Not out of proportion either, though three coordinates are few for a bound that holds in all but 10⁻¹² of rounds.
    assert name == "a rate next to nothing" or max(reached) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("norm", [0.05, 1.0, 20.0])
def test_with_an_adaptive_norm_the_bound_follows_the_norm_of_the_round(norm: float) -> None:
    chosen = study(adaptive_clip={"quantile": 0.5, "rate": 0.2}, noise_multiplier=0.5)
    data, size = TASK.dataset(records(60)), SIZE + 1
    bound, first = (longest_update(of, size, 1, anchor=0.0) for of in (chosen.at_clip_norm(norm), chosen))
    assert bound == pytest.approx(norm * first)
    for seed in range(50):
        local = LocalTraining(TASK, data, chosen, SeededRandomness(seed, allow_insecure=True))
        made = local.contribution(START, None, clip_norm=norm).update
        assert 0.02 * bound < float(np.linalg.norm(np.concatenate([a.ravel() for a in made.values()]))) <= bound


def test_several_steps_sum_their_noise_as_noise_is_summed() -> None:
    """In many dimensions four steps are twice as long as one where noise is nearly all, four times where it is none."""
    many, size = {"algorithm": "fedavg", "local_steps": 4}, 10**6

    def bound(**options: Any) -> float:
        return longest_update(study(robustness={"sum_radius": 1.0}, **options), size, 1, anchor=0.0)

    one = {"algorithm": "fedavg", "local_steps": 1}
    assert bound(training=many, noise_multiplier=5.0) / bound(training=one, noise_multiplier=5.0) == pytest.approx(
        2, 1e-3
    )
    assert bound(training=many, noise_multiplier=1e-8) / bound(training=one, noise_multiplier=1e-8) == pytest.approx(
        4, 1e-2
    )


@pytest.mark.parametrize("momentum", [None, 0.5, 0.9])
def test_weights_of_steps_that_are_drawn_back_are_the_sums_of_a_brute_force(momentum: float | None) -> None:
    """One step's gradient of 1, all others 0, through torch's own optimiser: without noise the bound is their sum."""
    how = {"name": "plain"} if momentum is None else {"name": "momentum", "momentum": momentum}
    local = {"algorithm": "fedavg", "local_steps": 9, "proximal": 2.0, "local_optimiser": how}
    reached = 0.0
    for chosen in range(9):
        point = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        sgd = torch.optim.SGD([point], lr=0.3, momentum=momentum or 0.0)
        for step in range(9):
            point.grad = 2.0 * point.detach() + float(step == chosen)
            sgd.step()
        reached += abs(float(point.detach()))
    silent = study(training=local, noise_multiplier=1e-9, robustness={"sum_radius": 1.0})
    mean = 1.0 / silent.privacy.expected_batch_size
    assert longest_update(silent, 1, 1, anchor=0.0) == pytest.approx(reached * mean, rel=1e-4)


@pytest.mark.parametrize("second", [0.999, 0.5, 0.05])
def test_no_gradients_move_adam_farther(second: float) -> None:
    """Torch's own Adam under gradients that grow, alternate or come once; one coordinate, ε next to nothing."""
    chosen = study(
        training={
            "algorithm": "fedavg",
            "local_steps": 12,
            "local_optimiser": {"name": "adam", "momentum": 0.9, "second_momentum": second, "stability": 1e-30},
        }
    )
    bound = longest_update(chosen, 1, 1, anchor=0.0)
    ratio = second / 0.9
    ways = [np.ones(12), ratio ** np.arange(12.0), ratio ** np.arange(0.0, -12.0, -1), np.eye(12)[0], np.eye(12)[5]]
    reached = 0.0
    for way in ways:
        parameter = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        adam = torch.optim.Adam([parameter], lr=0.3, betas=(0.9, second), eps=1e-30)
        for gradient in way:
            parameter.grad = torch.tensor([gradient])
            adam.step()
        reached = max(reached, abs(float(parameter.detach())))
    assert 0.2 * bound < reached <= bound


def test_adam_without_a_second_moment_is_bounded_by_its_stability() -> None:
    adam = {"name": "adam", "momentum": 0.9, "second_momentum": 0.0, "stability": 1e-3}
    chosen = study(training={"algorithm": "fedavg", "local_steps": 3, "local_optimiser": adam})
    assert math.isfinite(longest_update(chosen, 5, 1, anchor=0.0))


def test_a_sum_is_bounded_as_sums_of_noise_are() -> None:
    chosen = study(masked=True)
    alone = longest_update(chosen, 1000, 1, anchor=0.0)
    assert math.sqrt(5) * alone < longest_update(chosen, 1000, 1, anchor=0.0, clients=5) < 5 * alone


def test_the_sum_of_whole_updates_has_room_for_every_share_of_the_noise() -> None:
    """n clip norms, and the noise of all n shares, not only of the h = 3 that are counted on."""
    shared, central = settings("client-distributed"), settings("client", masked=True)
    for clients in (4, 5, 12):
        length = longest_update(shared, 1000, 1, anchor=0.0, clients=clients)
        noise = 4.0 * math.sqrt(clients / 3) * noise_length(1000)
        assert length == pytest.approx(clients + noise, rel=1e-4)
        assert length > longest_update(central, 1000, 1, anchor=0.0, clients=clients)
    assert not has_anchor(shared)
