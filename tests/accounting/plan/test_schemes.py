"""Every scheme of the table against formulas written out by hand from the papers (closed forms without sampling)."""

from __future__ import annotations

import dataclasses
import math
from typing import get_args

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from accounting import ClassicalAccountant, log_moment
from accounting.budget.accounts import ClassicalLimit, CumulativeLimit, HistogramLimit
from accounting.budget.budget import account_of
from accounting.plan.limits import BayesianPlan, HistogramRelease, LimitPlan
from accounting.plan.plan import Plan
from accounting.plan.schemes import TRAINING_SCHEMES, Credit, Noise, Tells, TrainingScheme, schemes_called
from accounting.units import Definition, Level, Observer, Relation

SIGMA, CLIP, CLIENT_CLIP, HONEST, ORDER, DELTA = 3.0, 0.5, 2.0, 4, 6.0, 1e-6
SAID = {
    # Thesis 6.4: the coordinator's noise on the sum of clipped updates, clients sampled.
    "client": ("central noise", Noise.COORDINATOR, {Level.CLIENT: (Relation.ADD_REMOVE, Credit.CLIENTS)}, 1.0),
    # Thesis 8.3: the same noise in shares of the honest clients, under masks; removing a client would remove its share.
    "client-distributed": (
        "central noise in shares",
        Noise.CLIENTS_IN_SHARES,
        {Level.CLIENT: (Relation.ZERO_OUT, Credit.NONE)},
        2.0,
    ),
    # Every client's own noise in every local step; a round costs the most expensive client.
    "parallel": ("local noise", Noise.EACH_CLIENT, {Level.INSTANCE: (Relation.ADD_REMOVE, Credit.RECORDS)}, 2.0),
    # The sum alone is seen, with the noise of all honest clients in it.
    "sequential": (
        "distributed noise",
        Noise.CLIENTS_TOGETHER,
        {Level.INSTANCE: (Relation.ADD_REMOVE, Credit.RECORDS)},
        2.0,
    ),
    # Beside the records, a client's whole signal against the same noise; removing it would remove its noise.
    "joint": (
        "both levels",
        Noise.CLIENTS_TOGETHER,
        {
            Level.INSTANCE: (Relation.ADD_REMOVE, Credit.RECORDS),
            Level.CLIENT: (Relation.ZERO_OUT, Credit.NONE),
        },
        2.0,
    ),
}


def squared_ratio(scheme: str, level: Level) -> float:
    """d²/s²: what one neighbour moves over the noise that is sure to be there."""
    return {
        ("client", Level.CLIENT): CLIP**2 / (SIGMA * CLIP) ** 2,
        ("client-distributed", Level.CLIENT): CLIP**2 / (SIGMA * CLIP) ** 2,
        ("parallel", Level.INSTANCE): CLIP**2 / (SIGMA * CLIP) ** 2,
        ("sequential", Level.INSTANCE): CLIP**2 / (HONEST * (SIGMA * CLIP) ** 2),
        ("joint", Level.INSTANCE): CLIP**2 / (HONEST * (SIGMA * CLIP) ** 2),
        ("joint", Level.CLIENT): CLIENT_CLIP**2 / (HONEST * (SIGMA * CLIP) ** 2),
    }[scheme, level]


def plan(scheme: TrainingScheme, *, noised: bool = False, bayesian: bool = False, rate: float = 1.0) -> Plan:
    rules = TRAINING_SCHEMES[scheme]
    levels = [Level.CLIENT] if noised and len(rules.levels) > 1 else rules.levels
    limits = [LimitPlan(level, Definition.CLASSICAL, 50.0, DELTA, None) for level in rules.levels]
    if bayesian or noised:
        limits += [LimitPlan(level, Definition.BAYESIAN, 50.0, DELTA, DELTA / 10) for level in levels]
    return Plan(
        scheme=scheme,
        limits=tuple(limits),
        clip_norm=CLIP,
        client_clip_norm=CLIENT_CLIP if rules.bounds_clients_too else None,
        noise_multiplier=SIGMA,
        honest_survivors=HONEST if rules.pooled else 1,
        sampling_rate=rate,
        steps_per_round=1 if rules.pooled or rules.clips_updates else 3,
        max_steps=30,
        classical_order=ORDER,
        bayesian=BayesianPlan((ORDER,), ORDER, "betting", rules.compositions[-1], "path", "improved")
        if bayesian or noised
        else None,
        disclosure="noised" if noised else "plain",
        release=HistogramRelease(10.0, 1) if noised else None,
        observer=Observer.RELEASES,
    )


def epsilon(log_moment: float) -> float:
    """Canonne, Kamath & Steinke 2020 at the one order λ."""
    c = (1 / (ORDER + 1)) * (ORDER / (ORDER + 1)) ** ORDER
    return (log_moment + math.log(c) - math.log(DELTA)) / ORDER


LEVELS = [(name, level) for name, scheme in TRAINING_SCHEMES.items() for level in scheme.levels]


def test_the_table_has_every_name_once() -> None:
    assert set(TRAINING_SCHEMES) == set(get_args(TrainingScheme)) == set(SAID)
    assert all(name == scheme.id for name, scheme in TRAINING_SCHEMES.items())
    assert len({scheme.title for scheme in TRAINING_SCHEMES.values()}) == len(TRAINING_SCHEMES)


@pytest.mark.parametrize("name", TRAINING_SCHEMES)
def test_a_row_says_what_the_papers_say(name) -> None:
    title, noise, levels, moved = SAID[name]
    scheme = TRAINING_SCHEMES[name]
    assert (scheme.title, scheme.noise) == (title, noise)
    assert {p.level: (p.relation, p.credit) for p in scheme.protects} == levels
    assert math.sqrt(moved) <= scheme.histogram_sensitivity <= math.sqrt(moved) * (1 + 1e-15)
    told = {Level.CLIENT: Tells.HISTOGRAM, Level.INSTANCE: Tells.CUMULATIVE}
    assert {p.level: p.tells for p in scheme.protects} == {level: told[level] for level in levels}
    assert scheme.protection(Level.CLIENT) is None or Level.CLIENT in levels


