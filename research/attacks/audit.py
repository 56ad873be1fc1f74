"""A privacy audit of whole masked studies, each attacked in one run, and of studies with a defect planted in them.

    python -m research.attacks.audit --out research/benchmarks/results/audit.json    20 seeds: some minutes on one core
    python -m research.attacks.audit --seeds 2 --canaries 4000 --hospitals 4

Canaries lie in ten times as many dimensions as there are of them, each in a direction of its own, and every one takes
part by a coin. The attacker sees what a study releases, guesses the coins of those it is surest of, and the number of
right guesses bounds ε from below (Steinke, Nasr & Jagielski 2023, "Privacy Auditing with One (1) Training Run",
Theorem 5.2). That bound sees noise that is too small and clips that were forgotten. It does not see noise that was
drawn twice, nor batches that are no Poisson batches: these have attacks of their own here, on the differences of rounds
and on the sizes of batches.

Everything but the sending is a study's own code: local training, per-record clipping, exact noise, masks, recovery,
aggregation, release. A defect is planted from outside, in settings or randomness that one party uses.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor, nn

from accounting import ClassicalAccountant
from client_sdk.secure_sum.delivery import ring_vectors_of
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.gradients.slots import Indexed
from private_learning.records import Records
from private_learning.tasks import Task, TaskDataset
from private_learning.training import LocalTraining, weights_of
from private_learning.training.gradients import PrivateGradients
from research.attacks.one_run import (
    ALARM_LAW,
    ALARM_ONE_RUN,
    DELTA,
    Floats,
    guessed,
    largest_refuted,
    p_value,
    too_small,
)
from server.domain.bounds import longest_update
from server.domain.optimiser import begin, released
from server.domain.release import OpenedSum, noised_sum
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import Purpose, RandomSource, SeededRandomness, SeededSource, Subject
from study_protocol.secure_sum.parameters import UPDATE, coordinates
from study_protocol.study.plan_of import plan_of
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensor_files import Arrays
from study_protocol.wire.tensors import spec_of
from tests.factories.masked_memory import MaskedHospitals

ROUNDS = 3
# μ = √rounds / noise of one canary's score, what the certificate is about: at 1/2 a halved noise shows best.
SIGNAL = 0.5
# Of the studies whose ε counts on sampling.
SAMPLED = 0.25
# How much longer the canaries' gradients are than the clip norm.
UNCLIPPED = 4.0
DIMENSIONS = 10


class Canaries(Task):
    """Records that are numbers below `dimensions`: number j has the gradient UNCLIPPED · clip norm along axis j."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions

    def model(self) -> nn.Module:
        layer = nn.Embedding(self.dimensions, 1)
        nn.init.zeros_(layer.weight)
        return nn.Sequential(layer, nn.Flatten())

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return -UNCLIPPED * outputs.sum(1)

    def dataset(self, data: Records) -> TaskDataset:
        raise NotImplementedError("canaries are made, not read")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        return {}

    def of(self, numbers: NDArray[np.int64]) -> TaskDataset:
        """One record for each of the numbers."""
        patients = tuple(str(number) for number in numbers)
        return TaskDataset(torch.as_tensor(numbers)[:, None], torch.zeros(len(numbers), dtype=torch.long), patients)


class ReusedNoise(SeededRandomness):
    """A defect: every round draws what the first one drew."""

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        return super().of(purpose, party=party, round_number=min(round_number, 1), step=step)


@dataclass(frozen=True)
class Twin:
    """A study as it should be, or with one defect.

    rate     the sampling rate of the settings
    samples  False: every record takes part in every round, whatever the rate
    """

    noise_factor: float = 1.0
    clip_factor: float = 1.0
    rate: float = 1.0
    samples: bool = True
    randomness: Callable[[int], SeededRandomness] = lambda seed: SeededRandomness(seed, allow_insecure=True)


TWINS = {
    "sound": Twin(),
    "noise halved": Twin(noise_factor=0.5),
    # What is clipped to a norm that nobody reaches is not clipped; the noise stays what it was.
    "clip forgotten": Twin(clip_factor=UNCLIPPED, noise_factor=1 / UNCLIPPED),
    "noise reused": Twin(randomness=lambda seed: ReusedNoise(seed, allow_insecure=True)),
    "sampled, sound": Twin(rate=SAMPLED),
    "sampled, noise halved": Twin(rate=SAMPLED, noise_factor=0.5),
    "sampled, everybody takes part": Twin(rate=SAMPLED, samples=False),
}


@dataclass(frozen=True)
class AttackChances:
    """p-values of the attacks on one study; `epsilon` is its certificate, `at_least` what the guesses show of it."""

    epsilon: float
    at_least: float
    one_run: float
    differences: float

    @property
    def caught(self) -> bool:
        return self.one_run < ALARM_ONE_RUN or self.differences < ALARM_LAW


