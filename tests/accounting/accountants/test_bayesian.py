"""The Bayesian accountant: the authors' numbers, exact populations, max_steps, filters, reservations, state."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from accounting import (
    BayesianAccountant,
    BayesianSpec,
    ClassicalAccountant,
    Definition,
    EstimatorRefused,
    Guarantee,
    InvalidArgument,
    Level,
    LimitExceeded,
    MaxStepsExceeded,
    Observer,
    Relation,
    ReservationClosed,
    epsilon_from_moments,
    log_moment,
    replace_one_moment,
    upper_mean,
)
from accounting.estimation.upper_mean import lower_counts

AUTHORS = [0.10, 0.12, 0.15, 0.09, 0.20, 0.11, 0.13, 0.30]
ACCOUNTING_SAMPLE = np.random.default_rng(3).beta(1, 5, 300)
PLAN = {"noise_std": 2.0, "sampling_rate": 0.1, "max_distance": 1.0}


def account(**settings: Any) -> BayesianAccountant:
    defaults: dict[str, Any] = {
        "orders": (1.0, 2.0, 4.0, 8.0, 16.0),
        "delta": 1e-5,
        "estimator_failure_probability": 1e-6,
        "max_steps": 20,
        "estimator": "betting",
    }
    return BayesianAccountant(BayesianSpec(**(defaults | settings)))


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


class TestCertificate:
    def test_it_names_everything(self) -> None:
        ours = account(estimator="student-t", level=Level.CLIENT, observer=Observer.COORDINATOR)
        ours.step(ACCOUNTING_SAMPLE, noise_std=2.0, sampling_rate=0.1, max_distance=1.0)
        ours.step(ACCOUNTING_SAMPLE, noise_std=2.0, sampling_rate=0.3, max_distance=1.0)
        found = ours.certificate()
        assert (found.level, found.observer, found.definition) == (
            Level.CLIENT,
            Observer.COORDINATOR,
            Definition.BAYESIAN,
        )
        assert found.relation is Relation.ADD_REMOVE
        assert found.sampling_rate == (0.1, 0.3)
        assert (found.beta, found.gamma, found.max_steps, found.steps) == (1e-5 - 1e-6, 1e-6, 20, 2)
        assert "e^{TλD} is normal" in found.assumption

    @pytest.mark.parametrize(
        ("estimator", "adversary", "sample", "definition"),
        [
            ("betting", "adaptive", "held-out", "certified"),
            ("student-t", "adaptive", "held-out", "bayesian"),
            ("betting", "path", "held-out", "bayesian"),
            ("betting", "adaptive", "members", "bayesian"),
        ],
    )
    def test_certified_needs_all_three(self, estimator: str, adversary: str, sample: str, definition: str) -> None:
        ours = account(estimator=estimator, adversary=adversary, sample=sample)
        assert ours.certificate().definition == definition

    def test_a_classical_certificate_of_the_same_claim_caps_it(self) -> None:
        ours, worst = account(), ClassicalAccountant(delta=1e-5)
        for _ in range(20):
            ours.step(None, **PLAN)
            worst.step(noise_multiplier=2.0, sampling_rate=0.1)
        capped = ours.certificate(classical=worst.certificate())
        assert capped.capped
        assert capped.epsilon == worst.epsilon() < ours.epsilon()

    def test_a_certificate_of_another_claim_does_not(self) -> None:
        ours = account()
        for other in (
            ClassicalAccountant(delta=1e-6),
            ClassicalAccountant(delta=1e-5, level=Level.CLIENT),
            ClassicalAccountant(delta=1e-5, observer=Observer.COORDINATOR),
        ):
            other.step(noise_multiplier=2.0, sampling_rate=0.1)
            with pytest.raises(InvalidArgument, match=r"^classical:"):
                ours.certificate(classical=other.certificate())

    def test_an_infinite_epsilon_is_a_state_not_a_number(self) -> None:
        found = Guarantee(
            epsilon=math.inf,
            delta=1e-5,
            level=Level.CLIENT,
            definition=Definition.CLASSICAL,
            relation=Relation.ZERO_OUT,
            observer=Observer.RELEASES,
            assumption="Assumes nothing and promises nothing.",
        )
        written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert (written["epsilon"], written["state"]) == (None, "unbounded")
        assert Guarantee.from_dict(written) == found


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
    ("name", "settings"),
    [
        ("orders", {"orders": []}),
        ("orders", {"orders": [2, 1]}),
        ("orders", {"orders": [0.0, 1]}),
        ("delta", {"delta": 0.0}),
        ("delta", {"delta": float("nan")}),
        ("estimator_failure_probability", {"estimator_failure_probability": 0.0}),
        ("estimator_failure_probability", {"estimator_failure_probability": 1e-5}),
        ("estimator_failure_probability", {"estimator_failure_probability": 2e-5}),
        ("max_steps", {"max_steps": 0}),
        ("max_steps", {"max_steps": 2.5}),
        ("composition", {"composition": "product"}),
        ("estimator", {"estimator": "mean"}),
        ("adversary", {"adversary": "none"}),
        ("conversion", {"conversion": "best"}),
        ("sample", {"sample": "all"}),
        ("filter_order", {"filter_order": -1.0}),
        ("limit_epsilon", {"limit_epsilon": 1.0}),
        ("limit_epsilon", {"limit_epsilon": 0.0, "filter_order": 1.0}),
        ("weights", {"weights": [0.5, 0.6], "max_steps": 2}),
        ("weights", {"weights": [0.5, 0.0], "max_steps": 2}),
        ("weights", {"weights": [0.5, 0.4]}),
        ("weights", {"weights": [0.5], "composition": "running"}),
        ("checkpoints", {"checkpoints": 3}),
        ("checkpoints", {"checkpoints": [2, 2], "composition": "running"}),
        ("checkpoints", {"checkpoints": 0, "composition": "running"}),
        ("checkpoints", {"checkpoints": 3, "composition": "running", "max_steps": None}),
    ],
)
def test_bad_settings_are_refused_by_name(name: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        account(**settings)


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
