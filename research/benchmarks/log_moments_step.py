"""What accounts cost a hospital's noised step: `python -m research.benchmarks.log_moments_step [--quick]`.

The step is the hospital's own (`private_learning.training.gradients`): Poisson batch, per-record clipping, exact noise.
Every variant runs in turn in one process, round after round, one torch thread; figures are medians over rounds of
processor time divided by the same step without accounts in the same round. Beside each the part that is gradient norms
of records that were not drawn, and the part that is the accounts' own arithmetic.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from client_sdk.guard.individual import IndividualBudget
from client_sdk.guard.log_moments import LogMomentBounds
from client_sdk.guard.policy_limits import IndividualLimit
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.layers import cross_entropy
from private_learning.tasks import TaskDataset
from private_learning.training.gradients import PrivateGradients
from research.benchmarks.private_step_models import tf_cnn
from research.benchmarks.simulation_work import small_cnn
from study_protocol.randomness.source import SecureRandomness
from study_protocol.study.settings import StudySettings
from tests.harness import tiny

RESULTS = Path(__file__).parent / "results" / "log_moments_step.json"
MODELS: Mapping[str, Callable[[], nn.Module]] = {"TF CNN": tf_cnn, "small CNN": small_cnn}
RECORDS, BATCH, STEPS = 6000, 256, 10_000


def settings(accounting_sample: int | None, estimator: str) -> StudySettings:
    """A parallel study: one limit of each definition, 16 orders, running sums."""
    limit = {"level": "instance", "delta": 1e-5}
    estimate = {"filter_order": 8.0, "estimator": estimator, "adversary": "adaptive"}
    training = {"task": "any", "task_parameters": {}, "algorithm": "fedavg", "local_steps": 100, "learning_rate": 1.0}
    return tiny.settings(
        "parallel",
        clients=1,
        rounds=STEPS,
        training=training,
        limits=[
            limit | {"definition": "classical", "epsilon": 50.0},
            limit | {"definition": "bayesian", "epsilon": 40.0, "estimator_failure_probability": 5e-6},
        ],
        noise_multiplier=1.0,
        sampling_rate=BATCH / RECORDS,
        expected_batch_size=float(BATCH),
        classical_order=8.0,
        bayesian=estimate | {"orders": [float(order) for order in range(1, 17)]},
        disclosure="at-end",
        accounting_sample=None if accounting_sample is None else {"records": accounting_sample, "source": "members"},
    )


class Variant:
    """One way to account: a step, and how much of it went into norms and into accounts."""

    def __init__(
        self, model: nn.Module, dataset: TaskDataset, accounting_sample: int | None, own: IndividualLimit | None
    ) -> None:
        study_settings, randomness = settings(accounting_sample or None, "betting"), SecureRandomness()
        self.log_moments = None if accounting_sample == 0 else LogMomentBounds(study_settings, dataset.patients)
        individual = None
        if own is not None:
            individual = IndividualBudget.open(own, None, dataset.patients, entries=0, sent_since=lambda _: [])
        self._steps = PrivateGradients(
            *(PerRecordGradients(model, cross_entropy), dataset, study_settings, randomness.in_round("client", 1)),
            log_moments=self.log_moments,
            individual=individual,
        )
        self._done = 0
        self.parts = {"norms": 0.0, "accounts": 0.0}
        self._watch(self._steps, "_norms_of", "norms")
        for account, name in ((self.log_moments, "measure"), (individual, "charge"), (individual, "admitted")):
            if account is not None:
                self._watch(account, name, "accounts")

    def step(self) -> tuple[float, dict[str, float]]:
        """Processor seconds of one step, and of its parts."""
        self.parts = dict.fromkeys(self.parts, 0.0)
        begun = time.thread_time()
        self._done += 1
        self._steps.at(self._done)
        return time.thread_time() - begun, self.parts

    def _watch(self, owner: Any, name: str, part: str) -> None:
        inner = getattr(owner, name)

        def watched(*arguments: Any, **options: Any) -> Any:
            begun = time.thread_time()
            try:
                return inner(*arguments, **options)
            finally:
                self.parts[part] += time.thread_time() - begun

        object.__setattr__(owner, name, watched)


def variants(model: nn.Module, dataset: TaskDataset) -> dict[str, Variant]:
    """Without accounts first; every other one is divided by it."""
    limit = IndividualLimit(epsilon=1e4, delta=1e-6, order=8.0)
    return {
        "no accounts": Variant(model, dataset, 0, None),
        "log-moments, accounting sample of 100": Variant(model, dataset, 100, None),
        "log-moments, accounting sample of 1000": Variant(model, dataset, 1000, None),
        "log-moments, all records": Variant(model, dataset, None, None),
        "patients' own sums": Variant(model, dataset, 0, limit),
        "patients' own sums, every norm": Variant(model, dataset, 0, limit.model_copy(update={"every_norm": True})),
    }


def measured(name: str, rounds: int) -> dict[str, dict[str, float]]:
    """Medians of ratios for one model."""
    torch.manual_seed(0)
    model, draw = MODELS[name]().eval(), np.random.default_rng(0)
    pixels = torch.from_numpy(draw.normal(size=(RECORDS, 1, 28, 28)).astype(np.float32))
    dataset = TaskDataset(pixels, torch.from_numpy(draw.integers(0, 10, RECORDS)), tuple(map(str, range(RECORDS))))
    ways = variants(model, dataset)
    for way in ways.values():
        way.step()
    table: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        times = {way: variant.step() for way, variant in ways.items()}
        base = times["no accounts"][0]
        for way, (whole, parts) in times.items():
            table[way].append((whole / base, parts["norms"] / base, parts["accounts"] / base))
    columns = ("step", "norms", "accounts")
    return {
        way: {column: round(statistics.median(row[k] for row in rows), 3) for k, column in enumerate(columns)}
        for way, rows in table.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="small network, three rounds, nothing is written")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ["small CNN"] if options.quick else list(MODELS)
    results = {name: measured(name, 3 if options.quick else options.rounds) for name in names}
    for name, ways in results.items():
        print(f"\n{name}, batch {BATCH} of {RECORDS}: step / step without accounts (norms, accounts)")
        for way, row in ways.items():
            print(f"  {way:32} {row['step']:6.2f}  ({row['norms']:.2f}, {row['accounts']:.2f})")
    if not options.quick:
        about = {"torch": torch.__version__, "machine": platform.processor(), "threads": 1, "rounds": options.rounds}
        RESULTS.write_text(json.dumps({"about": about, "ratios": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
