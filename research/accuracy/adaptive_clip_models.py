"""An adaptive clip norm beside the best fixed one of a sweep: four models on six data sets at ε 2, one data holder.

python -m research.accuracy.adaptive_clip_models [DATA ...] [--seeds 2]    writes the results after every case

Both ways have the same Poisson batches, steps and ε. The fixed way chooses norm and step on a seed that is not
reported, and the adaptive way, which starts from norm 1, its step alone. Noise is float64, which accuracy does not
notice. The clip moves as in a study (`AdaptiveClip`, `ClipBits`), with the bit of each record in the same noised
vector. Models read the columns of a record, or the squares of an image, in their order: `cnn` and `resnet` along one
axis, GRU as a sequence. At most 1,500 training records of each data set are used.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from accounting import calibrate_noise
from private_learning.gradients import PerRecordGradients
from research.accuracy.defaults_data import CASES
from study_protocol.study.adaptive_clip import AdaptiveClip, ClipBits, extra_noise

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "adaptive_clip_models.json"
EPSILON, DELTA, STEPS, MOMENTUM = 2.0, 1e-5, 40, 0.5
MOST_TRAIN, MOST_TEST, BATCH = 1500, 1000, 300
DATA = ("heart disease", "abalone", "adult", "diabetes-130, counts", "pneumonia", "mnist")
CHOOSING = 1000
CLIPS, TRAVELS = (0.1, 0.4, 1.6), (0.2, 0.8)
ADAPTIVE = AdaptiveClip(quantile=0.3, rate=0.2)
# The fixed way's steps go from 0.125 to 8.
ADAPTIVE_RATES = (0.5, 2.0, 8.0)
POINTS, MOST_NOISE = 1.5, 1.02


@dataclass(frozen=True)
class ModelSplit:
    """inputs: (n, d) float32, targets: (n,). The same for the records that judge."""

    inputs: Tensor
    targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    classes: int


class Sequential1d(nn.Module):
    """(n, d) numbers along one axis: `cnn`, or `resnet` with GroupNorm and one residual block."""

    def __init__(self, classes: int, *, residual: bool) -> None:
        super().__init__()
        self.residual = residual
        self.first = nn.Conv1d(1, 8, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 8) if residual else nn.Identity()
        self.second = nn.Conv1d(8, 8 if residual else 16, 3, stride=1 if residual else 2, padding=1)
        self.last = nn.LazyLinear(classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.first(x.unsqueeze(1))))
        return self.last((x + torch.tanh(self.second(x)) if self.residual else torch.tanh(self.second(x))).flatten(1))


class GatedClassifier(nn.Module):
    """A GRU over (n, d) numbers, four a step, and a linear layer on its last state."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 16, batch_first=True)
        self.last = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        steps = functional.pad(x, (0, -x.shape[1] % 4)).reshape(len(x), -1, 4)
        return self.last(self.gru(steps)[0][:, -1])


def model_of(name: str, width: int, classes: int, seed: int) -> nn.Module:
    """Return a new model for records of so many numbers."""
    torch.manual_seed(seed)
    model: nn.Module
    if name == "mlp":
        model = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, classes))
    else:
        model = GatedClassifier(classes) if name == "gru" else Sequential1d(classes, residual=name == "resnet")
    model(torch.zeros(2, width))
    return model


MODELS = ("mlp", "cnn", "resnet", "gru")


@lru_cache
def split_of(name: str, seed: int) -> ModelSplit:
    case = CASES[f"{name}, typical"]
    split, draw = case.split(seed), np.random.default_rng(seed)
    train = draw.permutation(len(split.labels))[:MOST_TRAIN]
    test = draw.permutation(len(split.test_labels))[:MOST_TEST]
    arrays = (split.inputs[train], split.labels[train], split.test_inputs[test], split.test_labels[test])
    inputs, targets, test_inputs, test_targets = (torch.as_tensor(array) for array in arrays)
    return ModelSplit(inputs.float(), targets.long(), test_inputs.float(), test_targets.long(), case.classes)


