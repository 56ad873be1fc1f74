"""A round's charge: what the coordinator may ask for agrees with the budget that it must keep itself."""

import math
from bisect import bisect_right
from dataclasses import replace

import mpmath
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from accounting.plan.queries import QueryCost
from client_sdk.errors import LedgerDamaged, OwnBudgetExceeded
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent, require_affordable
from tests.factories.settings import settings

CLASSICAL = {"definition": "classical", "delta": 1e-5}
JOINT = [{**CLASSICAL, "level": "instance", "epsilon": 6.0}, {**CLASSICAL, "level": "client", "epsilon": 14.0}]
RARE = {"sampling_rate": 0.1, "classical_order": 8.0}
STUDIES = {
    "parallel": settings(
        "parallel",
        **RARE,
        noise_multiplier=2.0,
        max_steps=400,
        limits=[{**CLASSICAL, "level": "instance", "epsilon": 3.0}],
    ),
    "client": settings(scheme="client", max_steps=400, limits=[{**CLASSICAL, "level": "client", "epsilon": 9.0}]),
    "sequential": settings(
        "sequential", **RARE, max_steps=4000, limits=[{**CLASSICAL, "level": "instance", "epsilon": 1.25}]
    ),
    "joint": settings("joint", masked=True, max_steps=400, limits=JOINT, client_clip_norm=2.0, classical_order=4.0),
}

ACCOUNTING_SAMPLE = {"accounting_sample": {"records": 50, "source": "members"}, "disclosure": "noised"}
EVERY_OTHER = {"histogram_noise": {"std": 12.0, "every": 2}}
BAYESIAN = {"definition": "bayesian", "epsilon": 40.0, "delta": 1e-5, "estimator_failure_probability": 1e-6}


def both(level, epsilon):
    return [{**CLASSICAL, "level": level, "epsilon": epsilon}, {**BAYESIAN, "level": level}]


NOISED = {
    "noised parallel": settings(
        bayesian=True,
        max_steps=400,
        limits=both("instance", 3.5),
        **ACCOUNTING_SAMPLE,
        **EVERY_OTHER,
        noise_multiplier=2.0,
    ),
    "noised sequential": settings(
        "sequential",
        masked=True,
        bayesian=True,
        max_steps=400,
        limits=both("instance", 4.0),
        **ACCOUNTING_SAMPLE,
        **EVERY_OTHER,
    ),
    "noised client": settings(
        "client",
        masked=True,
        bayesian=True,
        max_steps=400,
        limits=both("client", 9.0),
        disclosure="noised",
        **EVERY_OTHER,
    ),
}
NOISED["noised joint"] = settings(
    "joint",
    masked=True,
    bayesian=True,
    max_steps=400,
    limits=[*JOINT, {**BAYESIAN, "level": "client"}],
    client_clip_norm=2.0,
    classical_order=4.0,
    disclosure="noised",
    **EVERY_OTHER,
)
STUDIES |= NOISED


@pytest.mark.parametrize("scheme", ["sequential", "joint"])
def test_its_own_ledger_relies_on_nobody_elses_noise(scheme):
    charge = Charge.of(STUDIES[scheme])
    assert (charge.level, charge.noise_multiplier) == ("instance", 4.0)


@pytest.mark.parametrize("scheme", sorted(NOISED))
def test_a_round_that_publishes_pays_for_its_histogram(scheme):
    """By the closed form λ(λ+1)Δ²/2z²: a client adds one count, its own noise share counted; a record moves one."""
    study = NOISED[scheme]
    quiet, reported = (Charge.of(study, [round]) for round in (3, 4))
    assert (quiet.histograms, reported.histograms) == (0, 1)
    squared = 12.0**2 / {"noised client": 3, "noised joint": 3 * 2}.get(scheme, 2)
    limit = OwnLimit(reported.level, 100.0, 1e-5, 8.0)
    more = epsilon_spent([quiet, reported], limit) - epsilon_spent([quiet, quiet], limit)
    assert more == pytest.approx(8 * 9 / (2 * squared) / 8, rel=1e-6)
    lost = Charge.of(study, range(1, 6))
    assert (lost.histograms, lost.steps) == (2, quiet.steps)
    assert not math.isnan(epsilon_spent([lost], limit))


