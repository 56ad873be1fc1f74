"""Per-record loss distributions against dp-accounting and integrals; the averaged bound on known populations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting import ClassicalAccountant, Definition, EstimatorRefused, InvalidArgument
from accounting.accountants import averaged
from accounting.accountants.averaged import AveragedAccountant
from accounting.accountants.bayesian_spec import EstimateSpec
from accounting.mechanisms.privacy_loss import LossGrid, LossTable
from accounting.values import FloatArray

DELTA, GAMMA = 1e-4, 1e-5


@pytest.fixture(autouse=True)
def _coarse_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any fixed set of ε serves the guarantee; fewer of them are walked sooner."""
    monkeypatch.setattr(averaged, "_POINTS", 200)


def averaged_over(**settings: Any) -> AveragedAccountant:
    ours = {name: settings.pop(name) for name in ("members", "max_ratio", "bins") if name in settings}
    defaults = {"delta": DELTA, "estimator_failure_probability": GAMMA}
    return AveragedAccountant(EstimateSpec(**(defaults | settings)), **ours)


def account(
    distances: FloatArray, steps: int, *, std: float = 2.0, rate: float = 0.1, **more: Any
) -> AveragedAccountant:
    settings: dict[str, Any] = {"members": distances.size, "max_ratio": 1 / std}
    out = averaged_over(**(settings | more))
    for _ in range(steps):
        out.step(distances, noise_std=std, sampling_rate=rate, max_distance=1.0)
    return out


