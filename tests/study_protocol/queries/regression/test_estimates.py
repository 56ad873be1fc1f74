"""What is read off noised sums: the noise's covariance by simulation, the frame, and when there is no estimate."""

from __future__ import annotations

import numpy as np
import pytest

from study_protocol.queries.regression.estimates import ReleasedSums, fit, remainder, stands_out


def sums(information: np.ndarray, gradient: np.ndarray | None = None, noise: float = 0.1) -> ReleasedSums:
    size = len(information)
    start = np.zeros(size) if gradient is None else gradient
    return ReleasedSums(start, information, 0.3, noise, np.ones((size, size), bool), size - 1)


def test_covariance_of_the_noise_is_that_of_simulated_noise() -> None:
    generator, step = np.random.default_rng(1), np.array([0.5, -2.0, 1.0])
    released = sums(np.eye(3) * 50)
    count = 200_000
    upper = np.triu(generator.standard_normal((count, 3, 3))) * 0.1
    diagonal = np.eye(3, dtype=bool)
    symmetric = np.where(diagonal, upper, upper / np.sqrt(2))
    symmetric = symmetric + np.triu(symmetric, 1).transpose(0, 2, 1)
    drawn = generator.standard_normal((count, 3)) * 0.3 - symmetric @ step
    # Relative deviations of variances are √(2/200,000) = 0.3 %: 5 of them.
    assert released.noise_at(np.outer(step, step)) == pytest.approx(
        np.cov(drawn.T), abs=0.016 * float(np.cov(drawn.T).max())
    )


def test_hospitals_have_no_noise_between_their_intercepts() -> None:
    mask = np.array([[True, True, True], [True, True, False], [True, False, True]])
    released = ReleasedSums(np.zeros(3), np.eye(3), 0.0, 1.0, mask, 1)
    step = np.array([0.0, 1.0, 1.0])
    covariance = released.noise_at(np.outer(step, step))
    assert float(covariance[1, 2]) == 0
    assert np.diag(covariance) == pytest.approx([1.0, 1.0, 1.0])


def test_a_whitened_frame_has_mean_0_and_covariance_1() -> None:
    generator = np.random.default_rng(4)
    rows = np.column_stack([generator.standard_normal((800, 3)) @ generator.standard_normal((3, 3)) + 2, np.ones(800)])
    whitening = sums(rows.T @ rows, noise=1e-6).whitening(np.zeros(3))
    assert whitening is not None
    centre, matrix = whitening
    white = (rows[:, :3] - centre) @ matrix.T
    assert white.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-8)
    assert white.T @ white / 800 == pytest.approx(np.eye(3), abs=1e-6)


def test_an_eigenvalue_below_the_noise_is_floored_and_said() -> None:
    weak = sums(np.diag([40.0, 0.01, 50.0]))
    assert not stands_out(weak)
    assert np.linalg.eigvalsh(weak.definite)[0] == pytest.approx(0.1 * np.sqrt(6))
    assert stands_out(sums(np.diag([40.0, 1.0, 50.0])))
    negative = sums(np.diag([40.0, -1.0, 50.0]))
    assert np.isfinite(negative.newton()).all()
    assert sums(np.zeros((3, 3))).whitening(np.zeros(2)) is None


def test_a_long_last_step_has_a_large_remainder() -> None:
    information = np.diag([100.0, 100.0, 100.0])
    near, far = (sums(information, np.array([length, 0.0, 0.0])) for length in (5.0, 300.0))
    assert remainder(near, fit(near, "logistic")) < 0.1
    assert remainder(far, fit(far, "logistic")) > 1


def test_intervals_hold_where_most_answers_are_refused() -> None:
    """The information is at its floor, so that noise decides which answers are given.

    Of some 430 answers 95 % hold the truth. That is below 92.5 % by chance once in 100.
    """
    generator, size, truth = np.random.default_rng(1), 3, np.array([1.0, -1.0, 0.0])
    exact = np.diag([2.5, 2.5, 40.0])
    held: list[float] = []
    for _ in range(3000):
        lower = np.tril(generator.normal(0, np.sqrt(0.5), (size, size)), -1)
        noise = lower + lower.T + np.diag(generator.normal(0, 1, size))
        gradient = exact @ truth + generator.normal(0, 0.3, size)
        mask = np.ones((size, size), bool)
        released = ReleasedSums(gradient, exact + noise, 0.3, 1.0, mask, 2, 0.3 + float(truth @ exact @ truth), 0.1)
        if stands_out(released):
            fitted = fit(released, "linear")
            errors = np.sqrt(np.diag(fitted.noise + fitted.sampling))
            held.append(float((np.abs(fitted.step - truth) < 1.96 * errors)[:2].mean()))
    assert 300 < len(held) < 600
    assert np.mean(held) > 0.925
