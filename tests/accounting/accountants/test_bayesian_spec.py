"""What is fixed beforehand is checked once, and named where it is wrong."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from accounting import BayesianSpec, InvalidArgument
from tests.accounting.accountants.bayesian_account import account


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


def test_rows_are_the_statements_then_the_filters() -> None:
    spec = BayesianSpec(orders=[2, 8], delta=1e-5, estimator_failure_probability=1e-6, filter_order=4)
    assert spec.rows.tolist() == [2, 8, 4]
    assert spec.rows[spec.enforced].tolist() == [4]
    assert spec.beta == 1e-5 - 1e-6


def test_it_is_frozen() -> None:
    spec = BayesianSpec(orders=[2], delta=1e-5, estimator_failure_probability=1e-6)
    with pytest.raises(FrozenInstanceError):
        spec.delta = 0.5  # type: ignore[misc]
