"""Several random views of each image, against none, at the same ε: python -m research.accuracy.augmentation

Three ways with the convolutional network of the task `cnn`: the images as they are, one random view of each image in
each step, four views whose gradients are averaged before the clip. All runs have the same steps, sampling rate and
noise multiplier, and so the same ε. For each way the setting of the best mean accuracy on the validation images is
chosen, over two seeds that are not reported; then the test images are looked at once for each reported seed. One seed
has the same batches and first weights in all ways.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch

from accounting import ClassicalAccountant, calibrate_noise
from private_learning.gradients import PerRecordGradients, Slots
from private_learning.records import Examples, read_idx, read_npz
from private_learning.tasks import Task, TaskDataset, load
from private_learning.training.gradients import poisson_batch
from private_learning.training.noise import GridNoise
from private_learning.training.patients import LossOfPatients, RowsOfPatients
from private_learning.training.views import Views
from study_protocol.randomness.source import SeededSource
from study_protocol.study.augmentation import Augmentation
from wardround.demo.scenarios import data_folder

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "augmentation.json"
EPSILON, DELTA = 3.0, 1e-5
STEPS, RATE, CLIP_NORM, MOMENTUM = 120, 0.05, 1.0, 0.9
SEEDS, CHOOSING = tuple(range(100, 110)), (0, 1)
LEARNING_RATES = (0.0625, 0.125, 0.25, 0.5, 1.0)
WAYS = {"as they are": 0, "one view": 1, "four views": 4}
# A little of each that keeps a digit or a chest what it is; no mirror.
CHANGES = {"shift": 2, "rotation": 10.0, "scale": 0.1}


@dataclass(frozen=True)
class AugmentationCase:
    """Training, validation and test records of one task."""

    task: Task
    train: TaskDataset
    validation: TaskDataset
    test: TaskDataset


@cache
def mnist() -> AugmentationCase:
    """The first 5,000 training images; validated on the last 5,000 of the training file."""
    folder = data_folder() / "mnist"
    images, labels = (read_idx(folder / f"train-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1"))
    test = Examples.of(*(read_idx(folder / f"t10k-{kind}-ubyte.gz") for kind in ("images-idx3", "labels-idx1")))
    return _case(10, Examples.of(images[:5000], labels[:5000]), Examples.of(images[-5000:], labels[-5000:]), test)


@cache
def pneumonia() -> AugmentationCase:
    """PneumoniaMNIST by its own three splits."""
    path = next((data_folder() / "pneumoniamnist").glob("*.npz"))
    return _case(2, *(read_npz(path, split=part) for part in ("train", "val", "test")))


def _case(classes: int, train: Examples, validation: Examples, test: Examples) -> AugmentationCase:
    task = load("cnn", {"height": 28, "width": 28, "classes": classes})
    return AugmentationCase(task, *(task.dataset(part) for part in (train, validation, test)))


CASES: dict[str, Callable[[], AugmentationCase]] = {"PneumoniaMNIST": pneumonia, "MNIST, 5,000 images": mnist}


def trained(
    case: AugmentationCase, views: int, learning_rate: float, noise_multiplier: float, seed: int
) -> torch.nn.Module:
    """A model after all steps. Seeded: a hospital's own draws are cryptographic."""
    coins, places, looks, noise = (SeededSource(1000 * seed + k, allow_insecure=True) for k in range(4))
    torch.manual_seed(seed)
    model, data = case.task.model(), case.train
    expected = RATE * len(data)
    of = (RowsOfPatients(model), LossOfPatients(case.task.loss)) if views else (model, case.task.loss)
    gradients = PerRecordGradients(*of)
    law: GridNoise | None = None
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=MOMENTUM)
    for _ in range(STEPS):
        batch = torch.as_tensor(poisson_batch(len(data), RATE, source=coins))
        sample_views = Views(Augmentation(views=views, **CHANGES), looks, grouped=False) if views else None
        slots = Slots.random(expected, places)
        clipped = gradients.clipped_sum(
            data.inputs[batch], data.targets[batch], clip_norm=CLIP_NORM, slots=slots, views=sample_views
        )
        size = sum(value.numel() for value in clipped.gradients.values())
        law = law or GridNoise.calibrated(CLIP_NORM, size, noise_multiplier=noise_multiplier, rounding=clipped.rounding)
        noised = law.added_to(clipped, noise).gradients
        for name, parameter in model.named_parameters():
            parameter.grad = (noised[f"model.{name}" if views else name] / expected).to(parameter)
        optimiser.step()
    return model


