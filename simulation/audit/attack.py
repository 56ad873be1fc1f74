"""One run of a study with canaries, attacked: what the guesses prove of ε."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from private_learning.records import Records
from private_learning.tasks import TaskDataset
from private_learning.tasks.inputs import take_rows
from simulation.audit.canaries import candidates, chosen, with_canaries
from simulation.audit.one_run import (
    GuessPlan,
    StudyLaw,
    most_provable,
    plan_guesses,
    proven_epsilon,
    proven_epsilon_of_any,
    refutes,
    right_guesses,
)
from simulation.audit.releases import AttackedStudy, RecordGradients, Release, law_of
from simulation.engine import initial_weights

Floats = NDArray[np.float64]
# A sound study fails the guesses with at most this chance, and all tests of its steps together with as much.
CHANCE = 0.005
# Patients of a study that can be audited.
FEWEST, _FEWEST_CANARIES = 20, 2
# Numbers of all gradients of one step, and of all steps, at most: some minutes on two cores.
_MOST_NUMBERS, _MOST_NUMBERS_OF_ALL_STEPS = 40_000_000, 1_000_000_000
# Products of numbers in the covariances of all steps, beyond which the noise alone is taken.
_MOST_PRODUCTS = 3e11
# Fewer steps show less, and the bound stays one of the whole study.
_MOST_STEPS = 1_000


@dataclass(frozen=True)
class OneRun:
    """What one run shows.

    certified  ε at `delta` of the steps, as the accountant states it
    proven     ε at `delta` of the least noise that the guesses refute, of the study's law. 0: none
    of_any     the same without the study's law, for any mechanism
    expected   what a sound run with so many canaries and the best attack proves
    most       the largest ε that any run with so many canaries can prove
    steps      how many noised sums were seen
    refuted    the guesses refute the certificate
    """

    delta: float
    certified: float
    proven: float
    of_any: float
    expected: float
    most: float
    dimension: int
    canaries: int
    guesses: int
    right: int
    steps: int
    refuted: bool


def attack(study: AttackedStudy, records: Records, *, canaries: int, delta: float, seed: int) -> OneRun:
    """Add canaries by coins, run the study once and guess the coins.

    Raises:
        ConfigurationError: a model with too many parameters.
        ClientStopped, DataError: as `Engine.run`.
    """
    settings, population = study.settings, study.population
    gradients = RecordGradients(study.task, settings.training.task, grouped=population.dataset.grouped)
    start = initial_weights(settings, seed, study.task)
    dimension = sum(array.size for array in start.values())
    canaries = min(canaries, _MOST_NUMBERS // (8 * dimension))
    if canaries < _FEWEST_CANARIES:
        raise ConfigurationError(
            f"{dimension:,} parameters are too many for an audit: name fewer in training.trainable, or choose a "
            "smaller model"
        )
    study = _narrowed(study, dimension, seed)
    pool = candidates(study.task, records, settings.training.rows_per_patient, canaries, seed)
    planted = chosen(pool, gradients, start, settings.privacy.clip_norm, canaries)
    law = law_of(settings)
    plan = plan_guesses(law, delta, canaries=len(planted), chance=CHANCE)
    inside = np.random.default_rng([seed, 29]).random(len(planted)) < 0.5
    run = replace(study, population=with_canaries(study.population, planted, inside, study.watched))
    releases = run.run(seed, _MOST_STEPS)
    if not releases:
        raise ConfigurationError("no step had all hospitals of the certificate: the audit saw none")
    right = right_guesses(_scores(run, releases, gradients, planted), inside, plan.guesses)
    return judged(law, delta, dimension, plan, len(planted), right, len(releases))


def judged(
    law: StudyLaw, delta: float, dimension: int, plan: GuessPlan, canaries: int, right: int, steps: int
) -> OneRun:
    """Return what so many right guesses prove."""
    counts = {"canaries": canaries, "guesses": plan.guesses, "right": right}
    return OneRun(
        delta=delta,
        certified=law.epsilon(delta),
        proven=proven_epsilon(law, delta, **counts, chance=CHANCE),
        of_any=proven_epsilon_of_any(delta, **counts, chance=CHANCE),
        expected=plan.expected,
        most=most_provable(canaries, CHANCE, delta),
        dimension=dimension,
        canaries=canaries,
        guesses=plan.guesses,
        right=right,
        steps=steps,
        refuted=refutes(law.profile(), **counts, chance=CHANCE),
    )


def _narrowed(study: AttackedStudy, dimension: int, seed: int) -> AttackedStudy:
    """Return the study with so few patients that all their gradients can be looked at. Other patients hide none."""
    steps = min(study.settings.privacy.max_steps, _MOST_STEPS)
    limit = min(_MOST_NUMBERS // 2, _MOST_NUMBERS_OF_ALL_STEPS // steps) // dimension // study.watched
    draw = np.random.default_rng([seed, 37])
    rows = tuple(
        np.sort(draw.permutation(client_rows)[: max(limit, FEWEST)]) if place < study.watched else client_rows
        for place, client_rows in enumerate(study.population.rows)
    )
    return replace(study, population=replace(study.population, rows=rows))


def _scores(
    run: AttackedStudy, releases: Sequence[Release], gradients: RecordGradients, planted: TaskDataset
) -> Floats:
    """Return (canaries,) log-likelihood ratios of a linear attack that knows all other records."""
    rate = run.settings.privacy.sampling_rate
    whole = run.population.dataset
    rows = np.concatenate(run.population.rows[: run.watched])
    rows = rows[rows < len(whole) - len(planted)]
    index = torch.as_tensor(rows)
    other_records = replace(
        whole,
        inputs=take_rows(whole.inputs, index),
        targets=whole.targets[index],
        patients=tuple(whole.patients[int(row)] for row in rows),
    )
    size = len(releases[0].total)
    whitens = len(releases) * (len(rows) + len(planted) + size) * size**2 <= _MOST_PRODUCTS
    scores = np.zeros(len(planted))
    for release in releases:
        other_gradients = gradients.of(other_records, release.weights, release.clip_norm)
        signals = gradients.of(planted, release.weights, release.clip_norm)
        centred = release.total - rate * other_gradients.sum(axis=0) - rate / 2 * signals.sum(axis=0)
        if whitens:
            centred = _whitened(centred, other_gradients, signals, rate, release.noise)
        scores += rate * (signals @ centred)
    return scores


def _whitened(rest: Floats, other_gradients: Floats, signals: Floats, rate: float, noise: float) -> Floats:
    """Return Σ⁻¹ rest, with Σ of the noise, the batches and the other canaries' coins."""
    coins = rate / 2 * (1 - rate / 2)
    spread: Floats = (
        rate * (1 - rate) * other_gradients.T @ other_gradients
        + coins * signals.T @ signals
        + noise**2 * np.eye(len(rest))
    )
    return np.asarray(np.linalg.solve(spread, rest), dtype=np.float64)
