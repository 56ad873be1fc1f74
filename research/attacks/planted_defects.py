"""Defects planted in an engine's run, and the tests of its steps that find them.

    nice python -m research.attacks.planted_defects --out research/benchmarks/results/planted_defects.json

Of each study the sound engine and five broken ones run with 20 seeds: noise halved, one noise for all steps, no
clipping, batches of one size (shuffled records) and one batch for all steps. A defect is found when the test of its
name raises an alarm. All alarms of the sound engine are false ones.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from private_learning.tasks import load
from simulation.audit.attack import CHANCE
from simulation.audit.releases import AttackedStudy, Plant, audited
from simulation.audit.step_laws import check_steps
from simulation.local_work import LocalWork
from simulation.population import Population
from study_protocol.randomness.source import Purpose, Randomness, RandomSource, SeededRandomness, SeededSource, Subject
from study_protocol.study.settings import StudySettings
from tests.factories.hospitals import records
from tests.factories.settings import TASK_PARAMETERS, settings

PATIENTS = 200
# Clipping is forgotten: a clip norm that no gradient reaches, and the same noise.
_FAR = 1e6


class FirstStepAgain(SeededRandomness):
    """A defect: for one purpose every round draws what the first one drew."""

    def __init__(self, seed: int, purpose: Purpose) -> None:
        super().__init__(seed, allow_insecure=True)
        self._purpose = purpose

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        at = min(round_number, 1) if purpose is self._purpose else round_number
        return super().of(purpose, party=party, round_number=at, step=step)


class Shuffled(SeededRandomness):
    """A defect: coins that put every record into exactly one batch of an epoch, so that all batches have one size."""

    def __init__(self, seed: int, rate: float) -> None:
        super().__init__(seed, allow_insecure=True)
        self._rate = rate

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        sound = super().of(purpose, party=party, round_number=round_number, step=step)
        return _ShuffledCoins(self._seed, party, round_number, self._rate) if purpose is Purpose.SAMPLE else sound


class _ShuffledCoins(SeededSource):
    def __init__(self, seed: int, party: str, round_number: int, rate: float) -> None:
        super().__init__(seed, allow_insecure=True)
        self._batches = round(1 / rate)
        epoch, self._place = divmod(round_number - 1, self._batches)
        self._address = (seed, epoch, *party.encode())

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        words = np.full(count, np.iinfo(dtype).max, dtype)
        words[np.random.default_rng(self._address).permutation(count)[self._place :: self._batches]] = 0
        return words


def _rewritten(privacy: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[int], Plant]:
    """Return work whose clients use other settings than the coordinator."""

    def plant(work: LocalWork) -> LocalWork:
        values = work.settings.as_json()
        values["privacy"] = values["privacy"] | privacy(values["privacy"])
        return _with(work, StudySettings.model_validate(values), work.training.randomness)

    return lambda _: plant


def _redrawn(randomness: Callable[[int, float], Randomness]) -> Callable[[int], Plant]:
    """Return work whose clients draw from this randomness."""

    def planted(seed: int) -> Plant:
        return lambda work: _with(work, work.settings, randomness(seed, work.settings.privacy.sampling_rate))

    return planted


def _with(work: LocalWork, chosen: StudySettings, randomness: Randomness) -> LocalWork:
    return replace(LocalWork.of(work.population, chosen, randomness, work.training.task), settings=work.settings)


# Defect -> its tests. One size, or one batch, makes sizes too even, and one batch stays the same.
DEFECTS: dict[str, tuple[tuple[str, ...], Callable[[int], Plant]]] = {
    "noise halved": (("noise",), _rewritten(lambda p: {"noise_multiplier": p["noise_multiplier"] / 2})),
    "no clipping": (
        ("clipping",),
        _rewritten(lambda p: {"clip_norm": p["clip_norm"] * _FAR, "noise_multiplier": p["noise_multiplier"] / _FAR}),
    ),
    "one noise for all steps": (("same noise",), _redrawn(lambda seed, _: FirstStepAgain(seed, Purpose.NOISE))),
    "batches of one size": (("batches",), _redrawn(Shuffled)),
    "one batch for all steps": (
        ("batches", "same batches"),
        _redrawn(lambda seed, _: FirstStepAgain(seed, Purpose.SAMPLE)),
    ),
}


@dataclass(frozen=True)
class AuditedCase:
    """A study, and how many of its clients are watched."""

    settings: StudySettings
    watched: int


def cases() -> dict[str, AuditedCase]:
    """Noise of each hospital and noise that hospitals share under masks, linear and not, with and without batches."""
    network = {"task": "mlp", "task_parameters": TASK_PARAMETERS | {"hidden": 16}}
    chosen = {
        "logistic regression, q 0.25, σ 1.5": settings(
            expected_clients=2.0, sampling_rate=0.25, noise_multiplier=1.5, expected_batch_size=50.0, max_steps=40
        ),
        "network, q 0.1, σ 3": settings(
            training=network,
            expected_clients=2.0,
            sampling_rate=0.1,
            noise_multiplier=3.0,
            expected_batch_size=20.0,
            max_steps=15,
        ),
        "masked network, q 1, σ 4": settings(
            "sequential",
            training=network,
            sampling_rate=1.0,
            noise_multiplier=4.0,
            expected_batch_size=200.0,
            max_steps=40,
        ),
    }
    return {name: AuditedCase(audited(each), each.privacy.honest_adders) for name, each in chosen.items()}


def study_of(case: AuditedCase, plant: Plant, seed: int) -> AttackedStudy:
    """Return the study, broken by this plant."""
    task = load(case.settings.training.task, case.settings.training.task_parameters)
    hospitals = round(case.settings.privacy.expected_clients)
    population = Population.of(
        {f"h{i}": task.dataset(records(PATIENTS, seed=100 * seed + i)) for i in range(hospitals)}
    )
    return AttackedStudy(case.settings, task, population, case.watched, plant)


def found(case: AuditedCase, seeds: range) -> dict[str, Any]:
    """Defect -> how many seeds the test of its name found, and how many any test did. The sound engine too."""
    shown: dict[str, Any] = {}
    none: tuple[str, ...] = ()
    named = {"sound": (none, lambda _: lambda work: work), **DEFECTS}
    for name, (tests, plant) in named.items():
        if "batches" in tests and case.settings.privacy.sampling_rate == 1:
            continue
        results = [check_steps(study_of(case, plant(seed), seed), seed) for seed in seeds]
        alarms = [result.alarms(CHANCE) for result in results]
        least = {each: min(result.p_values[each] for result in results) for each in results[0].p_values}
        shown[name] = {
            "seeds": len(seeds),
            "by its own test": sum(bool({*tests} & {*each}) for each in alarms),
            "by any test": sum(map(bool, alarms)),
            "least p-values": least,
        }
        print(name, shown[name], flush=True)
    return shown


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--first", type=int, default=1, help="the first seed")
    options.add_argument("--case", type=int, help="only the case with this number, from 0")
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    # Seeded randomness is meant here.
    logging.disable(logging.ERROR)
    chosen = list(cases().items())
    if arguments.case is not None:
        chosen = [chosen[arguments.case]]
    shown: dict[str, Any] = {"chance of a false alarm": CHANCE}
    for name, case in chosen:
        print(name, flush=True)
        shown[name] = found(case, range(arguments.first, arguments.first + arguments.seeds))
    text = json.dumps(shown, indent=1, ensure_ascii=False)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