def accuracy(case: AugmentationCase, model: torch.nn.Module, records: TaskDataset) -> float:
    with torch.no_grad():
        return case.task.metrics(model(records.inputs), records.targets)["accuracy"]


def reachable_score(
    case: AugmentationCase, views: int, noise_multiplier: float, trial_scores: dict[str, float]
) -> float:
    """The learning rate of the best mean accuracy on the validation records; what was tried is written down."""
    for rate in LEARNING_RATES:
        accuracies = [
            accuracy(case, trained(case, views, rate, noise_multiplier, seed), case.validation) for seed in CHOOSING
        ]
        trial_scores[str(rate)] = statistics.fmean(accuracies)
    return max(LEARNING_RATES, key=lambda rate: trial_scores[str(rate)])


def paired(ours: list[float], theirs: list[float]) -> dict[str, float]:
    """Mean and standard error of the differences, seed by seed."""
    differences = [a - b for a, b in zip(ours, theirs, strict=True)]
    return {
        "mean": statistics.fmean(differences),
        "standard error": statistics.stdev(differences) / math.sqrt(len(differences)),
    }


def compare(name: str, seeds: tuple[int, ...]) -> dict[str, object]:
    case = CASES[name]()
    noise = calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=RATE, steps=STEPS, method="pld")
    accountant = ClassicalAccountant(delta=DELTA, method="pld")
    accountant.step(noise_multiplier=noise, sampling_rate=RATE, count=STEPS)
    report: dict[str, object] = {"epsilon": accountant.epsilon(), "noise_multiplier": noise, "records": len(case.train)}
    scores: dict[str, list[float]] = {}
    for way, views in WAYS.items():
        trial_scores: dict[str, float] = {}
        begun = time.process_time()
        rate = reachable_score(case, views, noise, trial_scores)
        scores[way] = [accuracy(case, trained(case, views, rate, noise, seed), case.test) for seed in seeds]
        report[way] = {
            "accuracies": scores[way],
            "mean": statistics.fmean(scores[way]),
            "standard error": statistics.stdev(scores[way]) / math.sqrt(len(seeds)),
            "learning rate": rate,
            "validation": trial_scores,
            "against none": paired(scores[way], scores["as they are"]),
            "processor seconds": time.process_time() - begun,
        }
        print(name, way, json.dumps(report[way]), flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    chosen_seeds = SEEDS[: parser.parse_args().seeds]
    torch.set_num_threads(1)
    # Seeded sources say so every time.
    logging.disable(logging.WARNING)
    report: dict[str, object] = {
        "delta": DELTA, "steps": STEPS, "sampling_rate": RATE, "clip_norm": CLIP_NORM, "momentum": MOMENTUM,
        "changes": CHANGES, "seeds": list(chosen_seeds), "torch": torch.__version__,
        "majority": {name: _majority(case()) for name, case in CASES.items()},
    }  # fmt: skip
    for name in CASES:
        report[name] = compare(name, chosen_seeds)
        RESULTS.write_text(json.dumps(report, indent=1) + "\n")


def _majority(case: AugmentationCase) -> float:
    """Accuracy on the test records of always naming the commonest class."""
    return float(np.bincount(case.test.targets.numpy()).max() / len(case.test))


if __name__ == "__main__":
    main()