def test_a_charge_that_another_version_wrote_is_named() -> None:
    with pytest.raises(LedgerDamaged, match="histogram_noise, histograms"):
        Charge.from_body({"level": "instance", "noise_multiplier": 1.0, "sampling_rate": 0.5, "steps": 1})


LIMIT = OwnLimit("instance", 3.0, 1e-5, 0.0, "gaussian")
CHARGES = st.builds(
    Charge,
    st.just("instance"),
    st.floats(0.8, 50.0),
    st.floats(0.01, 1.0),
    st.integers(1, 40),
    bears=st.sampled_from(["trained", "evaluated", "all"]),
)


@given(st.lists(CHARGES, min_size=1, max_size=25))
@hypothesis_settings(max_examples=25, deadline=None)
def test_what_the_gaussian_rule_lets_in_keeps_the_limit_by_the_closed_form(charges):
    """Any order of any charges: those that were let in, on each side, in 60 digits (Balle & Wang 2018, Theorem 8)."""
    accepted = []
    for charge in charges:
        try:
            require_affordable(accepted, charge, [LIMIT])
        except OwnBudgetExceeded:
            continue
        accepted.append(charge)
    with mpmath.workdps(60):
        for side in ("trained", "evaluated"):
            borne = [charge for charge in accepted if charge.bears in ("all", side)]
            total = mpmath.fsum(charge.steps / mpmath.mpf(charge.noise_multiplier) ** 2 for charge in borne)
            if total:
                mu, e = mpmath.sqrt(total), mpmath.mpf(3)
                delta = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
                assert delta <= mpmath.mpf("1e-5")


def test_the_gaussian_rule_is_the_composition_of_another_library():
    """Steps without sampling and a query: never below dp_accounting's, and hardly above."""
    charges = [
        Charge("instance", 10.0, 1.0, 30),
        Charge.of_query(QueryCost(2.0**22, 2.0**20, 4)),
        Charge("client", 1.0, 1.0, 9),
    ]
    peer = PLDAccountant()
    peer.compose(GaussianDpEvent(10.0), 30)
    peer.compose(GaussianDpEvent(4.0))
    spent, exact = epsilon_spent(charges, LIMIT), peer.get_epsilon(1e-5)
    assert exact - 1e-4 <= spent <= exact * 1.005


def test_the_gaussian_rule_lets_more_rounds_begin_without_sampling_and_fewer_with_it():
    renyi, rounds = OwnLimit("instance", 3.0, 1e-5, 2 * math.log(1e5) / 3), {}
    for rate in (1.0, 0.1):
        for limit in (LIMIT, renyi):
            charge = Charge("instance", 20.0, rate, 1)
            fits = range(1, 40_000)
            rounds[rate, limit.rule] = bisect_right(
                fits, 3.0, key=lambda n, charge=charge, limit=limit: epsilon_spent([replace(charge, steps=n)], limit)
            )
    assert rounds[1.0, "gaussian"] == int(400 * LIMIT.squares)
    assert 1.1 < rounds[1.0, "gaussian"] / rounds[1.0, "renyi"] < 1.3
    assert rounds[0.1, "renyi"] > 50 * rounds[0.1, "gaussian"]


@pytest.mark.parametrize(("noise", "is_counted"), [(7.0, False), (20.0, False), (60.0, True)])
def test_the_gaussian_rule_refuses_histograms_whose_lattice_would_show(noise, is_counted):
    charge = Charge("instance", 20.0, 1.0, 1, histograms=1, histogram_noise=noise)
    assert math.isfinite(epsilon_spent([charge], LIMIT)) is is_counted
    assert epsilon_spent([charge], LIMIT) > epsilon_spent([replace(charge, histograms=0)], LIMIT)


def test_a_million_steps_use_up_less_than_the_share_for_their_noise():
    charge = Charge("instance", 1e5, 1.0, 10**6)
    assert math.isfinite(epsilon_spent([charge], OwnLimit("instance", 10.0, 1e-6, 0.0, "gaussian")))
