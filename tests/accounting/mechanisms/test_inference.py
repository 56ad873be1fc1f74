"""The cost of draws from a posterior, sound and as printed, against simulations and other libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp
from scipy.optimize import minimize

from accounting import ClassicalAccountant, InvalidArgument
from accounting.mechanisms.inference import accumulated_ratio, fit_distance, forgetful_ratio


def gaussian_epsilon(ratio: float, delta: float) -> float:
    """ε of one Gaussian mechanism (Balle & Wang 2018, Theorem 8), by bisection in 50 digits."""
    with mp.workdps(50):
        mu = mp.mpf(ratio)

        def excess(epsilon: Any) -> Any:
            return mp.ncdf(mu / 2 - epsilon / mu) - mp.e**epsilon * mp.ncdf(-mu / 2 - epsilon / mu) - mp.mpf(delta)

        return float(mp.findroot(excess, (mp.mpf("1e-6"), mp.mpf(40)), solver="bisect", tol=1e-30))


def epsilon_of(ratio: float) -> float:
    account = ClassicalAccountant(delta=1e-5)
    account.step(noise_multiplier=1 / ratio, sampling_rate=1.0)
    return account.epsilon()


def hidden_gaps(steps: int, pull: float, shift: float) -> np.ndarray:
    """Two runs of gradient descent on real quadratics that differ in one record: the gap after each step, in h.

    100 records at c_i, loss ½k(w − c_i)², step size a/k: the record that lacks in the second run moves the optimum.
    """
    curvature, noise = 3.0, 0.2
    records = np.random.default_rng(1).normal(size=99)
    # The hundredth lies where the mean moves by shift·h.
    whole = np.append(records, records.mean() + 100 * shift * noise)
    at, without, gaps = 7.0, 7.0, list[float]()
    for _ in range(steps):
        at -= pull / curvature * float(np.mean(curvature * (at - whole)))
        without -= pull / curvature * float(np.mean(curvature * (without - records)))
        gaps.append(abs(at - without) / noise)
    return np.array(gaps)


class TestAsPrinted:
    def test_the_papers_claim_and_the_truth(self) -> None:
        """Claimed .110, true 2.696: T = 200, step × curvature .05, g/h = .05, δ = 1e-5."""
        claimed = forgetful_ratio(steps=200, pull=0.05, shift=0.05)
        true = accumulated_ratio(steps=200, pull=0.05, shift=0.05)
        assert epsilon_of(claimed) == pytest.approx(gaussian_epsilon(claimed, 1e-5), rel=1e-6)
        assert f"{epsilon_of(claimed):.3f}" == "0.110"
        assert f"{epsilon_of(true):.3f}" == "2.696"
        gaps = hidden_gaps(200, 0.05, 0.05)
        assert gaussian_epsilon(float(np.linalg.norm(gaps)), 1e-5) == pytest.approx(2.696, abs=5e-4)

    @pytest.mark.parametrize(("steps", "pull", "shift"), [(1, 0.3, 2.0), (7, 0.5, 0.1), (300, 0.01, 0.7), (40, 0.9, 1)])
    def test_the_gap_is_that_of_two_real_runs(self, steps: int, pull: float, shift: float) -> None:
        gaps = hidden_gaps(steps, pull, shift)
        assert accumulated_ratio(steps=steps, pull=pull, shift=shift) == pytest.approx(np.linalg.norm(gaps), rel=1e-6)
        # What one step's charge sees: both runs at one point, one step.
        assert forgetful_ratio(steps=steps, pull=pull, shift=shift) == pytest.approx(
            gaps[0] * math.sqrt(steps), rel=1e-6
        )

    def test_a_tested_attack_beats_the_claim_and_not_the_truth(self) -> None:
        """Neyman and Pearson's test on the draws themselves: no (claimed ε, 1e-5) mechanism could lose so much."""
        gaps, runs = hidden_gaps(200, 0.05, 0.05), 4000
        rng = np.random.default_rng(2)
        statistic = rng.normal(size=(2, runs, 200)) @ gaps
        statistic[1] += float(gaps @ gaps)
        threshold = float(gaps @ gaps)
        false, true = (float((each > threshold).mean()) for each in statistic)
        # e^.110 · .256 + 1e-5 = .286; the test finds .5. Standard errors are below .008: 25 of them apart.
        assert true > math.exp(epsilon_of(forgetful_ratio(steps=200, pull=0.05, shift=0.05))) * false + 0.15
        assert true < math.exp(2.696) * false + 1e-5

    @pytest.mark.parametrize(("name", "value"), [("steps", 0), ("pull", 1.0), ("pull", 0.0), ("shift", -1.0)])
    def test_what_it_does_not_take_is_named(self, name: str, value: float) -> None:
        given: dict[str, Any] = {"steps": 5, "pull": 0.5, "shift": 0.1} | {name: value}
        for function in (forgetful_ratio, accumulated_ratio):
            with pytest.raises(InvalidArgument, match=name):
                function(**given)


