"""Composition by Hölder's inequality: what a step costs, weights, histograms, ceilings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accounting import (
    log_moment,
    upper_mean,
)
from accounting.estimation.upper_mean import lower_counts
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account


class TestHolder:
    def test_a_step_costs_w_log_mean_exp(self) -> None:
        ours = account(orders=[4.0])
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        cost = log_moment(4.0, ACCOUNTING_SAMPLE, noise_std=2.0, sampling_rate=0.1) * 20
        top = float(log_moment(4.0, 1.0, noise_std=2.0, sampling_rate=0.1)) * 20
        truth = upper_mean(cost, 1e-6 / 20, method="betting", log_max=top) / 20
        assert ours.log_moments()[0] == pytest.approx(truth, rel=1e-9)

    def test_steps_add_up(self) -> None:
        ours = account()
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        one = ours.log_moments()
        for _ in range(6):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        assert ours.log_moments() == pytest.approx(7 * one, rel=1e-12)

    def test_given_weights_are_used_in_turn(self) -> None:
        ours = account(orders=[4.0], max_steps=None, weights=[0.5, 0.25])
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        first = float(ours.log_moments()[0])
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        for weight, cost in ((0.5, first), (0.25, float(ours.log_moments()[0]) - first)):
            alone = account(orders=[4.0], max_steps=None, weights=[weight])
            alone.step(ACCOUNTING_SAMPLE, **PLAN)
            assert cost == pytest.approx(float(alone.log_moments()[0]), rel=1e-9)

    def test_open_ended_weights_need_no_horizon(self) -> None:
        ours = account(max_steps=None)
        for _ in range(30):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        assert math.isfinite(ours.epsilon())

    def test_a_fraction_of_clients_missing_is_charged_at_the_clip_norm(self) -> None:
        partial, full = account(), account()
        partial.step(np.append(ACCOUNTING_SAMPLE, [1.0, 1.0]), **PLAN)
        full.step(np.append(ACCOUNTING_SAMPLE, [0.0, 0.0]), **PLAN)
        assert partial.epsilon() > full.epsilon()

    def test_a_histogram_rounded_up_never_costs_less(self) -> None:
        edges = np.linspace(0, 1, 65)
        counts = np.bincount(np.searchsorted(edges, ACCOUNTING_SAMPLE), minlength=65)
        for estimator in ("betting", "band"):
            exact, binned = account(estimator=estimator), account(estimator=estimator)
            exact.step(ACCOUNTING_SAMPLE, **PLAN)
            binned.step(edges, counts=counts, **PLAN)
            assert (binned.log_moments() >= exact.log_moments() * (1 - 1e-9)).all()
            assert "65 bins" in binned.certificate().resolution

    def test_noised_counts_cost_more_than_exact_ones(self) -> None:
        edges = np.linspace(0, 1, 17)
        counts = np.bincount(np.searchsorted(edges, ACCOUNTING_SAMPLE), minlength=17)
        rng = np.random.default_rng(4)
        exact = account()
        exact.step(edges, counts=counts, **PLAN)
        for _ in range(20):
            noised = account()
            noisy = counts + np.rint(rng.normal(0, 3, 17)).astype(int)
            noised.step(edges, counts=noisy, count_noise=3.1, sample_size=300, **PLAN)
            assert (noised.log_moments() >= exact.log_moments()).all()

    def test_noised_counts_share_the_failure_between_noise_and_sample(self) -> None:
        edges, counts = np.linspace(0, 1, 9)[1:], [150, 80, 30, 20, 10, 5, 3, 2]
        ours = account(orders=[2.0, 4.0])
        ours.step(edges, counts=counts, count_noise=2.0, sample_size=300, **PLAN)
        # One step of 20: half of γ/20 for the noise, half for the two orders' estimates.
        lowered = lower_counts(counts, 2.0, 1e-6 / 40, sample_size=300)
        for row, order in enumerate((2.0, 4.0)):
            cost = log_moment(order, edges, noise_std=2.0, sampling_rate=0.1) * 20
            truth = upper_mean(cost, 1e-6 / 80, method="betting", log_max=float(cost[-1]), counts=lowered) / 20
            assert ours.log_moments()[row] == pytest.approx(truth, rel=1e-9)

    def test_each_step_is_capped_at_its_own_ceiling(self) -> None:
        """Student t overshoots on one outlier among small values; the next step must not pay for it."""
        ours = account(orders=[4.0], estimator="student-t")
        ours.step([0.0] * 9 + [1.0], noise_std=1.0, sampling_rate=1.0, max_distance=1.0)
        ours.step(ACCOUNTING_SAMPLE / 10, noise_std=1.0, sampling_rate=1.0, max_distance=1.0)
        ceiling = float(log_moment(4.0, 1.0, noise_std=1.0, sampling_rate=1.0))
        second = (
            upper_mean(20 * log_moment(4.0, ACCOUNTING_SAMPLE / 10, noise_std=1.0, sampling_rate=1.0), 1e-6 / 20) / 20
        )
        assert second < ceiling / 10
        assert ours.log_moments()[0] == pytest.approx(ceiling + second, rel=1e-9)
