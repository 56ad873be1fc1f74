"""Models whose true δ is known exactly, with claims that are wrong there: those must fail, and ours must hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from accounting import BayesianAccountant, BayesianSpec, epsilon_from_moments, log_moment

DELTA, FAILURE = 1e-5, 1e-6


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Exact δ of a Gaussian pair at distance mu (Balle & Wang 2018, Theorem 8)."""
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + stats.norm.logcdf(-mu / 2 - epsilon / mu)))


class TestOneRecordInEveryRound:
    """1 % of the population moves every one of 100 rounds by 1 at noise 5; the others never."""

    ROUNDS, STD, RARE = 100, 5.0, 0.01
    ORDERS = np.arange(1.0, 33.0)

    def true_delta(self, epsilon: float) -> float:
        return self.RARE * gaussian_delta(epsilon, math.sqrt(self.ROUNDS) / self.STD)

    def test_the_product_of_expectations_is_false(self) -> None:
        cost = log_moment(self.ORDERS, 1.0, noise_std=self.STD, sampling_rate=1.0)
        product = self.ROUNDS * np.log1p(self.RARE * np.expm1(cost))
        claimed, _ = epsilon_from_moments(self.ORDERS, product, DELTA)
        assert self.true_delta(claimed) > 70 * DELTA

    @pytest.mark.quick("adaptive-running", "path-running")
    @pytest.mark.parametrize("composition", ["holder", "running"])
    @pytest.mark.parametrize("adversary", ["path", "adaptive"])
    def test_ours_covers_it(self, composition: str, adversary: str) -> None:
        account = BayesianAccountant(
            BayesianSpec(
                orders=self.ORDERS,
                delta=DELTA,
                estimator_failure_probability=FAILURE,
                max_steps=self.ROUNDS,
                estimator="betting",
                composition=composition,  # type: ignore[arg-type]
                adversary=adversary,  # type: ignore[arg-type]
                checkpoints=1 if composition == "running" else None,
            )
        )
        accounting_sample: dict[str, object] = {"distances": [0.0, 1.0], "counts": [9900, 100]}
        if composition == "running":
            accounting_sample = {"distances": np.repeat([0.0, 1.0], [9900, 100])}
        for _ in range(self.ROUNDS):
            account.step(**accounting_sample, noise_std=self.STD, sampling_rate=1.0, max_distance=1.0)  # type: ignore[arg-type]
        assert self.true_delta(account.epsilon()) <= DELTA

    def test_running_sums_are_tighter_where_ranks_change(self) -> None:
        rng = np.random.default_rng(0)
        # At m = 5000 no distribution-free bound can tell them apart; that is Student t's strength.
        found = {}
        for composition in ("holder", "running"):
            account = BayesianAccountant(
                BayesianSpec(
                    orders=[8.0],
                    delta=DELTA,
                    estimator_failure_probability=FAILURE,
                    max_steps=self.ROUNDS,
                    estimator="student-t",
                    composition=composition,  # type: ignore[arg-type]
                    checkpoints=1 if composition == "running" else None,
                )
            )
            for _ in range(self.ROUNDS):
                account.step(rng.beta(1, 9, 5000), noise_std=10.0, sampling_rate=1.0, max_distance=1.0)
            found[composition] = float(account.log_moments()[0])
        assert found["running"] < found["holder"] / 5