def study(hospitals: int, canaries: int, rate: float = 1.0) -> StudySettings:
    """Scheme sequential: the sum holds no more noise than the certificate counts on, but for one colluder's share."""
    honest = hospitals - 1
    return StudySettings.model_validate(
        {
            "training": {"task": "canaries", "algorithm": "fedsgd", "local_steps": 1},
            "privacy": {
                "scheme": "sequential",
                "limits": [{"level": "instance", "definition": "classical", "epsilon": 20.0, "delta": DELTA}],
                "clip_norm": 1.0,
                "client_clip_norm": None,
                "noise_multiplier": math.sqrt(ROUNDS / honest) / SIGNAL,
                "sampling_rate": rate,
                "expected_batch_size": rate * canaries / hospitals / 2,
                "client_sampling_rate": 1.0,
                "expected_clients": float(hospitals),
                "max_steps": ROUNDS,
                "classical_order": 4.0,
                "bayesian": None,
                "disclosure": "plain",
                "histogram_noise": None,
                "accounting_sample": None,
                "masking": {
                    "colluders": 1,
                    "neighbours": None,
                    "min_survivors": hospitals,
                    "mask_updates": True,
                    "allow_three": False,
                    "step_deadline_seconds": 60.0,
                    "expiry_seconds": 600.0,
                },
            },
            "schedule": {"min_clients": hospitals, "round_deadline_seconds": 600.0},
        }
    )


def certificate(settings: StudySettings) -> float:
    """ε at DELTA of the whole study, as its plan counts it."""
    plan = plan_of(settings)
    account = ClassicalAccountant(delta=DELTA)
    noise = plan.noise_multiplier * math.sqrt(plan.honest_survivors)
    account.step(noise_multiplier=noise, sampling_rate=plan.sampling_rate, count=plan.max_steps)
    return account.epsilon()


def released_sums(twin: Twin, settings: StudySettings, members: Sequence[NDArray[np.int64]], seed: int) -> Floats:
    """(rounds, dimensions): the sum that each round of one masked study releases, in clip norms."""
    task = Canaries(DIMENSIONS * settings_canaries(settings))
    weights = weights_of(task.model())
    model, names = spec_of(weights), [f"hospital-{i:02d}" for i in range(len(members))]
    hospitals = MaskedHospitals(settings, model, names)
    privacy = settings.as_json()["privacy"]
    used = settings.as_json() | {
        "privacy": privacy
        | {
            "clip_norm": privacy["clip_norm"] * twin.clip_factor,
            "noise_multiplier": privacy["noise_multiplier"] * twin.noise_factor,
            "sampling_rate": privacy["sampling_rate"] if twin.samples else 1.0,
        }
    }
    trainings = {
        name: LocalTraining(
            task, task.of(member_rows), StudySettings.model_validate(used), twin.randomness(seed), party=name
        )
        for name, member_rows in zip(names, members, strict=True)
    }
    sums: list[Floats] = []
    for number in range(1, ROUNDS + 1):

        def words(name: str, vectors: Any, number: int = number, start: Any = weights) -> Any:
            training = trainings[name]
            contribution = training.contribution(start, None, round_number=number)
            source = training.randomness_in(number)
            return ring_vectors_of(
                settings.privacy, model, vectors, contribution, None, records=len(training.dataset), randomness=source
            )

        spec, total = hospitals.summed(number, words)[UPDATE]
        longest = longest_update(settings, coordinates(model), number, anchor=0.0, clients=len(names))
        opened = OpenedSum(spec, lambda start, stop, total=total: total[start:stop], longest)
        summed = noised_sum(settings, model, (), opened, DiscreteGaussianNoise().of(number))
        (flat,) = (values.ravel() for values in summed.values())
        sums.append(-flat * settings.privacy.expected_batch_size)
        weights, _ = released(settings, Arrays(weights), Arrays(summed), begin())
    return np.array(sums)


def settings_canaries(settings: StudySettings) -> int:
    """How many canaries `study` was made for."""
    privacy = settings.privacy
    return round(privacy.expected_batch_size / privacy.sampling_rate * privacy.expected_clients * 2)


def attack(twin: Twin, *, hospitals: int, canaries: int, seed: int) -> AttackChances:
    """Run one study and attack what it released."""
    settings, coins = study(hospitals, canaries, twin.rate), np.random.default_rng(seed)
    inside = coins.random(canaries) < 0.5
    members = [np.flatnonzero(inside[start::hospitals]) * hospitals + start for start in range(hospitals)]
    sums = released_sums(twin, settings, members, seed)
    epsilon, scores = certificate(settings), sums[:, :canaries].sum(0)
    guesses, right = guessed(scores, inside)
    free = sums[:, canaries:]
    noise = settings.privacy.noise_multiplier * math.sqrt(hospitals)
    return AttackChances(
        epsilon=epsilon,
        at_least=largest_refuted(canaries, guesses, right),
        one_run=p_value(canaries, guesses, right, epsilon),
        differences=too_small(np.diff(free, axis=0), math.sqrt(2) * noise),
    )


# -- batches: at rate 1 there are none to look at, so these are steps of one hospital at another rate

BATCH_RATE, BATCH_RECORDS, BATCH_STEPS = 0.25, 400, 40


