"""The printed accounting of variational inference forgets; the true one trains again without the record."""

from __future__ import annotations

import numpy as np

from accounting.mechanisms.inference import accumulated_ratio
from research.bayesian.printed_inference import cost, trajectory
from research.bayesian.survey_data import SurveyRecords


def test_the_truth_is_far_above_the_claim_and_what_a_quadratic_loss_says() -> None:
    rng = np.random.default_rng(3)
    inputs = np.column_stack([rng.uniform(-1, 1, size=(200, 2)), np.ones(200)])
    records = SurveyRecords(inputs, (rng.random(200) < 1 / (1 + np.exp(-inputs @ (2, -1, 0.3)))).astype(np.int64))
    whole, std = trajectory(records, 200, 150, 0.5)
    found = cost(records, 0, whole, std, 0.5)
    assert found.true > 5 * found.claimed > 0
    # Along one direction the loss is nearly quadratic, and the gap follows the law of `accumulated_ratio`: between what
    # its flattest and its steepest direction would say of the same first step.
    without, _ = trajectory(records[np.arange(1, 200)], 200, 150, 0.5)
    gaps = np.linalg.norm(whole - without, axis=1) / std
    likely = 1 / (1 + np.exp(-inputs @ whole[-1]))
    curved = (inputs * (likely * (1 - likely))[:, None]).T @ inputs / 200 + np.eye(3) / (2.5**2 * 200)
    steep, flat = (
        accumulated_ratio(steps=150, pull=float(pull), shift=float(gaps[0] / pull))
        for pull in 0.5 * np.linalg.eigvalsh(curved)[[-1, 0]]
    )
    assert 0.9 * steep < float(np.linalg.norm(gaps)) < 1.1 * flat
