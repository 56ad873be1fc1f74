"""Reservations: settled at most at their worst case, used once, alone."""

from __future__ import annotations

import numpy as np
import pytest

from accounting import (
    EstimatorRefused,
    InvalidArgument,
    ReservationClosed,
)
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account


class TestReservations:
    @pytest.mark.parametrize("composition", ["holder", "running"])
    @pytest.mark.parametrize("adversary", ["path", "adaptive"])
    @pytest.mark.parametrize("estimator", ["student-t", "betting", "band", "bernstein"])
    def test_settling_never_exceeds_the_reservation(self, composition: str, adversary: str, estimator: str) -> None:
        rng = np.random.default_rng(5)
        ours = account(composition=composition, adversary=adversary, estimator=estimator, filter_order=4.0)
        for _ in range(10):
            reservation = ours.reserve(**PLAN)
            reserved = reservation.epsilon()
            reservation.settle(rng.beta(1, 3, 40))
            assert ours.epsilon() <= reserved * (1 + 1e-12)

    def test_an_estimate_that_jumps_is_held_at_the_reservation(self) -> None:
        """Student t from four records: one outlier multiplies the estimate beyond the worst case reserved."""
        ours = account(composition="running", estimator="student-t", filter_order=4.0)
        for _ in range(8):
            ours.step([0.10, 0.11, 0.12, 0.13], noise_std=1.0, sampling_rate=1.0, max_distance=1.0)
        free = account(composition="running", estimator="student-t", filter_order=4.0)
        free.restore(ours.state())
        reservation = ours.reserve(noise_std=1.0, sampling_rate=1.0, max_distance=1.0)
        reserved = reservation.epsilon()
        for one in (reservation.settle, lambda d: free.step(d, noise_std=1.0, sampling_rate=1.0, max_distance=1.0)):
            one([0.0, 0.0, 0.0, 1.0])
        assert ours.epsilon() == pytest.approx(reserved, rel=1e-12)
        assert free.epsilon() > reserved * 1.01

    def test_standing_charges_what_was_reserved(self) -> None:
        for composition in ("holder", "running"):
            ours = account(composition=composition, filter_order=4.0)
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
            reservation = ours.reserve(**PLAN)
            reserved = reservation.epsilon()
            reservation.charge_in_full()
            assert ours.epsilon() == pytest.approx(reserved, rel=1e-9)
            assert ours.steps == 2

    def test_voiding_charges_nothing(self) -> None:
        ours = account()
        before = ours.state()
        ours.reserve(**PLAN).cancel()
        assert ours.state() == before

    def test_an_estimator_that_refuses_settles_at_the_reservation(self) -> None:
        for sample in ([0.5] * 10, [1.0] * 10, [0.1, 0.2]):
            ours = account(estimator="student-t")
            reservation = ours.reserve(**PLAN)
            reserved = reservation.epsilon()
            assert reservation.settle(sample) is False
            assert ours.epsilon() == pytest.approx(reserved, rel=1e-12)

    def test_bad_evidence_leaves_it_open(self) -> None:
        ours = account()
        reservation = ours.reserve(**PLAN)
        before = ours.state()
        with pytest.raises(InvalidArgument, match=r"^distances:"):
            reservation.settle([0.1, float("nan")])
        assert ours.state() == before
        assert reservation.settle(ACCOUNTING_SAMPLE) is True

    def test_used_once_and_alone(self) -> None:
        ours = account()
        reservation = ours.reserve(**PLAN)
        with pytest.raises(ReservationClosed):
            ours.reserve(**PLAN)
        with pytest.raises(ReservationClosed):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        reservation.settle(ACCOUNTING_SAMPLE)
        for use in (reservation.charge_in_full, reservation.cancel, lambda: reservation.settle(ACCOUNTING_SAMPLE)):
            with pytest.raises(ReservationClosed):
                use()

    def test_without_a_clip_norm_a_refused_sample_is_an_error(self) -> None:
        ours = account(estimator="student-t", cap=False)
        with pytest.raises(EstimatorRefused):
            ours.step([0.5] * 10, noise_std=1.0, sampling_rate=0.1)
        assert ours.steps == 0
        assert ours.epsilon() == 0.0
