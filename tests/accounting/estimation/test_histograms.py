"""Histograms: the promised loss against direct estimates, exact round trips, noise that never lowers a bound."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from accounting import BayesianAccountant, BayesianSpec, InvalidArgument, Relation, log_moment, upper_mean
from accounting.estimation import histograms
from accounting.estimation.histograms import (
    count_values,
    release_charge,
    running_sum_bins,
)
from accounting.estimation.upper_mean import lower_counts
from accounting.plan.limits import MONOTONE
from accounting.values import FloatArray


def samples(seed: int, size: int = 2000) -> list[FloatArray]:
    """Norms in [0, 1]: heavy tail, two clusters, nearly equal, mostly tiny with a few at the clip norm."""
    rng = np.random.default_rng(seed)
    tiny = np.where(rng.random(size) < 0.01, 1.0, 1e-3)
    return [
        np.minimum(rng.weibull(0.5, size) / 8, 1.0),
        np.where(rng.random(size) < 0.5, 0.05, 0.7),
        np.full(size, 0.321),
        tiny,
    ]


class TestBins:
    @pytest.mark.parametrize("log_max", [0.01, 3.0, 700.0])
    def test_running_sums_lose_less_than_promised(self, log_max: float) -> None:
        bins = running_sum_bins(log_max, 2000)
        assert bins.loss <= 0.01
        assert bins.edges[-1] == log_max
        # The promise from its definition, on Y/Y_max, Y = e^edge − 1.
        shares = np.append(0.0, np.exp(bins.edges - log_max) * -np.expm1(-bins.edges) / -np.expm1(-log_max))
        heights = shares + bins.floor
        assert float((heights[1:] / heights[:-1]).max()) == pytest.approx(1 + bins.loss / 2, rel=1e-6)
        rng = np.random.default_rng(2)
        for shape in (0.3, 2.0):
            sums = log_max * rng.beta(shape, 2.0, size=1000)
            direct = upper_mean(sums, 1e-6, method="betting", log_max=log_max)
            rounded = upper_mean(
                bins.edges, 1e-6, method="betting", log_max=log_max, counts=count_values(sums, bins.edges)
            )
            assert direct * (1 - 1e-9) <= rounded <= direct * 1.01


class TestCounting:
    def test_the_round_trip_is_the_rounded_sample(self) -> None:
        edges = np.array([0.1, 0.25, 0.5, 1.0])
        for sample in samples(3):
            rounded = np.array([edges[edges >= d].min() for d in np.sort(sample)])
            assert np.repeat(edges, count_values(sample, edges)).tolist() == rounded.tolist()

    def test_every_monotone_estimator_reads_counts_as_the_rounded_sample(self) -> None:
        edges = np.linspace(0.05, 1.0, 20)
        costs = np.asarray(log_moment(4.0, edges, noise_std=1.0, sampling_rate=0.5))
        for sample, method in itertools.product(samples(4), sorted(MONOTONE)):
            counts = count_values(sample, edges)
            by_counts = upper_mean(costs, 1e-5, method=method, log_max=float(costs[-1]), counts=counts)
            one_by_one = np.asarray(log_moment(4.0, np.repeat(edges, counts), noise_std=1.0, sampling_rate=0.5))
            assert by_counts == pytest.approx(
                upper_mean(one_by_one, 1e-5, method=method, log_max=float(costs[-1])), rel=1e-9
            )

    def test_a_value_on_an_edge_stays_and_one_above_the_last_is_refused(self) -> None:
        assert count_values([0.0, 0.5, 0.5000001, 1.0], [0.5, 1.0]).tolist() == [2, 2]
        with pytest.raises(InvalidArgument, match="values"):
            count_values([1.1], [0.5, 1.0])

    def test_the_bayesian_accountant_reads_them(self) -> None:
        sample, edges = samples(5)[0], np.linspace(0.02, 1.0, 50)
        accounts = [
            BayesianAccountant(
                BayesianSpec(
                    orders=[4.0], delta=1e-4, estimator_failure_probability=1e-5, max_steps=3, estimator="betting"
                )
            )
            for _ in range(2)
        ]
        step = {"noise_std": 2.0, "sampling_rate": 0.2, "max_distance": 1.0}
        accounts[0].step(edges, counts=count_values(sample, edges), **step)
        accounts[1].step(sample, **step)
        assert accounts[0].epsilon() >= accounts[1].epsilon() > 0


class TestNoise:
    def noised(self, counts: FloatArray, std: float, rng: np.random.Generator) -> FloatArray:
        """Counts with exact-in-law discrete Gaussian noise, by inversion of its mass function."""
        support = np.arange(-12 * int(std) - 12, 12 * int(std) + 13)
        mass = np.exp(-(support**2) / (2 * std**2))
        return counts + rng.choice(support, size=counts.size, p=mass / mass.sum())

    def test_noised_counts_never_lower_the_bound(self) -> None:
        """At failure .01 over 600 draws: more than 20 lowered bounds have probability under 1e-5."""
        edges = np.linspace(0.05, 1.0, 16)
        costs = np.asarray(log_moment(6.0, edges, noise_std=1.0, sampling_rate=0.3))
        rng, lowered = np.random.default_rng(17), 0
        for sample, std in itertools.product(samples(6), (2.0, 8.0, 30.0)):
            counts = count_values(sample, edges).astype(float)
            truth = upper_mean(costs, 1e-4, method="betting", log_max=float(costs[-1]), counts=counts)
            for _ in range(50):
                corrected = lower_counts(self.noised(counts, std, rng), std, 0.01, sample_size=sample.size)
                assert corrected.sum() == sample.size
                assert corrected.min() >= 0
                lowered += (
                    upper_mean(costs, 1e-4, method="betting", log_max=float(costs[-1]), counts=corrected)
                    < truth - 1e-12
                )
        assert lowered <= 20

    def test_the_correction_costs_like_noise_times_root_bins_records(self) -> None:
        counts, std = np.full(64, 200.0), 5.0
        moved = lower_counts(counts, std, 1e-6, sample_size=12_800)[-1] - 200
        assert 5 * std * math.sqrt(63) < moved < 7 * std * math.sqrt(63)

    @pytest.mark.parametrize("order", [1.0, 7.5])
    def test_the_charge_covers_the_discrete_gaussian_in_both_directions(self, order: float) -> None:
        z, shift = 3.0, 4
        support = np.arange(-200, 201)
        logs = [-((support - mean) ** 2) / (2 * z**2) for mean in (0, shift)]
        p, q = (each - math.log(float(np.exp(each).sum())) for each in logs)
        truth = max(math.log(float(np.exp(a + order * (a - b)).sum())) for a, b in ((p, q), (q, p)))
        charge = float(release_charge(order, noise_std=z, max_counts=shift)[0])
        assert truth <= charge <= truth * (1 + 1e-6)

    def test_moving_counts_costs_twice_a_removal(self) -> None:
        gone, moved = (
            release_charge([2.0, 9.0], noise_std=10.0, max_counts=100, relation=relation)
            for relation in (Relation.ADD_REMOVE, Relation.ZERO_OUT)
        )
        assert moved == pytest.approx(2 * gone, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "call", "values"),
    [
        ("log_max", "running_sum_bins", {"log_max": 0.0, "bins": 4}),
        ("floor", "running_sum_bins", {"log_max": 1.0, "bins": 4, "floor": 2.0}),
        ("floor", "running_sum_bins", {"log_max": 1.0, "bins": 4, "floor": 0.0}),
        ("bins", "running_sum_bins", {"log_max": 1.0, "bins": 0}),
        ("edges", "count_values", {"values": [0.1], "edges": [1.0, 0.5]}),
        ("values", "count_values", {"values": [math.nan], "edges": [1.0]}),
        ("noise_std", "release_charge", {"orders": [1.0], "noise_std": 0.0}),
        ("max_counts", "release_charge", {"orders": [1.0], "noise_std": 1.0, "max_counts": 0}),
    ],
)
def test_bad_input_is_named(name: str, call: str, values: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as error:
        getattr(histograms, call)(**values)
    assert error.value.argument == name
