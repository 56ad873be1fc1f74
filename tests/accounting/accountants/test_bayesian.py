"""The Bayesian accountant: the authors' numbers, exact populations, max_steps, filters, reservations, state."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from accounting import (
    EstimatorRefused,
    InvalidArgument,
    LimitExceeded,
    MaxStepsExceeded,
    Relation,
    ReservationClosed,
    epsilon_from_moments,
    log_moment,
    replace_one_moment,
)
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account

AUTHORS = [0.10, 0.12, 0.15, 0.09, 0.20, 0.11, 0.13, 0.30]


class TestTheAuthorsCase:
    """One published case of the authors' code: q = .01, σ = 1, λ = 32, δ = 1e-5, γ = 2⁻⁵³ per step."""

    @pytest.mark.parametrize(("steps", "epsilon"), [(1, 0.365866), (100, 0.465674)])
    def test_compatibility_mode_agrees(self, steps: int, epsilon: float) -> None:
        ours = account(
            orders=[32],
            estimator_failure_probability=1.11e-16 * steps,
            max_steps=steps,
            estimator="student-t",
            conversion="chernoff",
            cap=False,
        )
        for _ in range(steps):
            ours.step(AUTHORS, noise_std=1.0, sampling_rate=0.01)
        # The reference has six digits; half a unit of the last one is 1.4e-6 relative.
        assert ours.epsilon() == pytest.approx(epsilon, abs=1e-6)

    def test_capped_it_cannot_exceed_the_worst_case(self) -> None:
        ours = account(orders=[32], estimator_failure_probability=1e-12, max_steps=1, estimator="student-t")
        ours.step(AUTHORS, noise_std=1.0, sampling_rate=0.01, max_distance=0.3)
        worst = log_moment([32], 0.3, noise_std=1.0, sampling_rate=0.01)
        assert ours.log_moments() <= worst


class TestAdversaries:
    @pytest.mark.parametrize("composition", ["holder", "running"])
    def test_adaptive_is_half_the_ledger_at_twice_the_order_plus_one(self, composition: str) -> None:
        settings: dict[str, Any] = {"composition": composition, "cap": False}
        adaptive = account(orders=[3.0], adversary="adaptive", **settings)
        path = account(orders=[7.0], **settings)
        for one in (adaptive, path):
            one.step(ACCOUNTING_SAMPLE, **PLAN)
        assert adaptive.log_moments()[0] == pytest.approx(path.log_moments()[0] / 2, rel=1e-12)

    def test_the_cap_is_the_classical_moment_at_the_conversion_order(self) -> None:
        ours = account(orders=[3.0], adversary="adaptive")
        ours.step(None, **PLAN)
        assert ours.log_moments()[0] == pytest.approx(
            float(log_moment(3.0, 1.0, noise_std=2.0, sampling_rate=0.1)), rel=1e-12
        )


class TestMaxSteps:
    @pytest.mark.parametrize("composition", ["holder", "running"])
    def test_a_step_past_it_is_refused_and_changes_nothing(self, composition: str) -> None:
        ours = account(max_steps=2, composition=composition)
        for _ in range(2):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        before = ours.state()
        with pytest.raises(MaxStepsExceeded, match="3"):
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        with pytest.raises(MaxStepsExceeded):
            ours.reserve(**PLAN)
        assert ours.state() == before

    def test_a_reservation_of_several_steps_must_fit(self) -> None:
        ours = account(max_steps=3)
        with pytest.raises(MaxStepsExceeded):
            ours.reserve(steps=4, **PLAN)
        ours.reserve(steps=3, **PLAN).charge_in_full()
        assert ours.steps == 3


class TestFilter:
    def test_epsilon_is_read_at_the_fixed_order_with_the_whole_failure(self) -> None:
        ours = account(filter_order=4.0)
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        alone = account(orders=[4.0])
        alone.step(ACCOUNTING_SAMPLE, **PLAN)
        assert ours.filter_moment() == pytest.approx(float(alone.log_moments()[0]), rel=1e-12)
        assert ours.epsilon() == epsilon_from_moments(4.0, ours.filter_moment(), 9e-6)[0]
        assert ours.certificate().order == 4.0
        assert ours.report().orders == (1.0, 2.0, 4.0, 8.0, 16.0)

    @pytest.mark.quick("adaptive-holder")
    @pytest.mark.parametrize("composition", ["holder", "running"])
    @pytest.mark.parametrize("adversary", ["path", "adaptive"])
    def test_it_never_lets_epsilon_past_the_limit(self, composition: str, adversary: str) -> None:
        ours = account(
            max_steps=1000, composition=composition, adversary=adversary, filter_order=6.0, limit_epsilon=2.5
        )
        while ours.project(**PLAN) <= 2.5:
            ours.step(ACCOUNTING_SAMPLE, **PLAN)
        assert ours.steps > 3
        assert ours.epsilon() <= 2.5
        before = ours.state()
        for refused in (lambda: ours.step(ACCOUNTING_SAMPLE, **PLAN), lambda: ours.reserve(**PLAN)):
            with pytest.raises(LimitExceeded):
                refused()
        assert ours.state() == before

    @pytest.mark.parametrize(("composition", "adversary"), [("running", "path"), ("holder", "adaptive")])
    def test_the_limit_is_certified_where_the_running_value_is_no_promise(
        self, composition: str, adversary: str
    ) -> None:
        ours = account(composition=composition, adversary=adversary, filter_order=6.0, limit_epsilon=2.5)
        ours.step(ACCOUNTING_SAMPLE, **PLAN)
        assert ours.certificate().epsilon == 2.5
        assert ours.epsilon() < 2.5

    def test_an_adaptive_account_without_a_limit_says_so(self) -> None:
        assert "enforced no limit" in account(adversary="adaptive").certificate().assumption
        assert "enforced no limit" not in account().certificate().assumption


