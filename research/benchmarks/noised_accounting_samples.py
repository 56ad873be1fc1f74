"""What noised histograms of an accounting sample leave of a Bayesian number.

Records whose norms are log-normal and keep their rank; ε at the filter order after all steps, of worst cases alone, of
noised histograms (their own charge included), and of the accounting sample as it is, which no coordinator may see.
Run with `python -m research.benchmarks.noised_accounting_samples`.
"""

from __future__ import annotations

import numpy as np

from accounting import BayesianAccountant, BayesianSpec, epsilon_from_moments
from accounting.accountants.noised_sums import BINS, NoisedSums
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import SecureSource

ORDER, DELTA, FAILURE, STEPS, HISTOGRAMS = 8.0, 1e-5, 1e-6, 100, 5
STEP = {"noise_std": 10.0, "sampling_rate": 1.0, "max_distance": 1.0}


def epsilon(moment: float) -> float:
    return epsilon_from_moments([ORDER], [moment], DELTA - FAILURE)[0]


def measure(records: int, noise_std: float, seed: int) -> tuple[float, float, float]:
    """ε of (worst cases, noised histograms, the accounting sample as it is)."""
    random, source = np.random.default_rng(seed), SecureSource()
    spec = BayesianSpec(
        orders=[ORDER],
        delta=DELTA,
        estimator_failure_probability=FAILURE,
        max_steps=STEPS,
        composition="running",
        estimator="betting",
        filter_order=ORDER,
        checkpoints=HISTOGRAMS,
    )
    noised, exact = NoisedSums(spec, records=records, noise_std=noise_std), BayesianAccountant(spec)
    norms = random.lognormal(-2.5, 0.6, records)
    for step in range(1, STEPS + 1):
        distances = np.minimum(norms * random.lognormal(0, 0.2, records), 1.0)
        noised.step(distances, **STEP)
        exact.step(distances, **STEP)
        if step % (STEPS // HISTOGRAMS) == 0:
            noised.publish(noised.histogram() + sampler(noise_std).sample(BINS, source))
    worst = STEPS * ORDER * (ORDER + 1) / (2 * 10.0**2)
    return epsilon(worst), epsilon(noised.filter_moment()), epsilon(exact.filter_moment())


def main() -> None:
    print(f"{'records':>8} {'z':>4} {'worst case':>11} {'noised':>7} {'as it is':>9}")
    for records in (300, 1000, 5000, 20000):
        for noise_std in (10.0, 20.0, 40.0):
            worst, reported, exact = np.mean([measure(records, noise_std, seed) for seed in range(3)], axis=0)
            print(f"{records:8d} {noise_std:4.0f} {worst:11.3f} {reported:7.3f} {exact:9.3f}")


if __name__ == "__main__":
    main()
