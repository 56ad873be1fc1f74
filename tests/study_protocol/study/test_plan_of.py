"""One plan from one study's settings: what is credited, who is counted on, against whom it holds."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from accounting.accountants.classical import ClassicalAccountant
from accounting.plan.limits import HistogramRelease
from accounting.plan.schemes import TRAINING_SCHEMES
from accounting.units import Definition, Level, Observer, Relation
from client_sdk.guard.charges import Charge
from study_protocol.study.bounds import guaranteed_noise_multiplier
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from tests.factories.settings import limit, settings
from tests.study_protocol.study.test_privacy import (
    ACCOUNTING_SAMPLE,
    CLIENTS_ONLY,
    HELD_OUT,
    MASKING,
    NOISED,
    masked,
)

TOP = {"joint": {"client_clip_norm": 3.0}}


def study(scheme: str, *, min_clients: int = 4, **options: object) -> StudySettings:
    return StudySettings.model_validate(masked(scheme, min_clients=min_clients, **TOP.get(scheme, {}) | options))


@pytest.mark.parametrize("scheme", TRAINING_SCHEMES)
def test_every_number_of_the_settings_stands_in_the_plan(scheme) -> None:
    settings = study(scheme)
    privacy, plan = settings.privacy, plan_of(settings)
    assert plan.rules is TRAINING_SCHEMES[scheme]
    for name in ("clip_norm", "client_clip_norm", "noise_multiplier", "max_steps", "classical_order", "disclosure"):
        assert getattr(plan, name) == getattr(privacy, name)
    assert {(str(x.level), str(x.definition), x.epsilon, x.delta) for x in plan.limits} == {
        (x.level, x.definition, x.epsilon, x.delta) for x in privacy.limits
    }
    assert plan.bayesian is not None
    assert (plan.bayesian.orders, plan.bayesian.composition) == (privacy.bayesian.orders, privacy.bayesian.composition)
    assert (plan.steps_per_round, plan.rounds) == (settings.steps_per_round, settings.rounds)


@pytest.mark.parametrize("scheme", TRAINING_SCHEMES)
def test_only_pooled_noise_counts_on_others(scheme) -> None:
    honest = MASKING["min_survivors"] - MASKING["colluders"]
    assert plan_of(study(scheme)).honest_survivors == (honest if TRAINING_SCHEMES[scheme].pooled else 1)


@pytest.mark.parametrize("scheme", TRAINING_SCHEMES)
@pytest.mark.parametrize("disclosure", ["plain", "noised", "at-end"])
@pytest.mark.parametrize("limits", ["classical", "bayesian"])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("min_clients", [0, 1, 4])
def test_clients_are_credited_only_where_nothing_ever_tells_how_many_were_sampled(
    scheme, disclosure, limits, mask, min_clients
) -> None:
    """Every study there is: with a rate below 1 at client level, its ledger can hold no count of clients."""
    noised = {"histogram_noise": {"std": 12.0, "every": 2}} if disclosure == "noised" else {}
    sample = {"accounting_sample": {"records": 50, "source": "members"}}
    rates = {"client_sampling_rate": 0.25, "sampling_rate": 0.1, "disclosure": disclosure} | noised
    if disclosure == "noised" and scheme in ("parallel", "sequential") and limits == "bayesian":
        rates |= sample
    try:
        chosen = settings(
            scheme, bayesian=limits == "bayesian", masked=mask, schedule={"min_clients": min_clients}, **rates
        )
    except ValidationError:
        return
    plan = plan_of(chosen)
    for level in plan.levels:
        rate = plan.mechanism(level).sampling_rate
        if level is Level.CLIENT and rate < 1:
            counted = plan.limit(level, Definition.BAYESIAN) is not None
            assert (counted, min_clients, scheme, rate) == (False, 0, "client", 0.25)
        if level is Level.INSTANCE:
            assert rate == 0.1


def test_some_clients_are_credited() -> None:
    rated = {"client_sampling_rate": 0.25, "schedule": {"min_clients": 0}}
    assert plan_of(settings("client", **rated)).mechanism(Level.CLIENT).sampling_rate == 0.25
    assert plan_of(settings("client", client_sampling_rate=0.25)).mechanism(Level.CLIENT).sampling_rate == 1.0
    for disclosure in ("plain", "at-end"):
        bayesian = settings("client", bayesian={"composition": "holder"}, disclosure=disclosure, **rated)
        assert plan_of(bayesian).mechanism(Level.CLIENT).sampling_rate == 1.0


def delta_of_counts(epsilon: float, *, clients: int, rate: float, rounds: int) -> float:
    """δ of the numbers of sampled clients alone, with one client or without: Bin(N, q) against Bin(N − 1, q), a round.

    Exact but for losses that are rounded down to a grid, which can only make it smaller.
    """
    grid = 1e-4
    counts = np.arange(clients + 1)
    with_, without = stats.binom.pmf(counts, clients, rate), stats.binom.pmf(counts, clients - 1, rate)
    betrayed = with_[without == 0].sum()
    places = np.floor(np.log(with_[:clients] / without[:clients]) / grid).astype(int)
    one = np.zeros(int(np.ptp(places)) + 1)
    np.add.at(one, places - places.min(), with_[:clients])
    size = rounds * (one.size - 1) + 1
    law = np.fft.irfft(np.fft.rfft(one, size) ** rounds, size)
    losses = (np.arange(law.size) + rounds * places.min()) * grid
    gained = np.clip(-np.expm1(epsilon - losses), 0, None) @ np.clip(law, 0, None)
    return float(1 - (1 - betrayed) ** rounds + gained)


def test_the_counts_alone_betray_what_a_credited_rate_would_promise() -> None:
    """N = 10, q = .5, T = 100, σ = 10: who reads how many were sampled in each round holds no (2.015, 1e-5)."""
    limits = [limit("client", "bayesian", epsilon=40.0), limit("client", epsilon=50.0)]
    options = {"noise_multiplier": 10.0, "client_sampling_rate": 0.5, "max_steps": 100, "limits": limits}
    study = settings(
        "client", bayesian={"composition": "holder"}, disclosure="at-end", schedule={"min_clients": 0}, **options
    )
    epsilons = {}
    for rate in (0.5, plan_of(study).sampling_rate):
        account = ClassicalAccountant(delta=1e-5)
        account.step(noise_multiplier=10.0, sampling_rate=rate, count=100)
        epsilons[rate] = account.epsilon()
    assert epsilons[0.5] == pytest.approx(2.015, abs=0.01)
    assert delta_of_counts(epsilons[0.5], clients=10, rate=0.5, rounds=100) > 0.785
    # Without the credit it is the number of whoever always takes part.
    assert epsilons[1.0] > 1.5 * epsilons[0.5]


def test_the_coordinator_is_an_observer_only_of_noised_values() -> None:
    noised = {"parallel": NOISED | ACCOUNTING_SAMPLE, "sequential": NOISED | HELD_OUT, "joint": NOISED | CLIENTS_ONLY}
    for scheme, options in noised.items():
        assert plan_of(study(scheme, **options)).observer is Observer.COORDINATOR
        assert plan_of(study(scheme)).observer is Observer.RELEASES
    assert plan_of(study("client", **NOISED)).observer is Observer.RELEASES
    # In shares: against the coordinator without a Bayesian limit, or where its histograms are noised.
    assert plan_of(study("client-distributed", **NOISED)).observer is Observer.COORDINATOR
    assert plan_of(study("client-distributed", bayesian=False)).observer is Observer.COORDINATOR
    assert plan_of(study("client-distributed")).observer is Observer.RELEASES
    assert plan_of(study("client-distributed", disclosure="at-end")).observer is Observer.RELEASES


def test_noise_in_shares_is_counted_whole_and_no_sampling_of_hospitals_is() -> None:
    chosen = study("client-distributed", bayesian=False, min_clients=4, client_sampling_rate=0.25)
    plan = plan_of(chosen)
    assert (plan.scheme, plan.honest_survivors, plan.adders, plan.sampling_rate) == ("client-distributed", 3, 1, 1.0)
    step = plan.mechanism(Level.CLIENT)
    assert (step.noise_std, step.clip_norm, step.sampling_rate) == (4.0, 1.0, 1.0)
    assert step.relation is Relation.ZERO_OUT
    assert guaranteed_noise_multiplier(chosen) == 4.0
    # A hospital's own ledger counts the same: its checks open no sum with fewer honest shares.
    assert Charge.of(chosen) == Charge("client", 4.0, 1.0, 1)


def test_the_accounting_sample_and_the_histograms_stand_in_the_plan() -> None:
    plan = plan_of(study("sequential", **NOISED, **HELD_OUT))
    assert plan.bayesian is not None
    assert plan.bayesian.sample == "held-out"
    assert plan.release == HistogramRelease(6.0, 2)
    assert plan.limit(Level.INSTANCE, Definition.BAYESIAN) is not None
    assert plan.limit(Level.CLIENT, Definition.BAYESIAN) is None


def test_a_plan_loads_nothing_that_computes() -> None:
    program = (
        "import sys, study_protocol.study.plan_of, study_protocol.secure_sum.parameters\n"
        "sys.exit(', '.join({'scipy', 'dp_accounting', 'torch', 'httpx'} & set(sys.modules)) or 0)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
