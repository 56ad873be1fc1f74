"""One Bayesian account and one step, for the tests of its parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from accounting import (
    BayesianAccountant,
    BayesianSpec,
)

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
