"""Running sums told through noised histograms: against extended precision, and by simulation."""

import itertools
import json
import math

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

from accounting.accountants.bayesian_spec import BayesianSpec
from accounting.accountants.noised_sums import BINS, NoisedSums
from accounting.errors import InvalidArgument
from accounting.estimation.upper_mean import upper_mean
from study_protocol.randomness.discrete_gaussian import sampler
from study_protocol.randomness.source import SeededSource

ORDER, NOISE, STD, RATE = 3.0, 4.0, 2.0, 0.5
STEP = {"noise_std": STD, "sampling_rate": RATE, "max_distance": 1.0}


def account(**changes):
    chosen = {
        "delta": 0.5,
        "max_steps": 1000,
        "composition": "running",
        "orders": [1.0, 3.0, 7.0],
        "filter_order": ORDER,
        "estimator_failure_probability": 1e-3,
        "adversary": "path",
        "estimator": "betting",
        "checkpoints": 2,
        "records": 400,
        "noise_std": NOISE,
    }
    spec = {name: value for name, value in (chosen | changes).items() if name not in ("records", "noise_std")}
    ours = {name: value for name, value in (chosen | changes).items() if name in ("records", "noise_std")}
    return NoisedSums(BayesianSpec(**spec), **ours)


def phi(order, distance):
    """log of the binomial sum at an integer order, 30 digits (Triastcyn & Faltings 2020, Theorem 3)."""
    with mp.workdps(30):
        n, q, d = int(order) + 1, mp.mpf(RATE), mp.mpf(float(distance))
        terms = [
            mp.binomial(n, k) * q**k * (1 - q) ** (n - k) * mp.exp((k * k - k) * d * d / (2 * mp.mpf(STD) ** 2))
            for k in range(n + 1)
        ]
        return float(mp.log(mp.fsum(terms)))


def noise(size, source, std=NOISE):
    return sampler(std).sample(size, source)


def test_without_a_histogram_every_step_costs_the_clip_norm():
    found = account()
    for _ in range(3):
        found.step(np.full(400, 0.1), **STEP)
    assert found.filter_moment() == pytest.approx(3 * phi(3, 1.0), rel=1e-6)
    assert found.filter_moment() >= 3 * phi(3, 1.0)
    oracle = [3 * phi(order, 1.0) for order in (1, 3, 7)]
    assert found.log_moments() == pytest.approx(oracle, rel=1e-6)


@pytest.mark.parametrize("adversary", ["path", "adaptive"])
def test_a_histogram_costs_a_moved_count_and_what_follows_it_the_clip_norm(adversary):
    found = account(adversary=adversary)
    found.step(np.full(400, 0.1), **STEP)
    before = found.filter_moment()
    found.publish(None)
    # One count leaves a bin and another enters one: λ(λ+1)·2/2z², at 2λ+1 and halved when the ledger is adaptive.
    order = 2 * ORDER + 1 if adversary == "adaptive" else ORDER
    cost = order * (order + 1) / NOISE**2 / (2 if adversary == "adaptive" else 1)
    cap = phi(3, 1.0) + ORDER * (ORDER + 1) / NOISE**2
    assert found.filter_moment() == pytest.approx(min(before + cost, cap), rel=1e-6)
    found.publish(found.histogram() + noise(BINS, SeededSource(1, allow_insecure=True)))
    after = found.filter_moment()
    found.step(np.full(400, 0.0), **STEP)
    grown = (phi(7, 1.0) / 2) if adversary == "adaptive" else phi(3, 1.0)
    assert found.filter_moment() <= after + grown * (1 + 1e-6)


def test_what_is_told_comes_from_noised_counts_and_public_numbers_alone():
    low, high = account(), account()
    for _ in range(2):
        low.step(np.full(400, 0.05), **STEP)
        high.step(np.full(400, 0.95), **STEP)
    assert low.filter_moment() == high.filter_moment()
    seen = np.zeros(BINS, np.int64)
    seen[3] = 400
    low.publish(seen)
    high.publish(seen)
    assert low.filter_moment() == high.filter_moment()
    assert low.log_moments().tolist() == high.log_moments().tolist()


def test_one_record_moves_one_count():
    rng = np.random.default_rng(5)
    norms = rng.uniform(0, 1, 400)
    other = norms.copy()
    other[17] = 1.0 - other[17]
    counts = []
    for distances in (norms, other):
        found = account()
        found.step(distances, **STEP)
        counts.append(found.histogram())
    assert np.linalg.norm(counts[0] - counts[1]) <= math.sqrt(2)
    assert counts[0].sum() == counts[1].sum() == 400


def discrete_gaussian(std, reach):
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * std**2))
    return weights / weights.sum()


def reported(bins_of_records, places, std, reach=30):
    """The law of a drawn sample's noised histogram over three bins, by enumeration of all draws; pads lie on top."""
    draws = list(itertools.combinations(bins_of_records, min(places, len(bins_of_records))))
    law = np.zeros((2 * reach + 1,) * 3)
    noise = discrete_gaussian(std, reach)
    for draw in draws:
        counts = np.bincount([*draw, *[2] * (places - len(draw))], minlength=3)
        one, two, three = (np.roll(noise, count) for count in counts)
        law += np.multiply.outer(np.multiply.outer(one, two), three) / len(draws)
    return law


