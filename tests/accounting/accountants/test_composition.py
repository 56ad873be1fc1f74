"""One noised step and what is seen of it; composition by Hölder's inequality and by running sums."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from accounting import InvalidArgument, Relation, log_moment, replace_one_moment, upper_mean
from accounting.accountants.composition import Measurement, Rows, Step
from accounting.estimation.upper_mean import lower_counts
from accounting.plan.limits import Estimator
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account

ORDERS = np.array([2.0, 4.0, 4.0])
STEP = Step(noise_std=2.0, sampling_rate=0.1, max_distance=1.0)


def test_a_row_that_repeats_an_order_costs_the_same() -> None:
    found = STEP.costs(ORDERS, np.array([0.2, 1.0]))
    exact = log_moment([2.0, 4.0], [0.2, 1.0], noise_std=2.0, sampling_rate=0.1)
    assert found.tolist() == [exact[0].tolist(), exact[1].tolist(), exact[1].tolist()]
    assert STEP.ceiling(ORDERS).tolist() == found[:, 1].tolist()


def test_the_ceiling_is_a_copy() -> None:
    STEP.ceiling(ORDERS)[:] = 0
    assert (STEP.ceiling(ORDERS) > 0).all()


def test_replacing_one_has_its_own_cost() -> None:
    step = Step(noise_std=2.0, sampling_rate=0.1, max_distance=1.0, relation=Relation.REPLACE_ONE)
    exact = replace_one_moment([2.0], [0.5], noise_std=2.0, sampling_rate=0.1)
    assert step.costs(np.array([2.0]), np.array([0.5])).tolist() == exact.tolist()


def test_without_a_clip_norm_there_is_no_ceiling() -> None:
    with pytest.raises(InvalidArgument, match="max_distance"):
        Step(noise_std=2.0, sampling_rate=0.1, max_distance=None).ceiling(ORDERS)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("distances", {"distances": [0.5, 1.5]}),
        ("distances", {"distances": [0.5, 0.5], "counts": [1, 2]}),
        ("count_noise", {"distances": [0.5], "count_noise": 2.0}),
        ("counts", {"distances": [0.5, 1.0], "counts": [1.5, 2]}),
        ("counts", {"distances": [0.5, 1.0], "counts": [0, 0]}),
        ("counts", {"distances": [0.5, 1.0], "counts": [1, 2, 3]}),
        ("sample_size", {"distances": [0.5, 1.0], "counts": [1, 2], "sample_size": 4}),
        ("sample_size", {"distances": [0.5, 1.0], "counts": [-1, 2], "count_noise": 2.0}),
        ("distances", {"distances": [0.2, 0.5], "counts": [-1, 2], "count_noise": 2.0, "sample_size": 9}),
    ],
)
def test_what_was_seen_is_checked_by_name(name: str, values: dict[str, Any]) -> None:
    given = {"counts": None, "count_noise": 0.0, "sample_size": None, "max_distance": 1.0} | values
    with pytest.raises(InvalidArgument) as error:
        Measurement.of(**given)
    assert error.value.argument == name


def test_counts_with_noise_are_moved_up_and_others_left() -> None:
    exact = Measurement.of([0.5, 1.0], [30, 10], 0.0, None, max_distance=1.0)
    noised = Measurement.of([0.5, 1.0], [30, 10], 2.0, 40, max_distance=1.0)
    assert np.asarray(exact.settled_counts(1e-6)).tolist() == [30, 10]
    assert (
        np.asarray(noised.settled_counts(1e-6)).tolist() == lower_counts([30, 10], 2.0, 1e-6, sample_size=40).tolist()
    )


def rows(estimator: Estimator) -> Rows:
    return Rows(np.array([2.0]), np.array([1e-3]), np.array([False]), estimator)


def test_a_row_reads_the_estimator_at_its_ceiling() -> None:
    values = np.array([0.0, 0.1, 0.2, 0.5 + 1e-12] * 20)
    found = rows("betting").bound(values, 1e-3, 0.5)
    assert found == upper_mean(np.minimum(values, 0.5), 1e-3, method="betting", log_max=0.5)


@pytest.mark.parametrize(("estimator", "top"), [("betting", math.inf), ("band", math.inf), ("student-t", 1.0)])
def test_a_row_without_an_estimate_is_infinite(estimator: Estimator, top: float) -> None:
    values = np.array([0.1, math.inf, 0.3]) if estimator == "student-t" else np.array([0.1, 0.2, 0.3])
    assert rows(estimator).bound(values, 1e-3, top) == math.inf


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

    def test_a_mixed_sample_is_refused(self) -> None:
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
        counts, top = [900, 50, 49] + [0] * 27 + [1], max(3.0, ceiling)
        ours.observe(self.EDGES, counts=counts, log_max=top, order=4.0)
        truth = upper_mean(self.EDGES, 1e-6 / (200 * 201), method="betting", log_max=top, counts=counts)
        assert ours.log_moments()[0] == pytest.approx(min(truth, ceiling), rel=1e-12)
        assert truth < ceiling
        ours.step(None, **PLAN)
        assert ours.log_moments()[0] == pytest.approx(truth + ceiling / 200, rel=1e-9)
        assert "own sums" in ours.certificate().resolution

    def test_a_ceiling_below_what_was_charged_here_is_refused(self) -> None:
        """Whoever says that nobody can cost more than 0.01 nats would have every estimate read 0.01."""
        ours = account(orders=[4.0], composition="running", max_steps=None)
        for _ in range(200):
            ours.step(None, **PLAN)
        ceiling, before = float(ours.log_moments()[0]), ours.state()
        for lie in (0.01, ceiling / 2, ceiling * (1 - 1e-6)):
            with pytest.raises(InvalidArgument, match=r"^log_max:"):
                ours.observe([0.0] * 1000, log_max=lie, order=4.0)
        assert ours.state() == before
        # The same steps added in another order end a few units in the last place lower.
        ours.observe([0.0] * 1000, log_max=ceiling * (1 - 1e-13), order=4.0)
        truth = upper_mean([0.0] * 1000, 1e-6 / (200 * 201), method="betting", log_max=ceiling)
        assert ours.log_moments()[0] == pytest.approx(truth, rel=1e-9)

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

    def test_a_second_sample_at_one_step_is_refused(self) -> None:
        """Whoever tries samples until one is lucky would read it at the failure probability of one."""
        ours = account(orders=[4.0], composition="running", max_steps=None)
        ours.step(None, **PLAN)
        ours.observe([0.0, 0.0, 3.0], order=4.0, log_max=3.0)
        again = account(orders=[4.0], composition="running", max_steps=None)
        again.restore(ours.state())
        for one in (ours, again):
            before = one.state()
            with pytest.raises(InvalidArgument, match=r"^log_values: were told at step 1 already"):
                one.observe([0.0] * 1000, order=4.0, log_max=3.0)
            assert one.state() == before
            one.step(None, **PLAN)
            one.observe([0.0] * 1000, order=4.0, log_max=3.0)
