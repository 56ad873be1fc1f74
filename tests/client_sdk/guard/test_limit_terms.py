"""The rule of a hospital's ledger: fixed with the first study, the same after a restart, refused by another policy."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import mpmath
import pytest

from accounting.mechanisms.gaussian_squares import largest_squares
from client_sdk.errors import ConfigurationError, LedgerDamaged
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.limit_terms import LedgerTerms, WholePlan, agreed
from client_sdk.guard.policy_limits import Limits
from private_learning.records import TableFormat

GAUSSIAN = Limits.model_validate({"rule": "gaussian", "whole_plans": 0.25})
UNNAMED = Limits()


def opened(directory: Path) -> HospitalLedger:
    return HospitalLedger.open(ledger_path(directory, "icu"))


def test_the_rule_is_fixed_with_the_first_study_and_survives(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.fix_terms(GAUSSIAN) == LedgerTerms("gaussian", 0.25)
        # Started again before it joined: no second entry.
        ledger.fix_terms(GAUSSIAN)
        assert len(ledger.entries) == 1
        ledger.open_study("sepsis", {})
    with opened(tmp_path) as again:
        assert again.terms(UNNAMED) == again.fix_terms(GAUSSIAN) == LedgerTerms("gaussian", 0.25)
        assert len(again.entries) == 2
        with pytest.raises(ConfigurationError, match=r'\[limits\] rule = "renyi".* set rule = "gaussian"'):
            again.terms(Limits.model_validate({"rule": "renyi"}))
        with pytest.raises(ConfigurationError, match=r"set whole_plans = 0\.25"):
            again.fix_terms(Limits.model_validate({"whole_plans": 0.5}))


def test_a_ledger_without_the_entry_keeps_rényi_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        assert ledger.fix_terms(UNNAMED) == LedgerTerms()
        assert ledger.entries == ()
        ledger.open_study("sepsis", {})
        with pytest.raises(ConfigurationError, match='begun under "renyi"'):
            ledger.fix_terms(GAUSSIAN)
        assert ledger.terms(Limits.model_validate({"rule": "renyi", "whole_plans": 0.0})) == LedgerTerms()


def test_before_the_first_study_the_policy_may_still_change_it(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.declare_format(TableFormat(separator="comma"))
        ledger.fix_terms(GAUSSIAN)
        assert ledger.fix_terms(Limits.model_validate({"rule": "renyi", "whole_plans": 0.0})) == LedgerTerms()
        assert ledger.fix_terms(UNNAMED) == LedgerTerms()


def test_terms_of_a_later_version_are_not_guessed() -> None:
    for body in (
        {"version": 2, "rule": "gaussian", "whole_plans": 0.0},
        {"version": 1, "rule": "x", "whole_plans": 0.0},
    ):
        with pytest.raises(LedgerDamaged, match="install the version"):
            LedgerTerms.from_dict(body)
    with pytest.raises(LedgerDamaged, match="install the version"):
        WholePlan.from_dict({"version": 2})
    plan = WholePlan("instance", 1.5, 1e-6, 30)
    assert WholePlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan


def test_what_is_set_aside_and_the_rest_are_never_more_than_the_limit() -> None:
    for share in (0.1, 1 / 3, 0.5, 0.9, 1 - 2.0**-53):
        terms = LedgerTerms("gaussian", share)
        section = Limits.model_validate({"instance": {"epsilon": 8.0, "delta": 1e-6}}).instance
        assert section is not None
        limit = section.at("instance", terms)
        assert limit.epsilon + share * 8.0 <= 8.0
        assert limit.delta + share * 1e-6 <= 1e-6
    assert LedgerTerms().rest == 1.0
    tiny = Limits.model_validate({"instance": {"epsilon": 5e-324, "delta": 5e-324}}).instance
    assert tiny is not None
    assert tiny.at("instance", LedgerTerms("gaussian", 0.9)).delta > 0


def test_a_rule_that_was_rewritten_is_noticed(tmp_path: Path) -> None:
    with opened(tmp_path) as ledger:
        ledger.fix_terms(GAUSSIAN)
        ledger.open_study("sepsis", {})
    connection = sqlite3.connect(ledger_path(tmp_path, "icu"))
    with connection:
        connection.execute("UPDATE entries SET body = replace(body, 'gaussian', 'renyi') WHERE sequence = 1")
    connection.close()
    with pytest.raises(LedgerDamaged):
        opened(tmp_path)


def test_agreed_terms_are_the_kept_ones_where_the_policy_names_none() -> None:
    kept = LedgerTerms("gaussian", 0.5)
    assert agreed(kept, None, None, is_new=False) == kept
    assert agreed(kept, "gaussian", 0.5, is_new=False) == kept
    assert agreed(kept, "renyi", None, is_new=True) == LedgerTerms("renyi", 0.5)


@pytest.mark.slow
def test_a_share_that_is_chosen_after_releases_would_pass_the_limit() -> None:
    """The broken twin: (ε, δ) of the rest falls to (ε − ε₁, δ − δ₁) when a plan is admitted, at a moment that looks at
    releases. Half of μ² is spent. If the loss so far is low, a plan with δ₁ = δ/2 is admitted: its δ₁ is lost in full.
    If it is high, the rest goes on to its μ². Together that is more than δ. With δ split beforehand it is not.
    """
    epsilon, delta = 1.0, 1e-5

    def left(loss: mpmath.mpf, squares: float) -> mpmath.mpf:
        """Expected (1 − e^{ε − loss})₊ after so much more of a Gaussian."""
        mu, e = mpmath.sqrt(squares), epsilon - loss
        return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)

    def spent(total: float, *, admits_if_low: bool) -> float:
        """Half of the total first. Then a plan that shows everything with δ/2, or the other half."""
        half = total / 2

        def value(z: mpmath.mpf) -> mpmath.mpf:
            loss = half / 2 + mpmath.sqrt(half) * z
            return mpmath.npdf(z) * (mpmath.mpf(delta / 2) if admits_if_low and z < 0 else left(loss, half))

        return float(mpmath.quad(value, [-9, -4, -1, 0, 1, 4, 9]))

    total = largest_squares(epsilon, delta)
    assert spent(total, admits_if_low=False) == pytest.approx(delta, rel=1e-6)
    assert spent(total, admits_if_low=True) > 1.2 * delta
    # Set aside beforehand: the rest has δ/2 in any case.
    assert spent(largest_squares(epsilon, delta / 2), admits_if_low=True) < delta