class TestFitDistance:
    @pytest.mark.parametrize("seed", range(6))
    def test_no_record_moves_a_fit_farther(self, seed: int) -> None:
        """Refits without a record by another solver, stopped early: bounded from either fit's gradient."""
        rng = np.random.default_rng(seed)
        records, width = int(rng.integers(5, 60)), int(rng.integers(1, 6))
        inputs, labels = rng.normal(size=(records, width)), rng.integers(0, 2, records)
        curvature, n = float(10 ** rng.uniform(-3, 0)), float(records)
        at = stopped(inputs, labels, curvature, n, rng)
        for i in range(min(records, 12)):
            rest = np.arange(records) != i
            without = stopped(inputs[rest], labels[rest], curvature, n, rng)
            residual = max(
                size(at, inputs, labels, curvature, n), size(without, inputs[rest], labels[rest], curvature, n)
            )
            for point in (at, without):
                own = abs(1 / (1 + math.exp(-float(inputs[i] @ point))) - labels[i]) * float(np.linalg.norm(inputs[i]))
                bound = float(fit_distance([own], records=n, curvature=curvature, residual=residual * 1.0001)[0])
                assert float(np.linalg.norm(at - without)) <= bound

    def test_it_is_tight_where_the_loss_is_linear(self) -> None:
        # ℓ_i(w) = g·w: the minimum is −(1/nΛ) Σ g, and a record moves it by ‖g‖/(nΛ).
        assert fit_distance([0.5], records=20, curvature=0.1)[0] == pytest.approx(0.25, rel=1e-12)
        assert fit_distance([0.5], records=20, curvature=0.1)[0] >= 0.25

    @pytest.mark.parametrize("name", ["records", "curvature", "residual", "gradient_norms"])
    def test_what_it_does_not_take_is_named(self, name: str) -> None:
        given: dict[str, Any] = {"gradient_norms": [1.0], "records": 5.0, "curvature": 0.1, "residual": 0.0}
        given[name] = [-1.0] if name == "gradient_norms" else math.nan
        with pytest.raises(InvalidArgument, match=name):
            fit_distance(**given)


def gradient(at: np.ndarray, inputs: np.ndarray, labels: np.ndarray, curvature: float, n: float) -> np.ndarray:
    return inputs.T @ (1 / (1 + np.exp(-inputs @ at)) - labels) / n + curvature * at


def size(at: np.ndarray, inputs: np.ndarray, labels: np.ndarray, curvature: float, n: float) -> float:
    return float(np.linalg.norm(gradient(at, inputs, labels, curvature, n)))


def stopped(inputs: np.ndarray, labels: np.ndarray, curvature: float, n: float, rng: np.random.Generator) -> np.ndarray:
    """Near the minimum, and not at it."""

    def loss(at: np.ndarray) -> float:
        scores = inputs @ at
        return float((np.logaddexp(0, scores) - labels * scores).sum() / n + curvature / 2 * at @ at)

    found = minimize(loss, np.zeros(inputs.shape[1]), jac=lambda at: gradient(at, inputs, labels, curvature, n))
    return found.x + rng.normal(0, 1e-3, len(found.x))
