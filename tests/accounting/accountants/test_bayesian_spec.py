"""What is fixed beforehand is checked once, and named where it is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from accounting import (
    BayesianSpec,
    ClassicalAccountant,
    Definition,
    Guarantee,
    InvalidArgument,
    Level,
    Observer,
    Relation,
)
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account


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
