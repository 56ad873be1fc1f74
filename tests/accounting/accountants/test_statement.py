"""What a Bayesian account states."""

from __future__ import annotations

import json
import math

import pytest

from accounting import (
    ClassicalAccountant,
    Definition,
    Guarantee,
    InvalidArgument,
    Level,
    Observer,
    Relation,
)
from tests.accounting.accountants.bayesian_account import ACCOUNTING_SAMPLE, PLAN, account


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
