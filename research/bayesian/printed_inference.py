"""Variational inference as the ICML paper prints it, and its true cost: python -m research.bayesian.printed_inference

Logistic regression on Abalone (section 5 of the paper, 5.5.3 of the thesis): no noise is added; after every step
weights are drawn from the posterior and published, its parameters stay hidden. For a sample of records it prints the ε
that the printed accounting claims, from what the record changed in each step by itself, beside the true one, from
training again without the record: the whole gap between the hidden parameters is told by every draw.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from accounting import ClassicalAccountant
from private_learning.tasks.bayesian import start_log_std
from private_learning.training.posterior import PosteriorPlan, draw_posterior, fit_posterior, posterior_probabilities
from research.bayesian.central_inference import Posterior, gradients
from research.bayesian.survey_data import SurveyRecords, SurveySplit, abalone
from study_protocol.randomness.source import SeededSource

Floats = npt.NDArray[np.float64]
DELTA = 1e-5
_PRIOR_STD = 2.5


@dataclass(frozen=True)
class Cost:
    """ε of one record, over all draws."""

    claimed: float
    true: float


def trajectory(records: SurveyRecords, denominator: int, steps: int, rate: float) -> tuple[Floats, float]:
    """(steps, d) hidden means after each step of gradient descent, and the draws' standard deviation.

    denominator  n of the mean loss and of the prior's weight: the same with and without a record
    """
    log_std = start_log_std(_PRIOR_STD, denominator)
    size = records.inputs.shape[1]
    mean, draws = np.zeros(size), list[Floats]()
    for _ in range(steps):
        at = Posterior(mean, np.full(size, log_std), np.zeros(size))
        slope = gradients(records, at)[:, :size].sum(0)
        mean = mean - rate / denominator * (slope + mean / _PRIOR_STD**2)
        draws.append(mean)
    return np.array(draws), math.exp(log_std)


def cost(records: SurveyRecords, row: int, whole: Floats, std: float, rate: float) -> Cost:
    """What the draws cost record `row`; whole: the hidden means with it."""
    rest = np.delete(np.arange(len(records)), row)
    without, _ = trajectory(records[rest], len(records), len(whole), rate)
    record, size = records[np.array([row])], records.inputs.shape[1]
    # One step's part, from where the parameters stood before it.
    before = np.vstack([np.zeros(size), whole[:-1]])
    at = [Posterior(mean, np.full(size, math.log(std)), np.zeros(size)) for mean in before]
    parts = [float(np.linalg.norm(gradients(record, each)[0, :size])) * rate / len(records) for each in at]
    return Cost(_epsilon(float(np.linalg.norm(parts)) / std), _epsilon(float(np.linalg.norm(whole - without)) / std))


def _epsilon(ratio: float) -> float:
    """Of a Gaussian mechanism with that distance over noise."""
    if ratio == 0:
        return 0.0
    account = ClassicalAccountant(delta=DELTA)
    account.step(noise_multiplier=1 / ratio, sampling_rate=1.0)
    return account.epsilon()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rate", type=float, default=1.0)
    parser.add_argument("--records", type=int, default=20, help="how many are left out, one at a time")
    options = parser.parse_args()
    train = abalone(0).train
    whole, std = trajectory(train, len(train), options.steps, options.rate)
    costs = [cost(train, row, whole, std, options.rate) for row in range(options.records)]
    print(f"abalone, {len(train)} records, {options.steps} draws with standard deviation {std:.3f}, δ = {DELTA:g}")
    print(f"{'record':>8} {'ε as printed':>14} {'ε in truth':>12}")
    for name, pick in (("median", np.median), ("largest", np.max)):
        claimed, true = (float(pick([getattr(each, kind) for each in costs])) for kind in ("claimed", "true"))
        print(f"{name:>8} {claimed:14.3f} {true:12.3f}")
    print(_sound(abalone(0)))


def _sound(split: SurveySplit) -> str:
    """One draw from around a fit, for comparison: its worst-case ε, and how good it is."""
    train, test = split.train, split.test
    plan = PosteriorPlan(records=len(train), curvature=0.02, bound=2.0, std=1.0)
    fit = fit_posterior(train.inputs, train.labels, plan)
    weights = draw_posterior(fit, plan, SeededSource(0, allow_insecure=True))
    right = ((posterior_probabilities(weights, test.inputs, plan.bound) > 0.5) == test.labels).mean()
    epsilon = plan.guarantee(DELTA).epsilon
    caption = f"one draw from around a fit, noise {plan.std:g}: ε = {epsilon:.3f} for any record"
    return f"{caption}, accuracy {100 * right:.1f} %"


if __name__ == "__main__":
    main()