@pytest.mark.parametrize(
    ("without", "new", "places"), [((0, 1), 2, 2), ((0, 0, 1), 2, 2), ((1,), 0, 2), ((1, 0), 0, 3)]
)
def test_a_record_that_joins_costs_at_most_what_is_charged_whatever_the_draw(without, new, places):
    """Rényi divergences of the whole mechanism, samples drawn in secret, by summation over the grid, both ways."""
    std, more = 3.0, []
    laws = reported(without, places, std), reported((*without, new), places, std)
    for p, q in (laws, laws[::-1]):
        for order in (0.5, 1.0, 3.0, 7.0):
            seen = (p > 1e-290) & (q > 1e-290)
            divergence = math.log(float(np.sum(np.exp((order + 1) * np.log(p[seen]) - order * np.log(q[seen])))))
            charged = order * (order + 1) * 2 / (2 * std**2)
            assert divergence <= charged * (1 + 1e-9)
            more.append(divergence > charged / 2)
    # Where the new record takes a pad's place, one count's charge, half of this, would be too little.
    assert any(more) == (places > len(without))


@pytest.mark.slow
def test_coverage_of_the_noised_bound():
    """A few records cost much more than the rest; γ = 0.1, 2 checkpoints, so either bound may fail in 10 % of runs.

    With 300 runs more than 48 failures have probability below 1e-3 if the rate is 0.1: the test's false-alarm rate.
    """
    rng, source = np.random.default_rng(11), SeededSource(11, allow_insecure=True)
    rare, runs, failed = 0.02, 300, 0
    assert binom.sf(48, runs, 0.1) < 1e-3
    true = math.log((1 - rare) * math.exp(40 * phi(3, 0.1)) + rare * math.exp(40 * phi(3, 0.8)))
    release = ORDER * (ORDER + 1) / NOISE**2
    below_cap = 0
    for _ in range(runs):
        found = account(estimator_failure_probability=0.1)
        norms = np.where(rng.random(400) < rare, 0.8, 0.1)
        for step in range(1, 41):
            found.step(norms, **STEP)
            if step % 20 == 0:
                found.publish(found.histogram() + noise(BINS, source))
        failed += found.filter_moment() < true + 2 * release
        below_cap += found.filter_moment() < 0.98 * (40 * phi(3, 1.0) + 2 * release)
    assert failed <= 48
    assert below_cap > 290


def test_noise_never_lowers_the_bound_but_with_its_share_of_the_failure():
    """Against the same account read without noise. γ = 0.2, of which half is the noise's: below it in 10 % of runs.

    300 runs, more than 48 below: false-alarm rate under 1e-3.
    """
    source, below = SeededSource(3, allow_insecure=True), 0
    norms = np.linspace(0.05, 0.7, 400)
    exact = upper_mean([phi(3, norm) for norm in norms], 0.1, method="betting", log_max=phi(3, 1.0))
    for _ in range(300):
        found = account(estimator_failure_probability=0.2, checkpoints=1)
        found.step(norms, **STEP)
        found.publish(found.histogram() + noise(BINS, source))
        below += found.filter_moment() - ORDER * (ORDER + 1) / NOISE**2 < exact
    assert below <= 48


@pytest.mark.parametrize("adversary", ["path", "adaptive"])
def test_a_step_and_a_histogram_never_add_more_than_they_reserve(adversary):
    rng, source = np.random.default_rng(2), SeededSource(2, allow_insecure=True)
    found = account(adversary=adversary, checkpoints=4)
    ledger = 7 if adversary == "adaptive" else 3
    half = 2 if adversary == "adaptive" else 1
    for step in range(1, 13):
        before = found.filter_moment()
        publishes = step % 3 == 0
        found.step(rng.uniform(0, 1, 400) ** 3, **STEP)
        if publishes:
            found.publish(found.histogram() + noise(BINS, source))
        most = phi(ledger, 1.0) / half + publishes * ledger * (ledger + 1) / NOISE**2 / half
        assert found.filter_moment() <= before + most * (1 + 1e-6)


def test_the_state_survives_a_restart():
    source = SeededSource(4, allow_insecure=True)
    live, again = account(), account()
    live.step(np.linspace(0, 0.9, 400), **STEP)
    live.publish(live.histogram() + noise(BINS, source))
    again.restore(json.loads(json.dumps(live.state())))
    counts = noise(BINS, source)
    for one in (live, again):
        one.step(np.linspace(0.9, 0, 400), **STEP)
    assert live.histogram().tolist() == again.histogram().tolist()
    for one in (live, again):
        one.publish(one.histogram() + counts)
    assert live.log_moments().tolist() == again.log_moments().tolist()
    assert live.exhausted
    assert again.exhausted
    with pytest.raises(InvalidArgument, match="state"):
        account(records=399).restore(live.state())


def test_misuse_is_refused_and_changes_nothing():
    found = account(checkpoints=1)
    with pytest.raises(InvalidArgument, match="no step"):
        found.histogram()
    found.step(None, **STEP)
    before = found.state()
    for bad in (np.zeros(BINS - 1), np.full(BINS, math.nan), np.full(BINS, 0.5)):
        with pytest.raises(InvalidArgument):
            found.publish(bad)
    for distances in (np.zeros(399), np.full(400, 1.1), np.full(400, -0.1)):
        with pytest.raises(InvalidArgument, match="distances"):
            found.step(distances, **STEP)
    assert found.state() == before
    found.publish(None)
    with pytest.raises(InvalidArgument, match="one histogram more"):
        found.publish(None)
    with pytest.raises(InvalidArgument, match="estimator"):
        account(estimator="student-t")
