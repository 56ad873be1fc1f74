"""Accuracy against ε on real data, beside plain SGD and Opacus: python -m research.accuracy.accuracy [--data ...]
[--quick]

One model per data set, trained three ways on the same features with the same Poisson rate, clip norm, noise
multiplier, steps and learning rate. ε is classical, at instance level, by loss distributions.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from accounting import ClassicalAccountant, calibrate_noise
from private_learning.gradients import ClippedSum, PerRecordGradients
from private_learning.training.gradients import poisson_batch
from private_learning.training.noise import add_noise
from research.accuracy.accuracy_data import WORKLOADS, AccuracySplit, Workload
from study_protocol.randomness.source import RandomSource, SeededSource

DELTA = 1e-5
EPSILONS = (0.1, 0.3, 1.0, 3.0)
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "accuracy.json"
# Features have norm 1 up to float32 rounding; the released sum holds them a little below.
_WITHIN_ONE = 1 - 2.0**-14
# Keeps the seeds of noise, batches and initial weights apart.
_SEED_OFFSET = 1_000_000

Step = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class AccuracyPlan:
    """What is public before a run, and what it costs. steps counts the release of the mean where there is one."""

    epsilon: float
    delta: float
    noise_multiplier: float
    sampling_rate: float
    steps: int


@dataclass(frozen=True)
class AccuracyOutcome:
    """Accuracy per seed in [0, 1], and the median seconds of one training step."""

    accuracies: list[float]
    step_seconds: float

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def standard_error(self) -> float:
        return standard_error(self.accuracies)


def plan(workload: Workload, epsilon: float) -> AccuracyPlan:
    """The least noise within ε, and the ε of exactly that noise."""
    steps = workload.steps + workload.centred
    noise = calibrate_noise(
        epsilon=epsilon, delta=DELTA, sampling_rate=workload.sampling_rate, steps=steps, method="pld"
    )
    accountant = ClassicalAccountant(delta=DELTA, method="pld")
    accountant.step(noise_multiplier=noise, sampling_rate=workload.sampling_rate, count=steps)
    return AccuracyPlan(accountant.epsilon(), DELTA, noise, workload.sampling_rate, steps)


def private_step(workload: Workload, model: nn.Module, expected: float, noise: float, source: RandomSource) -> Step:
    gradients = PerRecordGradients(model, _losses)
    optimiser = torch.optim.SGD(model.parameters(), lr=workload.learning_rate, momentum=workload.momentum)

    def step(x: Tensor, y: Tensor) -> None:
        clipped = gradients.clipped_sum(x, y, clip_norm=workload.clip_norm)
        noisy = add_noise(clipped, noise_multiplier=noise, source=source)
        for name, parameter in model.named_parameters():
            parameter.grad = noisy.gradients[name] / expected
        optimiser.step()

    return step


def opacus_step(workload: Workload, model: nn.Module, expected: float, noise: float, seed: int) -> Step:
    """Opacus's ghost clipping with its own Gaussian noise."""
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=workload.clip_norm, use_ghost_clipping=True)
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), lr=workload.learning_rate, momentum=workload.momentum),
        noise_multiplier=noise,
        max_grad_norm=workload.clip_norm,
        expected_batch_size=expected,  # pyright: ignore[reportArgumentType]
        generator=torch.Generator().manual_seed(seed),
    )
    criterion = DPLossFastGradientClipping(wrapped, optimiser, nn.CrossEntropyLoss())

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad()
        criterion(wrapped(x), y).backward()
        optimiser.step()

    return step


def plain_step(workload: Workload, model: nn.Module, expected: float) -> Step:
    optimiser = torch.optim.SGD(model.parameters(), lr=workload.learning_rate, momentum=workload.momentum)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad()
        (_losses(model(x), y).sum() / expected).backward()
        optimiser.step()

    return step


def train(workload: Workload, split: AccuracySplit, method: str, noise: float, seed: int) -> tuple[float, float]:
    """(accuracy on the held-out records, median seconds of a step)."""
    # A real site draws from SecureSource; here a run must be repeatable. Batches have a source of their own, so that
    # the methods see the same ones.
    source = SeededSource(seed, allow_insecure=True)
    coins = SeededSource(_SEED_OFFSET + seed, allow_insecure=True)
    expected = workload.sampling_rate * len(split.targets)
    if workload.centred:
        split = _centred(split, workload, None if method == "plain" else noise, source)
    torch.manual_seed(2 * _SEED_OFFSET + seed)
    model = workload.model(split.inputs.shape[1])
    match method:
        case "private":
            step = private_step(workload, model, expected, noise, source)
        case "Opacus":
            step = opacus_step(workload, model, expected, noise, seed)
        case _:
            step = plain_step(workload, model, expected)
    seconds: list[float] = []
    for x, y in _batches(split, workload, coins):
        begun = time.perf_counter()
        step(x, y)
        seconds.append(time.perf_counter() - begun)
    with torch.no_grad():
        right = (model(split.test_inputs).argmax(1) == split.test_targets).double().mean().item()
    return right, statistics.median(seconds)


