"""Privacy curves: against the Gaussian's closed trade-off, single readings, and what a test of membership can do."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from accounting import ClassicalAccountant, GaussianEvent, InvalidArgument
from accounting.accountants.profile import PrivacyProfile, gaussian_delta, mu_from_epsilon


@pytest.mark.quick("0.3")
@pytest.mark.parametrize("mu", [0.3, 1.0, 2.5])
def test_the_trade_off_of_a_gaussian_is_its_closed_form(mu: float) -> None:
    epsilons = np.linspace(0, 12, 4000)
    deltas = np.array([gaussian_delta(mu, epsilon) for epsilon in epsilons.tolist()])
    profile = PrivacyProfile(epsilons, np.minimum.accumulate(deltas))
    alphas = np.linspace(0.001, 0.999, 50)
    # Dong, Roth & Su 2022: G_μ(α) = Φ(Φ⁻¹(1 − α) − μ).
    exact = norm.cdf(norm.ppf(1 - alphas) - mu)
    found = profile.trade_off(alphas)
    assert (found <= exact).all()
    assert (found >= exact - 1e-5).all()
    assert mu <= profile.mu() <= mu * 1.01 + 1e-3


def test_at_the_ends_a_test_that_always_says_the_same_has_one_error() -> None:
    profile = PrivacyProfile(np.array([0.0, 1.0]), np.array([0.4, 0.2]))
    assert profile.trade_off([0.0, 1.0]) == pytest.approx([0.8, 0.0])
    assert profile.epsilon_at(0.3) == 1.0
    assert profile.epsilon_at(0.1) == math.inf
    single = PrivacyProfile(np.array([1.0]), np.array([0.2]))
    assert single.mu() == mu_from_epsilon(1.0, 0.2)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("delta", [0.5, 1e-5, 1e-20])
def test_mu_and_delta_are_inverse(epsilon: float, delta: float) -> None:
    mu = mu_from_epsilon(epsilon, delta)
    assert gaussian_delta(mu, epsilon) >= delta
    # Below the rounding of the distribution function, μ is larger than it need be.
    assert gaussian_delta(mu * (1 - 1e-4), epsilon) < delta * (1 + 1e-6) or delta < 1e-15


def test_a_delta_of_nothing_or_of_all_has_no_gaussian() -> None:
    assert mu_from_epsilon(1.0, 0.0) == 0.0
    assert mu_from_epsilon(1.0, 1.0) == math.inf


@pytest.mark.slow
def test_the_curve_of_an_account_is_its_single_readings() -> None:
    account = ClassicalAccountant(delta=1e-5)
    account.step(noise_multiplier=1.5, sampling_rate=0.1, count=50)
    epsilons = np.linspace(0, 6, 13)
    profile = account.profile(epsilons)
    for place in (0, 3, 8, 12):
        single = account.delta_for(float(epsilons[place]))
        assert profile.deltas[place] == pytest.approx(single, rel=1e-3)
    assert (np.diff(profile.deltas) <= 0).all()
    # Sampling is credited here, and not in the closed form.
    assert profile.mu() < account.mu()


@pytest.mark.parametrize("method", ["pld", "rdp"])
def test_curves_of_gaussians_groups_and_nothing(method: str) -> None:
    account = ClassicalAccountant(delta=1e-5, method=method)  # pyright: ignore[reportArgumentType]
    assert account.profile([0.0, 1.0]).deltas.tolist() == [0.0, 0.0]
    account.compose(GaussianEvent(4.0), 2)
    assert account.profile([0.5, 1.0]).deltas.tolist() == [account.delta_for(0.5), account.delta_for(1.0)]
    group = account.profile([0.5, 1.0], group_size=2).deltas.tolist()
    assert group == [account.delta_for(epsilon, group_size=2) for epsilon in (0.5, 1.0)]
    assert account.profile().epsilons.size == 1000


@pytest.mark.parametrize(
    ("name", "epsilons", "deltas"),
    [
        ("epsilons", [1.0, 1.0], [0.1, 0.1]),
        ("epsilons", [-1.0, 1.0], [0.1, 0.1]),
        ("deltas", [0.0, 1.0], [0.1, 0.2]),
        ("deltas", [0.0, 1.0], [1.2, 0.2]),
        ("deltas", [0.0, 1.0], [0.2]),
    ],
)
def test_what_is_no_profile_is_refused_by_name(name: str, epsilons: list[float], deltas: list[float]) -> None:
    with pytest.raises(InvalidArgument, match=f"^{name}:"):
        PrivacyProfile(epsilons, deltas)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("alpha", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_none_is_refused(alpha: float) -> None:
    with pytest.raises(InvalidArgument, match=r"^false_positive_rates:"):
        PrivacyProfile(np.array([1.0]), np.array([0.2])).trade_off([alpha])


def test_a_profile_prints_in_one_line_and_is_a_key() -> None:
    profile = PrivacyProfile(np.linspace(0, 1, 1000), np.linspace(0.5, 0.1, 1000))
    assert repr(profile) == "PrivacyProfile(epsilons=<1000 from 0.0 to 1.0>, deltas=<1000 from 0.5 to 0.1>)"
    assert {profile: 1}[profile] == 1