@pytest.mark.quick("0.25-1.0-40")
@pytest.mark.parametrize(("ratio", "rate", "steps"), [(0.5, 0.1, 300), (0.25, 1.0, 40), (1.4, 0.01, 200)])
def test_compositions_agree_with_dp_accounting_from_above(ratio: float, rate: float, steps: int) -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    peer = pld.from_gaussian_mechanism(1 / ratio, sampling_prob=rate, value_discretization_interval=2e-4)
    peer = peer.self_compose(steps)
    grid = LossGrid(32 / 2**15, 2**15)
    places = np.arange(0, grid.size // 2 - 1, 256)
    deltas = np.zeros(places.size)
    for removal in (True, False):
        table = LossTable.build([(ratio, rate)], grid, np.geomspace(0.1, 200, 40), removal=removal)
        deltas = np.maximum(deltas, next(table.profiles(np.array([[float(steps)]]), places))[0])
    theirs = np.asarray(peer.get_delta_for_epsilon(places * grid.interval))
    meaningful = theirs > 1e-9
    # Both discretise upwards; theirs, five times finer, is the closer one.
    assert (deltas[meaningful] >= theirs[meaningful] * (1 - 1e-3)).all()
    assert (deltas[meaningful] <= theirs[meaningful] * 1.1 + 1e-9).all()


@pytest.mark.slow
def test_a_path_of_changing_distances_agrees_with_dp_accounting() -> None:
    from dp_accounting.pld import privacy_loss_distribution as pld

    ratios, rate = np.random.default_rng(41).uniform(0.05, 1.0, size=8), 0.15
    peer = pld.identity(2e-4)
    for ratio in ratios:
        step = pld.from_gaussian_mechanism(1 / ratio, sampling_prob=rate, value_discretization_interval=2e-4)
        peer = peer.compose(step)
    grid, places = LossGrid(20 / 2**15, 2**15), np.arange(0, 2**14 - 1, 256)
    deltas = np.zeros(places.size)
    for removal in (True, False):
        steps = [(float(ratio), rate) for ratio in ratios]
        table = LossTable.build(steps, grid, np.geomspace(0.1, 200, 40), removal=removal)
        deltas = np.maximum(deltas, next(table.profiles(np.ones((1, ratios.size)), places))[0])
    theirs = np.asarray(peer.get_delta_for_epsilon(places * grid.interval))
    meaningful = theirs > 1e-9
    assert (deltas[meaningful] >= theirs[meaningful] * (1 - 1e-3)).all()
    assert (deltas[meaningful] <= theirs[meaningful] * 1.1 + 1e-9).all()


def test_a_population_of_equals_is_charged_as_its_distance() -> None:
    for distance in (0.3, 0.6):
        found = account(np.full(100, distance), 100, estimator="bernstein")
        worst = ClassicalAccountant(delta=DELTA)
        worst.step(noise_multiplier=2.0, sampling_rate=0.1, count=100)
        alone = ClassicalAccountant(delta=DELTA)
        alone.step(noise_multiplier=2.0 / distance, sampling_rate=0.1, count=100)
        assert alone.epsilon() < found.epsilon() < worst.epsilon()


def test_everybody_at_the_clip_norm_gets_the_classical_bound_at_beta() -> None:
    for estimator in ("betting", "bernstein"):
        found = account(np.ones(50), 100, estimator=estimator).epsilon()
        classical = ClassicalAccountant(delta=DELTA - GAMMA)
        classical.step(noise_multiplier=2.0, sampling_rate=0.1, count=100)
        assert classical.epsilon() * (1 - 1e-6) <= found <= classical.epsilon() * 1.015


@pytest.mark.slow
def test_the_true_average_is_covered_however_small_the_sample() -> None:
    """3 % of the population at the clip norm, the rest at 0.1: δ(ε) of the mixture from dp-accounting.

    At γ = 0.01 over 50 samples of 60 the mean number of misses is at most 0.5; more than 6 have probability < 2e-6.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    steps, delta, gamma = 40, 0.02, 0.01
    plds = [
        pld.from_gaussian_mechanism(2.0 / d, sampling_prob=0.2, value_discretization_interval=1e-3).self_compose(steps)
        for d in (0.1, 1.0)
    ]
    rng, misses = np.random.default_rng(23), 0
    for _ in range(50):
        sample = np.where(rng.random(60) < 0.03, 1.0, 0.1)
        found = account(sample, steps, rate=0.2, delta=delta, estimator_failure_probability=gamma, bins=10).epsilon()
        small, large = (float(p.get_delta_for_epsilon(found)) for p in plds)
        misses += 0.97 * small + 0.03 * large > delta - gamma
    assert misses <= 6


@pytest.mark.slow
def test_rounding_distances_up_costs_and_never_saves() -> None:
    rng = np.random.default_rng(29)
    distances = rng.beta(2, 5, size=100)
    epsilons = [account(distances, 60, bins=bins).epsilon() for bins in (1, 8, 64)]
    assert epsilons[0] >= epsilons[1] >= epsilons[2] > 0
    assert epsilons[0] > epsilons[2]


@pytest.mark.slow
def test_the_bound_on_delta_matches_epsilon() -> None:
    rng = np.random.default_rng(31)
    one = account(rng.beta(2, 5, size=40), 60)
    epsilon = one.epsilon()
    assert one.delta_for(epsilon) <= DELTA < one.delta_for(epsilon * 0.97)


def test_a_ratio_that_was_rounded_down_still_fits() -> None:
    for noise in (0.7, 1.1, 3.3):
        one = averaged_over(members=3, max_ratio=1 / noise)
        for clip in (0.1, 0.3, 1.7):
            one.step(np.full(3, clip), noise_std=noise * clip, sampling_rate=0.1, max_distance=clip)
        assert one.steps == 3


@pytest.mark.slow
def test_steps_of_two_kinds_compose_in_any_order() -> None:
    rng = np.random.default_rng(37)
    plan = [(rng.beta(2, 5, size=20), rate) for rate in (0.1, 0.3, 1.0, 0.1)]
    epsilons = []
    for order in (plan, plan[::-1]):
        one = averaged_over(members=20, max_ratio=0.5)
        for distances, rate in order:
            one.step(distances, noise_std=2.0, sampling_rate=rate, max_distance=1.0)
        epsilons.append(one.epsilon())
    assert epsilons[0] == pytest.approx(epsilons[1], rel=1e-9)


def test_nothing_costs_nothing_and_the_certificate_says_what_it_rests_on() -> None:
    one = averaged_over(members=5, max_ratio=1.0)
    assert one.epsilon() == 0
    one.step(np.ones(5), noise_std=1.0, sampling_rate=0.0, max_distance=1.0)
    assert one.epsilon() == 0
    proof = one.certificate()
    assert (proof.definition, proof.adversary, proof.gamma, proof.steps) == (Definition.BAYESIAN, "path", GAMMA, 1)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("delta", {"delta": 0.0}),
        ("estimator_failure_probability", {"estimator_failure_probability": 0.0}),
        ("estimator_failure_probability", {"estimator_failure_probability": DELTA}),
        ("estimator", {"estimator": "student-t"}),
        ("members", {"members": 2.5}),
        ("max_ratio", {"max_ratio": math.nan}),
        ("bins", {"bins": 0}),
    ],
)
def test_bad_settings(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        averaged_over(**({"members": 5, "max_ratio": 1.0} | settings))
    assert error.value.argument == name


def test_two_records_are_no_sample() -> None:
    with pytest.raises(EstimatorRefused):
        averaged_over(members=2, max_ratio=1.0)


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("distances", {"distances": np.ones(4)}),
        ("distances", {"distances": np.full(5, math.nan)}),
        ("distances", {"distances": np.full(5, 1.5)}),
        ("noise_std", {"noise_std": -1.0}),
        ("sampling_rate", {"sampling_rate": 2.0}),
        ("max_distance", {"max_distance": 0.0}),
        ("max_distance", {"noise_std": 0.5}),
    ],
)
def test_bad_steps_are_named_and_charge_nothing(name: str, step: dict[str, Any]) -> None:
    one = averaged_over(members=5, max_ratio=1.0)
    good: dict[str, Any] = {"distances": np.ones(5), "noise_std": 1.0, "sampling_rate": 0.1, "max_distance": 1.0}
    with pytest.raises(InvalidArgument) as error:
        one.step(**(good | step))
    assert error.value.argument == name
    assert (one.steps, one.epsilon()) == (0, 0.0)