def measure(workload: Workload, seeds: Sequence[int], method: str, noise: float = 0.0) -> AccuracyOutcome:
    done = [train(workload, workload.split(seed), method, noise, seed) for seed in seeds]
    return AccuracyOutcome([accuracy for accuracy, _ in done], statistics.median(seconds for _, seconds in done))


def compare(workload: Workload, epsilons: Sequence[float], seeds: Sequence[int]) -> dict[str, Any]:
    """Everything measured on one data set, as it stands in the results file."""
    plain = measure(workload, seeds, "plain")
    majority = statistics.fmean(workload.split(seed).majority for seed in seeds)
    print(f"\n{workload.name}: {workload.about}\nmajority class {majority:.1%}, plain SGD {_summary(plain)}")
    print(f"{'epsilon':>8} {'noise':>8}   {'private':<14} {'Opacus':<14} {'difference':<16} ms/step ours, Opacus")
    budgets: list[dict[str, Any]] = []
    for epsilon in epsilons:
        chosen_plan = plan(workload, epsilon)
        ours = measure(workload, seeds, "private", chosen_plan.noise_multiplier)
        theirs = measure(workload, seeds, "Opacus", chosen_plan.noise_multiplier)
        differences = [a - b for a, b in zip(ours.accuracies, theirs.accuracies, strict=True)]
        gap = {"mean": statistics.fmean(differences), "standard_error": standard_error(differences)}
        budgets.append(
            {
                "plan": asdict(chosen_plan),
                "private": _reported(ours),
                "opacus": _reported(theirs),
                "private_minus_opacus": gap,
            }
        )
        print(
            f"{chosen_plan.epsilon:8.3f} {chosen_plan.noise_multiplier:8.2f}   "
            f"{_summary(ours):<14} {_summary(theirs):<14} "
            f"{100 * gap['mean']:+.2f} ± {100 * gap['standard_error']:.2f}".ljust(66)
            + f"{1e3 * ours.step_seconds:.1f}, {1e3 * theirs.step_seconds:.1f}",
            flush=True,
        )
    return {
        "settings": workload.settings() | {"seeds": list(seeds)},
        "majority": majority,
        "plain": _reported(plain),
        "budgets": budgets,
    }


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; NaN for a single value."""
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=sorted(WORKLOADS), help="one data set; without it all, into the results file")
    parser.add_argument("--quick", action="store_true", help="two seeds and ε = 1 alone; writes no file")
    parser.add_argument("--seeds", type=int, help="how many; by default what the data set's size allows")
    parser.add_argument("--epsilons", type=float, nargs="+", help=f"by default {EPSILONS}, or 1 with --quick")
    options = parser.parse_args()
    epsilons = options.epsilons or ((1.0,) if options.quick else EPSILONS)
    logging.getLogger("study_protocol.randomness.source").setLevel(logging.ERROR)
    # Opacus registers hooks in a way that torch warns about; nothing here depends on it.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    for name in [options.data] if options.data else WORKLOADS:
        workload = WORKLOADS[name]
        seeds = range(options.seeds or (2 if options.quick else workload.seeds))
        measured = compare(workload, epsilons, seeds)
        if not options.quick:
            recorded: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
            RESULTS.write_text(json.dumps(recorded | {name: measured}, indent=1) + "\n")


def _centred(split: AccuracySplit, workload: Workload, noise: float | None, source: RandomSource) -> AccuracySplit:
    """Features less their mean, at norm 1 again. With noise the mean is released, as one more accounted step."""
    if noise is None:
        mean = split.inputs.mean(0)
    else:
        batch = torch.from_numpy(poisson_batch(len(split.inputs), workload.sampling_rate, source=source))
        total = ClippedSum({"sum": split.inputs[batch].sum(0) * _WITHIN_ONE}, torch.zeros(0), 1.0)
        noisy = add_noise(total, noise_multiplier=noise, source=source)
        mean = noisy.gradients["sum"] / (workload.sampling_rate * len(split.inputs))
    inputs, tests = (nn.functional.normalize(x - mean, dim=1) for x in (split.inputs, split.test_inputs))
    return AccuracySplit(inputs, split.targets, tests, split.test_targets)


def _batches(split: AccuracySplit, workload: Workload, source: RandomSource) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(workload.steps):
        if workload.sampling_rate == 1.0:
            yield split.inputs, split.targets
            continue
        batch = torch.from_numpy(poisson_batch(len(split.targets), workload.sampling_rate, source=source))
        yield split.inputs[batch], split.targets[batch]


def _losses(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(outputs, targets, reduction="none")


def _reported(outcome: AccuracyOutcome) -> dict[str, Any]:
    return asdict(outcome) | {"mean": outcome.mean, "standard_error": outcome.standard_error}


def _summary(outcome: AccuracyOutcome) -> str:
    return f"{100 * outcome.mean:.2f} ± {100 * outcome.standard_error:.2f}"


if __name__ == "__main__":
    main()