class TestTwoAdaptiveRounds:
    """Round 1 hints who is there; round 2 asks about exactly that record.

    K records. Round 1 adds d₁ to the record's own coordinate of K, noise 1. Round 2 asks, with noise 1, whether the
    record of the largest coordinate is there: distance d₂ for that one, 0 for all others. On every path only one in K
    has d₂ > 0, and that is what a path-wise account sees; but with x' present it is nearly always x' himself.
    """

    DELTA, FAILURE = 1e-3, 1e-5
    ORDER, FIRST, SECOND, POPULATION = 0.1, 10.0, 14.77, 26_489_122_130

    def epsilon(self, adversary: str) -> float:
        account = BayesianAccountant(
            BayesianSpec(
                orders=[self.ORDER],
                delta=self.DELTA,
                estimator_failure_probability=self.FAILURE,
                max_steps=2,
                estimator="betting",
                adversary=adversary,  # type: ignore[arg-type]
                cap=False,
            )
        )
        everybody = [self.POPULATION - 1, 1]
        account.step(
            [0.0, self.FIRST], counts=[0, self.POPULATION], noise_std=1.0, sampling_rate=1.0, max_distance=self.FIRST
        )
        account.step([0.0, self.SECOND], counts=everybody, noise_std=1.0, sampling_rate=1.0, max_distance=self.SECOND)
        return account.epsilon()

    def true_delta(self, epsilon: float) -> float:
        """E_P (1 − e^{ε−L})₊ by 200,000 draws of the path with x' present; standard error below 0.002."""
        rng = np.random.default_rng(1)
        own = self.FIRST + rng.normal(size=200_000)
        # The largest of the K − 1 other coordinates, from its distribution function.
        largest = stats.norm.isf(-np.expm1(np.log(rng.uniform(size=200_000)) / (self.POPULATION - 1)))
        loss = self.FIRST * own - self.FIRST**2 / 2
        hit = own > largest
        loss = loss + hit * (self.SECOND * (self.SECOND + rng.normal(size=200_000)) - self.SECOND**2 / 2)
        return float(np.mean(-np.expm1(np.minimum(0.0, epsilon - loss))))

    def test_the_path_claim_fails_visibly(self) -> None:
        assert self.true_delta(self.epsilon("path")) > 500 * self.DELTA

    def test_the_adaptive_claim_covers_it(self) -> None:
        assert self.true_delta(self.epsilon("adaptive")) <= self.DELTA


def test_the_adaptive_inequality_on_random_adaptive_programs() -> None:
    """E e^{λL} ≤ exp(½ max over paths of the ledger at 2λ+1), exactly, for 3,000 random two-round programs.

    Three records, three first outcomes; the second round's laws depend on the first outcome.
    """
    rng = np.random.default_rng(2)
    for _ in range(3000):
        lam = float(rng.choice([0.5, 1.0, 3.0]))
        prior = rng.dirichlet(np.ones(3))
        q1, q2 = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(2), 3)
        # One law per record; sharpness makes some of them nearly deterministic.
        p1 = rng.dirichlet(np.full(3, rng.choice([0.1, 1.0])), 3).clip(1e-6)
        p1 /= p1.sum(axis=1, keepdims=True)
        p2 = rng.dirichlet(np.full(2, rng.choice([0.1, 1.0])), (3, 3)).clip(1e-6)
        p2 /= p2.sum(axis=2, keepdims=True)
        ratio1, ratio2 = p1 / q1, p2 / q2[None]
        joint_p = p1[:, :, None] * p2
        moment = np.sum(prior[:, None, None] * joint_p * (ratio1[:, :, None] * ratio2) ** lam)
        order = 2 * lam + 1
        cost1 = np.log(np.sum(q1 * ratio1 ** (order + 1), axis=1))
        cost2 = np.log(np.sum(q2[None] * ratio2 ** (order + 1), axis=2))
        first = 0.5 * np.log(prior @ np.exp(2 * cost1))
        second = 0.5 * np.log(prior @ np.exp(2 * cost2))
        assert math.log(moment) <= 0.5 * (first + second.max()) + 1e-9


def test_a_step_past_the_horizon_would_undercount() -> None:
    """The weights of 150 steps at 1/100 each sum to 1.5: Hölder's inequality no longer holds.

    Half the population moves by 0 and half by 1 in every round, so the true moment is log E e^{150 φ}.
    """
    order = 4.0
    cost = float(log_moment(order, 1.0, noise_std=5.0, sampling_rate=1.0))
    per_step = float(np.logaddexp(math.log(0.5), math.log(0.5) + 100 * cost)) / 100
    true = float(np.logaddexp(math.log(0.5), math.log(0.5) + 150 * cost))
    assert 150 * per_step < true
    assert 100 * per_step >= float(np.logaddexp(math.log(0.5), math.log(0.5) + 100 * cost)) * (1 - 1e-12)