def test_only_whole_client_updates_are_sampled_anew_in_every_round() -> None:
    assert {name: scheme.compositions for name, scheme in TRAINING_SCHEMES.items()} == {
        "client": ("holder",),
        "client-distributed": ("holder",),
        "parallel": ("holder", "running"),
        "sequential": ("holder", "running"),
        "joint": ("holder", "running"),
    }
    assert [name for name, scheme in TRAINING_SCHEMES.items() if scheme.sums_costs_as_in_papers] == ["sequential"]


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_a_round_costs_what_the_closed_form_says(name, level) -> None:
    """λ(λ+1)d²/2s² a noised step at q = 1, over all steps; converted at the one order."""
    study = plan(name)
    account = ClassicalLimit(study, study.limits[study.levels.index(level)])
    for rounds in (1, 4):
        account.restore({"rounds": rounds, "published": 0})
        steps = rounds * study.steps_per_round
        assert account.epsilon() == pytest.approx(
            epsilon(steps * ORDER * (ORDER + 1) * squared_ratio(name, level) / 2), rel=1e-9
        )


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_only_secret_sampling_is_credited(name, level) -> None:
    credited = SAID[name][2][level][1]
    mechanism = plan(name, rate=0.25).mechanism(level)
    assert mechanism.sampling_rate == (1.0 if credited is Credit.NONE else 0.25)
    assert mechanism.relation is SAID[name][2][level][0]


@pytest.mark.parametrize("name", TRAINING_SCHEMES)
def test_a_published_histogram_costs_what_its_moved_counts_say(name) -> None:
    """λ(λ+1)Δ²/2z²: Δ² = 1 where a client adds a count, 2 where a count leaves one bin for another."""
    study = plan(name, noised=True)
    account = ClassicalLimit(study, study.limits[0])
    account.restore({"rounds": 0, "published": 5})
    assert account.epsilon() == pytest.approx(
        epsilon(5 * ORDER * (ORDER + 1) * SAID[name][3] / (2 * 10.0**2)), rel=1e-9
    )


@pytest.mark.parametrize(("name", "level"), LEVELS)
def test_the_account_of_a_level_reads_what_the_table_says_is_told(name, level) -> None:
    study = plan(name, bayesian=True)
    limit = study.limit(level, Definition.BAYESIAN)
    assert limit is not None
    kind = {Tells.HISTOGRAM: HistogramLimit, Tells.CUMULATIVE: CumulativeLimit}[study.protection(level).tells]
    account = account_of(study, limit)
    assert type(account) is kind
    assert account.mechanism == study.mechanism(level)


def test_noise_of_several_counts_only_where_it_is_pooled() -> None:
    stds = {name: plan(name).mechanism(scheme.levels[0]).noise_std for name, scheme in TRAINING_SCHEMES.items()}
    alone = SIGMA * CLIP
    assert stds == pytest.approx(
        dict.fromkeys(("client", "client-distributed", "parallel"), alone)
        | dict.fromkeys(("sequential", "joint"), alone * np.sqrt(HONEST))
    )


def test_settings_tell_the_schemes_of_one_name_apart() -> None:
    assert {adder: scheme.id for adder, scheme in schemes_called("client").items()} == {
        "coordinator": "client",
        "distributed": "client-distributed",
    }
    for name in ("parallel", "sequential", "joint"):
        assert schemes_called(name) == {None: TRAINING_SCHEMES[name]}
    assert schemes_called("statistics") == schemes_called("client-distributed") == {}
    assert {name for name, scheme in TRAINING_SCHEMES.items() if scheme.clips_updates} == {
        "client",
        "client-distributed",
    }


@pytest.mark.parametrize("steps", [1, 3, 30])
@pytest.mark.parametrize("multiplier", [0.7, 3.0, 11.5])
def test_noise_in_shares_costs_no_less_than_dp_accounting_says(steps: int, multiplier: float) -> None:
    """At every integer α the Gaussian of the whole noise, rate 1, n times; and nothing beside it."""
    study = dataclasses.replace(plan("client-distributed"), noise_multiplier=multiplier)
    step = study.mechanism(Level.CLIENT)
    alphas = list(range(2, 65))
    theirs = RdpAccountant(alphas, NeighboringRelation.REPLACE_SPECIAL)
    theirs.compose(GaussianDpEvent(multiplier), steps)
    ours = ClassicalAccountant(delta=DELTA, method="rdp", order=ORDER)
    ours.step(noise_multiplier=step.noise_multiplier, sampling_rate=step.sampling_rate, count=steps)
    moments = [
        steps * float(log_moment(alpha=alpha, distance=step.clip_norm, noise_std=step.noise_std, sampling_rate=1.0))
        for alpha in alphas
    ]
    # The Rényi divergence at order α is φ(λ)/λ, λ = α − 1.
    costs = np.array(moments) / (np.array(alphas) - 1)
    # Rounded up by 1e-9.
    assert bool((costs >= theirs._rdp).all())
    assert costs == pytest.approx(theirs._rdp, rel=1.1e-9, abs=0.0)
    account = ClassicalLimit(study, study.limits[0])
    account.restore({"rounds": steps, "published": 0})
    # Improved conversion at the one order: never below the least over all of them.
    assert account.epsilon() >= theirs.get_epsilon(DELTA) * (1 - 1e-9)
    assert account.epsilon() == pytest.approx(ours.epsilon(), rel=1e-9)
