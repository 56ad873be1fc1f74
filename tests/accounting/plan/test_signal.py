"""Noise against signal: what is said of a hospital is what sums drawn at random show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from accounting import InvalidArgument, signal_to_noise
from tests.accounting.budget.plans import client_plan, plan

STUDY = {"noise_multiplier": 2.0, "clip_norm": 0.5, "sampling_rate": 0.25, "steps_per_round": 2, "max_steps": 50}


def test_it_is_what_a_whole_study_shows() -> None:
    """Four hospitals whose records all pull the same way: the mean and the spread of what 50 steps add up to."""
    random = np.random.default_rng(3)
    found = signal_to_noise(plan(**STUDY), 400, hospitals=4, rounds=25)
    batches = random.binomial(400, 0.25, (2000, 4, 50)) * 0.5
    noise = random.normal(0.0, found.noise, (2000, 4, 50))
    assert batches.mean() == pytest.approx(found.signal, rel=0.01)
    assert batches.sum((1, 2)).mean() / noise.sum((1, 2)).std() == pytest.approx(found.together, rel=0.06)
    assert batches[:, 0, 0].mean() / noise[:, 0, 0].std() == pytest.approx(found.alone, rel=0.06)


def test_a_model_of_so_many_parameters_has_as_much_noise_as_signal() -> None:
    found = signal_to_noise(plan(**STUDY), 10, hospitals=1, rounds=25)
    parameters = round(found.parameters)
    norms = np.linalg.norm(np.random.default_rng(4).normal(0.0, found.noise, (200, parameters)), axis=1)
    assert norms.mean() * 50**0.5 == pytest.approx(found.signal * 50, rel=0.02)


def test_a_hospital_is_held_to_the_bound_on_its_sum() -> None:
    small, large = (signal_to_noise(plan(**STUDY), n, hospitals=4, rounds=1, sum_radius=60.0) for n in (300, 3000))
    assert (small.signal, large.signal) == (37.5, 60.0)


def test_where_whole_updates_are_clipped_the_size_of_a_hospital_does_not_matter() -> None:
    found = signal_to_noise(client_plan(noise_multiplier=4.0), 300, hospitals=9, rounds=16)
    # One noise on the sum: nine hospitals speak nine times as loud, not three times.
    assert (found.records, found.signal, found.alone, found.together) == (None, 0.5, 0.25, 9.0)


def test_all_shares_of_a_noise_are_there_and_not_only_those_that_are_counted_on() -> None:
    shared = client_plan(noise_multiplier=4.0, scheme="client-distributed", honest_survivors=3)
    found = signal_to_noise(shared, 300, hospitals=12, rounds=16)
    # Twelve shares of a noise whose three are enough: twice as much of it.
    assert (found.signal, found.noise, found.alone, found.together) == (0.5, 4.0, 0.125, 6.0)
    # Fewer than are counted on are in no sum.
    assert signal_to_noise(shared, 300, hospitals=2, rounds=1).noise == 2.0


def test_no_round_is_no_signal_and_no_hospital_is_an_error() -> None:
    assert signal_to_noise(plan(), 300, hospitals=4, rounds=0).together == 0
    for wrong in ({"records": 0}, {"hospitals": 0.0}, {"sum_radius": -1.0}):
        with pytest.raises(InvalidArgument):
            signal_to_noise(plan(), **({"records": 10, "hospitals": 1.0, "rounds": 1} | wrong))
    assert dataclasses.asdict(signal_to_noise(plan(), 5, hospitals=1, rounds=1))["records"] == 5
