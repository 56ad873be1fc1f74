"""One noise, two levels: what a record and what a whole client move in the sum that scheme joint noises, as computed.

The functions are those of the step itself; only the noise is replaced by zeros, so that what is left can be measured.
Lengths are measured with 60 digits.
"""

from __future__ import annotations

import dataclasses
import doctest
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from accounting.budget.accounts.classical import ClassicalLimit
from accounting.plan.limits import LimitPlan
from accounting.plan.plan import Plan
from accounting.units import Definition, Level, Observer
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.gradients.slots import Slots
from private_learning.training.gradients import projected, projection_rounding, sum_rounding
from private_learning.training.noise import GridNoise
from study_protocol.randomness.source import SeededSource

CAPACITY, CLASSES = 12, 3
lengths = st.floats(1e-3, 1e3)
seeds = st.integers(0, 2**32 - 1)


def distance(first: NDArray[Any], second: NDArray[Any]) -> Any:
    """‖first − second‖, differences exact."""
    with mpmath.workdps(60):
        squares = [(Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(first, second, strict=True)]
        total = sum(squares, Fraction(0))
        return mpmath.sqrt(mpmath.mpf(total.numerator) / total.denominator)


def flat(sums: dict[str, torch.Tensor]) -> NDArray[np.float64]:
    return np.concatenate([value.double().numpy().ravel() for value in sums.values()])


class Silent:
    """A law of noise that is always 0, on the same grid."""

    def __init__(self, like: Any) -> None:
        self.dtype, self.std, self.sampling_error = like.dtype, like.std, 0.0

    def chunks(self, size: int, source: object) -> Iterator[tuple[int, NDArray[np.int64]]]:
        yield 0, np.zeros(size, self.dtype)


class Step:
    """What a client of scheme joint does with a batch, up to its noise."""

    def __init__(self, seed: int, features: int, clip_norm: float, radius: float, *, double: bool) -> None:
        kind = torch.float64 if double else torch.float32
        torch.manual_seed(seed)
        self.clip_norm, self.radius = clip_norm, radius
        self.gradients = PerRecordGradients(
            nn.Linear(features, CLASSES, dtype=kind), nn.CrossEntropyLoss(reduction="none"), micro_batch=CAPACITY
        )
        self.kind, self.coordinates = kind, CLASSES * (features + 1)
        rounding = sum_rounding(self.gradients, clip_norm, CAPACITY, radius=radius)
        noise = GridNoise.calibrated(clip_norm, self.coordinates, noise_multiplier=1.5, rounding=rounding)
        self.noise = dataclasses.replace(noise, law=Silent(noise.law))  # type: ignore[arg-type]

    def sum(self, inputs: NDArray[np.float64], targets: NDArray[np.int64]) -> NDArray[np.float64]:
        """(coordinates,) clipped, summed, projected and rounded to the grid."""
        part = self.gradients.clipped_sum(
            torch.as_tensor(inputs, dtype=self.kind),
            torch.as_tensor(targets),
            clip_norm=self.clip_norm,
            slots=Slots(CAPACITY),
        )
        nearest, _ = projected(part, self.radius)
        return flat(self.noise.added_to(nearest, SeededSource(1, allow_insecure=True)).gradients)


# A law of noise is built for every pair of clip norm and radius: few of them, many records.
@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    seed=seeds,
    records=st.integers(1, 10),
    features=st.sampled_from([1, 6]),
    scale=lengths,
    clip_norm=st.sampled_from([0.03, 1.7]),
    several=st.sampled_from([1.0, 2.3, 6.0]),
    double=st.booleans(),
    agree=st.booleans(),
)
def test_a_record_moves_the_projected_sum_by_the_clip_norm_and_a_client_by_the_radius(
    seed: int,
    records: int,
    features: int,
    scale: float,
    clip_norm: float,
    several: float,
    double: bool,
    agree: bool,
) -> None:
    draw, radius = np.random.default_rng(seed), clip_norm * several
    step = Step(seed, features, clip_norm, radius, double=double)
    inputs = draw.normal(0.0, scale, (records, features))
    if agree:
        # Gradients that point one way make sums long, and the projection short.
        inputs = np.abs(inputs[:1]) + 0.01 * inputs
    targets = np.zeros(records, np.int64) if agree else draw.integers(0, CLASSES, records)
    whole = step.sum(inputs, targets)
    for left_out in range(records):
        others = np.arange(records) != left_out
        without = step.sum(inputs[others], targets[others]) if records > 1 else np.zeros(step.coordinates)
        assert distance(whole, without) <= step.noise.sensitivity
    # Zero-out: the client takes part and its signal is zero. The noise keeps to the plan's share of the radius too.
    plans = 1.5 * clip_norm / radius
    std = step.noise.law.std * step.noise.spacing
    assert std >= plans * distance(whole, np.zeros(step.coordinates))


