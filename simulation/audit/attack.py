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
from simulation.audit.releases import Gradients, Release, Study, law_of
from simulation.engine import initial_weights

Floats = NDArray[np.float64]
# A sound study fails the guesses with at most this chance, and all tests of its steps together with as much.
CHANCE = 0.005
_FEWEST = 20
# Numbers of all gradients of one step, at most.
_MOST_NUMBERS = 40_000_000
_MOST_COORDINATES = 2_000


@dataclass(frozen=True)
class OneRun:
    """What one run shows.

    certified  ε at `delta` of the steps, as the accountant states it
    proven     ε at `delta` of the least noise that the guesses refute, of the study's law. 0: none
    of_any     the same without the study's law, for any mechanism
    expected   what a sound run with so many canaries and the best attack proves
    most       the largest ε that any run with so many canaries can prove
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
    refuted: bool


def attack(study: Study, records: Records, *, canaries: int, delta: float, seed: int) -> OneRun:
    """Add canaries by coins, run the study once and guess the coins.

    Raises:
        ConfigurationError: too few records, or a model with too many parameters for these records.
        ClientStopped, StudyPaused, DataError: as `Engine.run`.
    """
    settings, population = study.settings, study.population
    if len(population.dataset) < _FEWEST:
        raise ConfigurationError(
            f"{len(population.dataset)} patients are too few for an audit: give records of {_FEWEST} or more"
        )
    gradients = Gradients(study.task, settings.training.task, grouped=population.dataset.grouped)
    start = initial_weights(settings, seed, study.task)
    dimension = sum(array.size for array in start.values())
    pool = candidates(study.task, records, settings.training.rows_per_patient, canaries, seed)
    if (len(population.dataset) + len(pool)) * dimension > _MOST_NUMBERS:
        raise ConfigurationError(
            f"{dimension:,} parameters and {len(population.dataset):,} patients are too many for one audit: give fewer "
            f"records, at most {_MOST_NUMBERS // dimension:,}"
        )
    planted = chosen(pool, gradients, start, settings.privacy.clip_norm, canaries)
    law = law_of(settings)
    plan = plan_guesses(law, delta, canaries=len(planted), chance=CHANCE)
    inside = np.random.default_rng([seed, 29]).random(len(planted)) < 0.5
    run = replace(study, population=with_canaries(population, planted, inside, study.watched))
    releases = run.run(seed)
    right = right_guesses(_scores(run, releases, gradients, planted), inside, plan.guesses)
    return judged(law, delta, dimension, plan, len(planted), right)


def judged(law: StudyLaw, delta: float, dimension: int, plan: GuessPlan, canaries: int, right: int) -> OneRun:
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
        refuted=refutes(law.profile(), **counts, chance=CHANCE),
    )


def _scores(run: Study, releases: Sequence[Release], gradients: Gradients, planted: TaskDataset) -> Floats:
    """Return (canaries,) log-likelihood ratios of a linear attack that knows all other records."""
    rate = run.settings.privacy.sampling_rate
    whole = run.population.dataset
    rows = np.concatenate(run.population.rows[: run.watched])
    rows = rows[rows < len(whole) - len(planted)]
    index = torch.as_tensor(rows)
    known = replace(
        whole,
        inputs=take_rows(whole.inputs, index),
        targets=whole.targets[index],
        patients=tuple(whole.patients[int(row)] for row in rows),
    )
    scores = np.zeros(len(planted))
    for release in releases:
        others = gradients.of(known, release.weights, release.clip_norm)
        signals = gradients.of(planted, release.weights, release.clip_norm)
        centred = release.total - rate * others.sum(axis=0) - rate / 2 * signals.sum(axis=0)
        scores += rate * (signals @ _whitened(centred, others, signals, rate, release.noise))
    return scores


def _whitened(rest: Floats, known: Floats, signals: Floats, rate: float, noise: float) -> Floats:
    """Return Σ⁻¹ rest, with Σ of the noise, the batches and the other canaries' coins. A large model has Σ ≈ noise²."""
    if len(rest) > _MOST_COORDINATES:
        return rest / noise**2
    coins = rate / 2 * (1 - rate / 2)
    spread: Floats = rate * (1 - rate) * known.T @ known + coins * signals.T @ signals + noise**2 * np.eye(len(rest))
    return np.asarray(np.linalg.solve(spread, rest), dtype=np.float64)
