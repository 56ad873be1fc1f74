"""Windows of later patients in a hospital's own accounts: summed, and on both sides over all studies."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from client_sdk.errors import OwnBudgetExceeded
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent
from client_sdk.guard.study_count import require_within_study
from study_protocol.study.plan_of import plan_of
from tests.factories.monitored_studies import monitored_study, monitoring
from tests.factories.settings import limit

GAUSSIAN = OwnLimit("instance", 8.0, 1e-5, 8.0, "gaussian")


def closed_form(mu: float, delta: float = 1e-5) -> float:
    """ε of a Gaussian mechanism with Δ/s = mu (Balle & Wang 2018)."""

    def excess(epsilon: float) -> float:
        tail = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(tail) - delta

    root: Any = brentq(excess, 1e-6, 40.0)
    return float(root)


def window() -> Charge:
    return Charge.of_query(monitoring().cost(), later=True)


def test_windows_add_up_with_training_on_both_sides() -> None:
    training = Charge("instance", 2.0, 1.0, 1, bears="trained")
    evaluation = Charge("instance", 4.0, 1.0, 1, bears="evaluated", asks=True)
    squares = [3 / 4.0, 4 / 13.3**2, 2 / 16.0]
    charges = [*[training] * 3, *[window()] * 4, *[evaluation] * 2]
    by_hand = closed_form(math.sqrt(squares[0] + squares[1]))
    assert epsilon_spent(charges, GAUSSIAN) == pytest.approx(by_hand, rel=1e-3)
    assert epsilon_spent(charges, GAUSSIAN) >= by_hand
    aside = closed_form(math.sqrt(squares[1] + squares[2]))
    assert epsilon_spent(charges[3:], GAUSSIAN) == pytest.approx(aside, rel=1e-3)


def test_the_studys_own_limit_is_kept_for_those_who_are_never_trained_on() -> None:
    """Four windows come to about ε 0.54, beside training that has used all of the limit."""
    four = closed_form(math.sqrt(4 / 13.3**2))
    for epsilon, fits in ((four * 1.02, True), (four * 0.98, False)):
        limits = [limit("instance", epsilon=epsilon, enforcement="gaussian-filter")]
        plan = plan_of(monitored_study(limits=limits, noise_multiplier=200.0, sampling_rate=1.0))
        if fits:
            require_within_study(plan, [window()] * 3, window())
            continue
        with pytest.raises(OwnBudgetExceeded):
            require_within_study(plan, [window()] * 3, window())
