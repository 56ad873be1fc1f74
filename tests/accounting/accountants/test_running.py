"""Composition by running sums: exact means, checkpoints, clients' own sums."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import (
    InvalidArgument,
    log_moment,
    upper_mean,
)
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account


class TestRunning:
    def test_it_bounds_the_mean_of_the_exponential_of_each_records_sum(self) -> None:
        ours = account(orders=[4.0, 5.0], composition="running", checkpoints=[2, 7, 9])
        other = ACCOUNTING_SAMPLE[::-1].copy()
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        ours.step(other, **PLAN)
        sums = sum(log_moment(4.0, d, noise_std=2.0, sampling_rate=0.1) for d in (ACCOUNTING_SAMPLE, other))
        top = 2 * float(log_moment(4.0, 1.0, noise_std=2.0, sampling_rate=0.1))
        # Two orders and three checkpoints share the failure probability.
        truth = upper_mean(sums, 1e-6 / 6, method="betting", log_max=top)  # type: ignore[arg-type]
        assert ours.log_moments()[0] == pytest.approx(truth, rel=1e-9)

    def test_between_checkpoints_every_step_counts_in_full(self) -> None:
        ours = account(orders=[4.0], composition="running", checkpoints=[1])
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        at = float(ours.log_moments()[0])
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        worst = float(log_moment(4.0, 1.0, noise_std=2.0, sampling_rate=0.1))
        assert ours.log_moments()[0] == pytest.approx(at + worst, rel=1e-12)

    def test_open_checkpoints_split_the_failure_over_all_steps(self) -> None:
        ours = account(orders=[4.0], composition="running", max_steps=None)
        for _ in range(3):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        sums = 3 * log_moment(4.0, ACCOUNTING_SAMPLE, noise_std=2.0, sampling_rate=0.1)
        top = 3 * float(log_moment(4.0, 1.0, noise_std=2.0, sampling_rate=0.1))
        truth = upper_mean(sums, 1e-6 / 12, method="betting", log_max=top)
        assert ours.log_moments()[0] == pytest.approx(truth, rel=1e-9)

    def test_an_unmeasured_step_adds_the_clip_norm_to_everybody(self) -> None:
        late, measured = (account(composition="running", checkpoints=[2]) for _ in range(2))
        late.step(None, **PLAN)
        measured.step(np.ones_like(ACCOUNTING_SAMPLE), **PLAN)
        for one in (late, measured):
            one.step(ACCOUNTING_SAMPLE, **PLAN)
        assert late.log_moments() == pytest.approx(measured.log_moments(), rel=1e-12)

    def test_a_mixed_panel_is_refused(self) -> None:
        ours = account(composition="running")
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        before = ours.state()
        with pytest.raises(InvalidArgument, match=r"^distances:.*accounting sample"):
            ours.step(ACCOUNTING_SAMPLE[:-1], **PLAN)
        assert ours.state() == before

    def test_counts_are_refused(self) -> None:
        with pytest.raises(InvalidArgument, match=r"^counts:"):
            account(composition="running").step([0.5, 1.0], counts=[3, 4], **PLAN)

    def test_checkpoints_by_number_end_at_the_horizon(self) -> None:
        ours = account(orders=[4.0], composition="running", checkpoints=2)
        moments = []
        for _ in range(20):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
            moments.append(float(ours.log_moments()[0]))
        falls = [t + 2 for t in range(19) if moments[t + 1] < moments[t]]
        assert falls == [10, 20]


class TestClientsOwnSums:
    EDGES = np.linspace(0, 3, 31)

    def test_the_histogram_replaces_the_ceiling(self) -> None:
        ours = account(orders=[4.0], composition="running", max_steps=None)
        for _ in range(200):
            ours.step(None, **PLAN)
        ceiling = float(ours.log_moments()[0])
        counts = [900, 50, 49] + [0] * 27 + [1]
        ours.observe(self.EDGES, counts=counts, log_max=3.0, order=4.0)
        truth = upper_mean(self.EDGES, 1e-6 / (200 * 201), method="betting", log_max=3.0, counts=counts)
        assert ours.log_moments()[0] == pytest.approx(min(truth, ceiling), rel=1e-12)
        assert truth < ceiling
        ours.step(None, **PLAN)
        assert ours.log_moments()[0] == pytest.approx(truth + ceiling / 200, rel=1e-9)
        assert "own sums" in ours.certificate().resolution

    def test_refusals(self) -> None:
        ours = account(composition="running", checkpoints=[2])
        ours.step(None, **PLAN)
        before = ours.state()
        for name, arguments in (
            ("order", {"order": 3.0, "log_max": 3.0}),
            ("order", {"order": 4.0, "log_max": 3.0}),
            ("log_max", {"order": 4.0, "log_max": -1.0}),
        ):
            with pytest.raises(InvalidArgument, match=f"^{name}:"):
                ours.observe([0.1, 0.2, 0.3], **arguments)
        ours.step(None, **PLAN)
        with pytest.raises(InvalidArgument, match=r"^log_values:"):
            ours.observe([0.1, 0.2, 3.3], order=4.0, log_max=3.0)
        assert before["ledger"]["known"] == ours.state()["ledger"]["known"]
        ours.observe([0.1, 0.2, 0.3], order=4.0, log_max=3.0)
        with pytest.raises(InvalidArgument, match=r"^distances:"):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        with pytest.raises(InvalidArgument, match=r"^log_values:"):
            account().observe([0.1, 0.2, 0.3], order=4.0, log_max=3.0)