class ShuffledBatches(SeededRandomness):
    """A defect: coins that put every record into exactly one batch of an epoch, as shuffling does."""

    def of(
        self, purpose: Purpose, *, party: str, round_number: int, step: int = 0, subject: Subject = b""
    ) -> RandomSource:
        sound = super().of(purpose, party=party, round_number=round_number, step=step)
        return _ShuffledBatchCoins(self._seed, step) if purpose is Purpose.SAMPLE else sound


class _ShuffledBatchCoins(SeededSource):
    def __init__(self, seed: int, step: int) -> None:
        super().__init__(seed, allow_insecure=True)
        self._epoch, self._place = divmod(step - 1, round(1 / BATCH_RATE))
        self._shuffle = seed

    def words(self, count: int, dtype: type[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        order = np.random.default_rng((self._shuffle, self._epoch)).permutation(count)
        words = np.full(count, np.iinfo(dtype).max, dtype)
        words[order[self._place :: round(1 / BATCH_RATE)]] = 0
        return words


class _Watched(PerRecordGradients):
    """Gradients that note how many records each sum is of."""

    sizes: list[int]

    def clipped_sum(self, inputs: Tensor | Indexed, targets: Tensor, **options: Any) -> ClippedSum:
        self.sizes.append(len(targets))
        return super().clipped_sum(inputs, targets, **options)


def batches(randomness: SeededRandomness) -> float:
    """p-value of the sizes of one hospital's batches, too even or too uneven for independent coins."""
    settings = study(4, 2 * 4 * BATCH_RECORDS)
    values = settings.as_json()
    values["privacy"] |= {"sampling_rate": BATCH_RATE, "expected_batch_size": BATCH_RATE * BATCH_RECORDS}
    task = Canaries(BATCH_RECORDS)
    gradients = _Watched(task.model(), task.loss)
    gradients.sizes = []
    steps = PrivateGradients(
        gradients,
        task.of(np.arange(BATCH_RECORDS)),
        StudySettings.model_validate(values),
        randomness.in_round("hospital", 1),
    )
    for step in range(1, BATCH_STEPS + 1):
        steps.at(step)
    mean, variance = BATCH_RECORDS * BATCH_RATE, BATCH_RECORDS * BATCH_RATE * (1 - BATCH_RATE)
    spread = float(((np.array(gradients.sizes) - mean) ** 2).sum() / variance)
    return 2 * float(min(stats.chi2.cdf(spread, BATCH_STEPS), stats.chi2.sf(spread, BATCH_STEPS)))


# -- the audit


@dataclass(frozen=True)
class AlarmCount:
    """How many of so many seeds raised an alarm, by which attack.

    epsilon  as the certificate states it. shown: the least and the most that the guesses of one run show of it
    """

    seeds: int
    caught: int
    by_one_run: int
    by_differences: int
    by_batches: int
    epsilon: float | None = None
    shown: tuple[float, float] | None = None


def alarm_count(attacks: Sequence[AttackChances], sizes: Sequence[bool] = ()) -> AlarmCount:
    """The alarms of attacks on one study. sizes: of each seed, whether its batches raised one."""
    one_run = [attack.one_run < ALARM_ONE_RUN for attack in attacks]
    differences = [attack.differences < ALARM_LAW for attack in attacks]
    batch_alarms = list(sizes) or [False] * len(attacks)
    caught = sum(map(any, zip(one_run, differences, batch_alarms, strict=True)))
    bounds = [attack.at_least for attack in attacks]
    return AlarmCount(
        seeds=len(attacks),
        caught=caught,
        by_one_run=sum(one_run),
        by_differences=sum(differences),
        by_batches=sum(batch_alarms),
        epsilon=attacks[0].epsilon,
        shown=(min(bounds), max(bounds)),
    )


def audit(seeds: Sequence[int], *, hospitals: int, canaries: int) -> dict[str, AlarmCount]:
    """Twin -> alarms."""
    counts: dict[str, AlarmCount] = {}
    for name, twin in TWINS.items():
        attacks = [attack(twin, hospitals=hospitals, canaries=canaries, seed=seed) for seed in seeds]
        sizes = [batches(twin.randomness(seed)) < ALARM_LAW for seed in seeds]
        counts[name] = alarm_count(attacks, sizes)
        print(f"{name}: {counts[name]}", flush=True)
    sizes = [batches(ShuffledBatches(seed, allow_insecure=True)) < ALARM_LAW for seed in seeds]
    counts["batches shuffled"] = AlarmCount(len(seeds), sum(sizes), 0, 0, sum(sizes))
    print(f"batches shuffled: {counts['batches shuffled']}", flush=True)
    return counts


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--canaries", type=int, default=20_000)
    options.add_argument("--hospitals", type=int, default=10)
    options.add_argument("--out", type=Path)
    arguments = options.parse_args()
    torch.set_num_threads(1)
    # Here, because it uses the attacks above.
    from research.attacks.audit_queries import audit_queries

    seeds = range(1, arguments.seeds + 1)
    counts = audit(seeds, hospitals=arguments.hospitals, canaries=arguments.canaries) | audit_queries(seeds)
    text = json.dumps({name: asdict(count) for name, count in counts.items()}, indent=1)
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