@settings(max_examples=150, deadline=None)
@given(
    seed=seeds,
    size=st.integers(1, 400),
    radius=lengths,
    reach=st.floats(0.5, 100.0),
    apart=st.one_of(st.floats(1e-9, 10.0), st.floats(1e-3, 2.0)),
    double=st.booleans(),
)
def test_computed_projections_are_no_further_apart_than_what_is_projected(
    seed: int, size: int, radius: float, reach: float, apart: float, double: bool
) -> None:
    """But for what `projection_rounding` says; and they lie in the ball."""
    draw, kind = np.random.default_rng(seed), np.float64 if double else np.float32

    def direction() -> NDArray[np.float64]:
        vector = draw.normal(size=size)
        return vector / np.linalg.norm(vector)

    first = (radius * reach * direction()).astype(kind)
    second = (first + radius * apart * direction()).astype(kind)
    found = [
        projected(ClippedSum({"weight": torch.as_tensor(vector)}, torch.zeros(0), 1.0), radius)
        for vector in (first, second)
    ]
    near = [flat(part.gradients) for part, _ in found]
    assert distance(near[0], near[1]) <= distance(first, second) + projection_rounding(radius, size)
    for point, (_, stated) in zip(near, found, strict=True):
        assert distance(point, np.zeros(size)) <= stated <= radius


@pytest.mark.parametrize(("double", "least"), [(False, 2**31), (True, 4)])
def test_a_projection_is_counted_from_where_the_additions_have_nothing_to_spare(double: bool, least: int) -> None:
    """(R/c)(d + 12) = 2³¹ in float32, 4 in float64: below, sums are noised as if they were never projected."""
    step = Step(0, 6, 0.03, 0.03, double=double)
    added = step.gradients.rounding(0.03, CAPACITY)
    turning = 0.03 * least / (step.coordinates + 12)
    for share, more in ((0.5, 0.0), (2.0, projection_rounding(turning, step.coordinates))):
        found = sum_rounding(step.gradients, 0.03, CAPACITY, radius=share * turning)
        assert found - added == pytest.approx(more, rel=1e-3, abs=1e-25)
    assert sum_rounding(step.gradients, 0.03, CAPACITY, radius=None) == added


def joint(multiplier: float, clip_norm: float, radius: float, *, rate: float, honest: int, order: float) -> Plan:
    limits = tuple(LimitPlan(level, Definition.CLASSICAL, 1e6, 1e-5, None) for level in (Level.INSTANCE, Level.CLIENT))
    return Plan(
        scheme="joint",
        limits=limits,
        clip_norm=clip_norm,
        client_clip_norm=radius,
        noise_multiplier=multiplier,
        honest_survivors=honest,
        sampling_rate=rate,
        steps_per_round=1,
        max_steps=500,
        classical_order=order,
        bayesian=None,
        disclosure="plain",
        release=None,
        observer=Observer.RELEASES,
    )


@settings(max_examples=40, deadline=None)
@given(
    multiplier=st.floats(0.8, 30.0),
    clip_norm=st.floats(0.01, 100.0),
    several=st.floats(1.0, 50.0),
    rate=st.sampled_from([0.01, 0.2, 1.0]),
    honest=st.integers(2, 40),
    rounds=st.integers(1, 300),
    order=st.sampled_from([1, 3, 7, 15, 31]),
)
def test_both_charges_are_those_of_dp_accounting_for_one_noise(
    multiplier: float, clip_norm: float, several: float, rate: float, honest: int, rounds: int, order: int
) -> None:
    """s/c at the records' rate, s/C at rate 1: s² the honest clients' noise together, the same for both."""
    radius = clip_norm * several
    study = joint(multiplier, clip_norm, radius, rate=rate, honest=honest, order=float(order))
    both = {level: study.mechanism(level) for level in (Level.INSTANCE, Level.CLIENT)}
    assert len({one.noise_std for one in both.values()}) == 1
    noise = multiplier * clip_norm * np.sqrt(honest)
    for limit, moved, credited in zip(study.limits, (clip_norm, radius), (rate, 1.0), strict=True):
        theirs = RdpAccountant([order + 1])
        theirs.compose(PoissonSampledDpEvent(credited, GaussianDpEvent(noise / moved)), rounds)
        account = ClassicalLimit(study, limit)
        account.restore({"rounds": rounds, "published": 0})
        expected = theirs.get_epsilon(1e-5)
        # Never below but for their own rounding; above by our rounding up of every step.
        assert account.epsilon() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert account.epsilon() >= expected * (1 - 1e-9)


def test_the_page_s_examples_run() -> None:
    page = Path(__file__).parents[3] / "docs" / "definitions" / "both-levels.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted > 5
    assert result.failed == 0