@dataclass(frozen=True)
class ClipRun:
    """One case under a seed. records: on which the public rate and the noise are planned."""

    data: str
    model: str
    seed: int

    def accuracy(self, clip: float, learning_rate: float, adaptive: AdaptiveClip | None = None) -> tuple[float, float]:
        """Return the accuracy on the records that judge, and the last clip norm."""
        split = split_of(self.data, self.seed)
        rate = min(0.5, BATCH / len(split.targets))
        sigma, batch, first = noise(rate), rate * len(split.targets), clip
        model = model_of(self.model, split.inputs.shape[1], split.classes, self.seed)
        gradients = PerRecordGradients(model, functional_cross_entropy)
        draw, generator = np.random.default_rng(self.seed), torch.Generator().manual_seed(self.seed)
        velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
        for _ in range(STEPS):
            rows = torch.as_tensor(np.flatnonzero(draw.random(len(split.targets)) < rate))
            found = gradients.clipped_sum(split.inputs[rows], split.targets[rows], clip_norm=clip)
            bits = ClipBits.of(clip, noise_multiplier=sigma, expected_batch_size=batch, expected_clients=1.0)
            std = sigma * (clip if adaptive is None else bits.joint_norm)
            with torch.no_grad():
                for name, parameter in model.named_parameters():
                    noised = found.gradients[name] + std * torch.randn(parameter.shape, generator=generator)
                    velocity[name] = MOMENTUM * velocity[name] + noised.to(parameter) / batch
                    parameter -= learning_rate * velocity[name]
            if adaptive is not None:
                total = bits.total(int((found.norms <= clip).sum()), len(rows)) + std * float(draw.standard_normal())
                clip = adaptive.next_norm(clip, bits.share(total / batch, 1.0), first)
        with torch.no_grad():
            right = model.eval()(split.test_inputs).argmax(1) == split.test_targets
        return float(right.double().mean()), clip


def functional_cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


@lru_cache
def noise(rate: float) -> float:
    """Return the noise multiplier of the plan."""
    return calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=rate, steps=STEPS)


def compared(data: str, model: str, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the best fixed norm, the adaptive one, and their accuracies under these seeds."""
    began, trial = time.monotonic(), ClipRun(data, model, CHOOSING)
    fixed = max(itertools.product(CLIPS, TRAVELS), key=lambda each: trial.accuracy(each[0], each[1] / each[0])[0])
    step = max(ADAPTIVE_RATES, key=lambda rate: trial.accuracy(1.0, rate, ADAPTIVE)[0])
    runs = [ClipRun(data, model, seed) for seed in seeds]
    best = [run.accuracy(fixed[0], fixed[1] / fixed[0])[0] for run in runs]
    moving = [run.accuracy(1.0, step, ADAPTIVE) for run in runs]
    split = split_of(data, CHOOSING)
    rate = min(0.5, BATCH / len(split.targets))
    gap = 100 * (statistics.mean(best) - statistics.mean(accuracy for accuracy, _ in moving))
    more = extra_noise(noise(rate), rate * len(split.targets), 1.0)
    return {
        "fixed": best,
        "adaptive": [accuracy for accuracy, _ in moving],
        "clip_norm": fixed[0],
        "travel": fixed[1],
        "adaptive_rate": step,
        "last_norms": [norm for _, norm in moving],
        "gap_points": gap,
        "extra_noise": more,
        "reached": bool(gap <= POINTS and more <= MOST_NOISE),
        "seeds": list(seeds),
        "seconds": time.monotonic() - began,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=list(DATA), help=f"of {', '.join(DATA)}")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("private_learning").setLevel(logging.ERROR)
    for model, data in itertools.product(options.models, options.data):
        row = compared(data, model, range(options.seeds))
        recorded: Mapping[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**recorded, f"{model}, {data}": row}, indent=1) + "\n")
        means = [statistics.mean(row[way]) for way in ("fixed", "adaptive")]
        print(f"{model}, {data}: fixed {means[0]:.4f}, adaptive {means[1]:.4f}, {row['seconds']:.0f} s", flush=True)


if __name__ == "__main__":
    main()