class TestState:
    @pytest.mark.parametrize("composition", ["holder", "running"])
    def test_it_goes_on_bit_for_bit_after_json(self, composition: str) -> None:
        rng = np.random.default_rng(6)
        straight, restored = (account(composition=composition, filter_order=4.0) for _ in range(2))
        for t in range(8):
            accounting_sample = rng.beta(1, 4, 50)
            reservations = [one.reserve(**PLAN) for one in (straight, restored)]
            if t % 3 == 0:
                saved = json.loads(json.dumps(restored.state(), allow_nan=False))
                restored = account(composition=composition, filter_order=4.0)
                restored.restore(saved)
                assert restored.pending is not None
                reservations[1] = restored.pending
            for reservation in reservations:
                reservation.settle(accounting_sample)
        assert restored.state() == straight.state()
        assert restored.epsilon() == straight.epsilon()

    def test_another_accountants_state_is_refused(self) -> None:
        ours = account()
        with pytest.raises(InvalidArgument, match=r"^state:"):
            ours.restore(account(delta=1e-6, estimator_failure_probability=1e-7).state())


def test_delta_for_an_epsilon_charges_the_failure_too() -> None:
    ours = account()
    assert ours.delta_for(1.0) == 0.0
    ours.step(ACCOUNTING_SAMPLE, **PLAN)
    assert ours.delta_for(ours.epsilon()) == pytest.approx(1e-5, rel=1e-6)
    assert ours.delta_for(1e6) == pytest.approx(1e-6, rel=1e-9)


def test_replace_one_uses_its_own_cost() -> None:
    ours = account(orders=[4.0], relation=Relation.REPLACE_ONE)
    ours.step(None, **PLAN)
    assert ours.log_moments()[0] == pytest.approx(
        float(replace_one_moment(4.0, 1.0, noise_std=2.0, sampling_rate=0.1)), rel=1e-12
    )


@pytest.mark.parametrize(
    ("name", "settings", "arguments"),
    [
        ("max_distance", {}, {"distances": [0.1] * 5, "max_distance": None}),
        ("max_distance", {"estimator": "student-t"}, {"distances": [0.1] * 5, "max_distance": None}),
        ("distances", {"estimator": "student-t", "cap": False}, {"distances": None, "max_distance": None}),
        ("counts", {}, {"distances": None, "counts": [1]}),
        ("counts", {}, {"distances": [0.5, 1.0], "counts": [1]}),
        ("counts", {}, {"distances": [0.5, 1.0], "counts": [0, 0]}),
        ("counts", {}, {"distances": [0.5, 1.0], "counts": [-1, 5]}),
        ("counts", {}, {"distances": [0.5, 1.0], "counts": [0.5, 5]}),
        ("distances", {}, {"distances": [1.0, 0.5], "counts": [1, 5]}),
        ("sample_size", {}, {"distances": [0.5, 1.0], "counts": [1, 5], "sample_size": 7}),
        ("sample_size", {}, {"distances": [0.5, 1.0], "counts": [1, 5], "count_noise": 1.0}),
        ("distances", {}, {"distances": [0.5, 0.9], "counts": [1, 5], "count_noise": 1.0, "sample_size": 6}),
        (
            "count_noise",
            {"estimator": "bernstein"},
            {"distances": [0.5, 1.0], "counts": [1, 5], "count_noise": 1.0, "sample_size": 6},
        ),
    ],
)
def test_bad_steps_are_refused_by_name(name: str, settings: dict[str, Any], arguments: dict[str, Any]) -> None:
    ours = account(**settings)
    before = ours.state()
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        ours.step(**(PLAN | arguments))
    assert ours.state() == before


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
