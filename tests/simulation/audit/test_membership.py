"""Membership inference: against closed forms on a known mechanism, and at both ends of what a study can release."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from private_learning.records import Table
from private_learning.tasks import TaskDataset, load
from simulation.audit.membership import (
    attacked,
    ceiling,
    confidences,
    likelihood_ratios,
    membership,
    relative_likelihoods,
    result,
)
from simulation.audit.pictures import membership_section
from simulation.audit.shadows import Shadows, ShadowStudies, halved, held_out
from simulation.population import Population
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

STUDIES, PATIENTS = 300, 200
# Of one test with an honest attack.
FALSE_ALARM = 1e-4


def _coins(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random((STUDIES, PATIENTS)) < 0.5


@pytest.mark.parametrize("signal", [0.5, 1.5, 3.0])
def test_a_gaussian_mean_of_orthogonal_records_has_the_closed_form_s_curve(signal: float) -> None:
    """The likeliest test of N(0, 1) against N(μ, 1) finds Φ(Φ⁻¹(FPR) + μ), and has AUC Φ(μ/√2)."""
    inside, draw = _coins(1), np.random.default_rng(2)
    seen = signal * inside + draw.normal(size=inside.shape)
    # A patient's own level shows nothing.
    found = result("LiRA online", likelihood_ratios(seen + 5 * draw.normal(size=PATIENTS), inside), inside)
    members = int(inside.sum())
    for each in found.at:
        exact = float(stats.norm.cdf(stats.norm.ppf(each.false_positives) + signal))
        # The threshold has its own error: that of the share of strangers above it.
        strangers = inside.size - members
        least = stats.binom.ppf(FALSE_ALARM, strangers, each.false_positives) / strangers
        most = stats.binom.isf(FALSE_ALARM, strangers, each.false_positives) / strangers
        low = stats.binom.ppf(FALSE_ALARM, members, stats.norm.cdf(stats.norm.ppf(least) + signal)) / members
        high = stats.binom.isf(FALSE_ALARM, members, stats.norm.cdf(stats.norm.ppf(most) + signal)) / members
        assert 0.93 * low <= each.rate <= high
        assert each.low <= each.rate <= each.high
        assert each.rate == pytest.approx(exact, rel=0.5)
    # What other studies do not know of both means costs a little: σ²/150 each.
    assert found.auc == pytest.approx(float(stats.norm.cdf(signal / math.sqrt(2))), abs=0.01)


def test_a_patient_whom_nothing_shows_is_found_by_chance() -> None:
    inside, draw = _coins(3), np.random.default_rng(4)
    seen = draw.normal(size=inside.shape)
    for online in (True, False):
        found = result("LiRA online", likelihood_ratios(seen, inside, online=online), inside)
        assert found.auc == pytest.approx(0.5, abs=0.01)
        assert found.at[0].low <= 0.012
        assert found.at[0].high >= 0.008


def test_a_constant_model_tells_nothing() -> None:
    inside = _coins(5)
    losses, others = np.full(inside.shape, math.log(2)), np.full((STUDIES, 50), math.log(2))
    for scores in (
        likelihood_ratios(losses, inside),
        likelihood_ratios(losses, inside, online=False),
        relative_likelihoods(losses, others, inside),
    ):
        assert result("RMIA", scores, inside).auc == pytest.approx(0.5, abs=0.01)


def test_published_records_are_all_found_and_refute_every_certificate() -> None:
    """A released list of members: loss 0 of who is on it."""
    inside = _coins(6)
    shadows = Shadows(inside, np.where(inside, 0.0, 3.0), np.full((STUDIES, 50), 3.0), ({},) * STUDIES, (1.0, 1e-5))
    task = load("logistic-regression", TASK_PARAMETERS)
    for scores in (
        likelihood_ratios(confidences(task, shadows.losses), inside),
        likelihood_ratios(confidences(task, shadows.losses), inside, online=False),
        relative_likelihoods(shadows.losses, shadows.other_losses, inside),
    ):
        found = result("RMIA", scores, inside, shadows.spent)
        assert found.auc == 1.0
        assert all(each.rate == 1.0 and each.passed for each in found.at)


def test_the_ceiling_is_that_of_randomised_response_and_never_below_a_gaussian_mechanism() -> None:
    # ε-DP: who says "in" with e^ε/(1 + e^ε) of members has 1/(1 + e^ε) false positives.
    share = 1 / (1 + math.e)
    assert ceiling(share, 1.0, 0.0) == pytest.approx(math.e * share)
    assert ceiling(0.01, 1.0, 1e-5) == pytest.approx(math.e * 0.01 + 1e-5)
    for mu in (0.3, 1.0, 2.0):
        for epsilon in (0.5, 1.0, 3.0):
            delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
            for false in (1e-3, 1e-2, 0.3, 0.9):
                assert ceiling(false, epsilon, float(delta)) >= stats.norm.cdf(stats.norm.ppf(false) + mu) - 1e-12


@pytest.mark.quick("1.0-0.0")
@pytest.mark.parametrize(("of_study", "of_patient"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_the_interval_covers_the_rate_at_the_share_of_all_strangers(of_study: float, of_patient: float) -> None:
    """Of 2 % of the strangers and e² · 2 % of the members the score is high, more often in some studies or patients."""
    draw, covered, runs = np.random.default_rng(9), 0, 200
    for _ in range(runs):
        inside = draw.random((24, 200)) < 0.5
        more = np.ones((24, 200))
        for spread, shape in ((of_study, (24, 1)), (of_patient, (1, 200))):
            more = more * (draw.gamma(1 / spread, spread, shape) if spread else 1.0)
        chance = np.minimum(0.02 * more, math.exp(-2)) * np.where(inside, math.exp(2), 1.0)
        scores = (draw.random(inside.shape) < chance) + draw.random(inside.shape)
        found = result("RMIA", scores, inside).at[0]
        covered += found.low <= math.exp(2) * 0.01 <= found.high
    # 95 % and more, less what 200 runs leave open with a chance of FALSE_ALARM.
    assert covered >= stats.binom.ppf(FALSE_ALARM, runs, 0.95)


def test_studies_that_share_their_noise_widen_the_interval() -> None:
    inside, draw = _coins(7), np.random.default_rng(8)
    own = result("RMIA", draw.normal(size=inside.shape), inside).at[0]
    shared = result("RMIA", np.repeat(draw.normal(size=(STUDIES, 1)), PATIENTS, axis=1), inside).at[0]
    assert shared.high - shared.low > 5 * (own.high - own.low)


@pytest.mark.slow
def test_a_study_is_attacked_and_shown() -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    population = Population.of({f"h{place}": task.dataset(records(30, seed=place)) for place in range(4)})
    test = task.dataset(records(40, seed=9))
    found = membership(settings(), task, population, test, studies=6, workers=2)
    assert [models.name for models in found.models] == ["without privacy", "this study"]
    assert found.epsilon is not None
    assert found.ceiling is not None
    assert not found.alarms
    assert all(low[1] <= high[1] for low, high in pairwise(found.ceiling))
    assert membership(settings(), task, population, test, studies=6, workers=1) == found
    section = membership_section(found)
    assert section.chart.startswith("<svg")
    assert len(section.rows) == 7
    json.dumps(section.figures, allow_nan=False)


@pytest.mark.slow
def test_a_study_without_noise_passes_the_ceiling_of_one_with() -> None:
    """Coins of labels and more columns than patients: the model knows its patients by heart."""
    columns = [f"x{place}" for place in range(120)]
    task = load("logistic-regression", {"label": "ill", **{f"column.{name}": "-3..3" for name in columns}})

    def drawn(count: int, seed: int) -> TaskDataset:
        draw = np.random.default_rng(seed)
        values = {name: draw.normal(size=count) for name in columns} | {"ill": draw.integers(2, size=count)}
        return task.dataset(Table(values, tuple(f"p{seed}-{place}" for place in range(count))))

    population = Population.of({f"h{place}": drawn(60, place) for place in range(2)})
    shadows = ShadowStudies(None, task, population, drawn(30, 9)).run(24, 0, workers=1)
    found = attacked("this study", task, replace(shadows, spent=(1.0, 1e-5)))
    assert any(each.at[0].passed for each in found.attacks)
    # The same models prove nothing against a certificate that allows all.
    allowed = attacked("this study", task, replace(shadows, spent=(50.0, 1e-5)))
    assert not any(at.passed for each in allowed.attacks for at in each.at)


def test_held_out_patients_train_nobody() -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    population = Population.of({f"h{place}": task.dataset(records(25, seed=place)) for place in range(3)})
    rest, test = held_out(population, 0)
    assert [len(rows) for rows in rest.rows] == [20] * 3
    assert len(test) == 15
    kept = {tuple(row) for row in rest.dataset.inputs[:].tolist()}
    assert not kept & {tuple(row) for row in test.inputs[:].tolist()}
    assert sorted(np.concatenate(rest.rows).tolist()) == list(range(60))


def test_half_the_patients_keep_the_cost_and_halve_the_divisor() -> None:
    chosen = settings()
    half = halved(chosen)
    assert half.privacy.expected_batch_size == chosen.privacy.expected_batch_size / 2
    assert half.privacy.noise_multiplier == chosen.privacy.noise_multiplier


def test_every_study_has_its_own_half_and_hospitals_keep_a_patient() -> None:
    task = load("logistic-regression", TASK_PARAMETERS)
    population = Population.of({f"h{place}": task.dataset(records(3, seed=place)) for place in range(2)})
    shadows = ShadowStudies(None, task, population, task.dataset(records(5, seed=7))).run(8, 0, workers=1)
    assert all(inside[rows].any() for inside in shadows.inside for rows in population.rows)
    assert 0.2 < shadows.inside.mean() < 0.8
    assert shadows.losses.shape == (8, 6)
    assert shadows.other_losses.shape == (8, 5)
    assert shadows.spent is None
