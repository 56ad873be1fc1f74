"""Generated images by two ways, judged on real ones: python -m research.synthesis.images [mnist|pneumoniamnist ...]

moments  one release of every class's count, sums and products of public coordinates, behind a clip and with discrete
         Gaussian noise. Images are drawn from the class's normal distribution.
vae      the task `vae`, trained by noised steps with Poisson batches.

Both are (1, 1e-5)-DP in the worst case, for one image more or less. dp-accounting computes ε again. The settings of
moments were chosen on images that they are not judged by (`--choose`): the last 10,000 training digits, and the
validation X-rays. No ε pays for that. A first sketch of the coordinates looked at test digits. The settings of `vae`
were not searched for. Classifiers are trained on generated images alone: quadratic discriminants of the coordinates,
and a small convolutional network. The public coordinates of digits are the principal components of invented
handwriting, and those of X-rays low frequencies of a cosine transform.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import dp_accounting
import numpy as np
import torch
from numpy.typing import NDArray
from scipy.fft import idct
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from torch import Tensor, nn
from torch.nn import functional

from accounting import calibrate_noise
from private_learning.gradients import PerRecordGradients
from private_learning.records import Examples, read_idx, read_npz
from private_learning.tasks import load
from private_learning.tasks.vae import ClassAutoencoder
from private_learning.training.noise import SeededSource, add_noise
from research.tables import strokes
from research.tables.features import COPIES, GLYPHS, SEED, VALIDATION
from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import SeededRandomness
from study_protocol.study.central_noise import CentralNoise
from wardround.demo.scenarios import data_folder

RESULTS = Path("research/benchmarks/results/images.json")
EPSILON, DELTA, SIDE = 1.0, 1e-5, 28
GENERATED = 20_000
Doubles = NDArray[np.float64]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """inputs: (n, 784) of 0..1, labels: (n,). The same for those that judge."""

    inputs: Doubles
    labels: Labels
    test_inputs: Doubles
    test_labels: Labels


@dataclass(frozen=True)
class MomentSettings:
    """kept: coordinates. radius: they are clipped to this norm. weights: shares of the count's, sums' and products'
    sensitivity². shrinkage: of a class's covariance towards all classes'. floor: of its eigenvalues, over radius²."""

    kept: int
    radius: float
    weights: tuple[float, float, float]
    shrinkage: float
    floor: float


@dataclass(frozen=True)
class VaeSettings:
    """Of the noised steps: the plan and the optimiser (momentum on the noised mean)."""

    rate: float
    steps: int
    clip: float
    learning_rate: float
    momentum: float
    filters: int = 8
    latent: int = 16


@dataclass(frozen=True)
class Basis:
    """centre: (784,). directions: (kept, 784), orthonormal. Public: no image of the data set is in them."""

    centre: Doubles
    directions: Doubles

    def coordinates(self, inputs: Doubles, radius: float) -> Doubles:
        """(n, kept), of norm at most 1: a longer one is scaled down."""
        raw = (inputs - self.centre) @ self.directions.T / radius
        return raw / np.maximum(np.linalg.norm(raw, axis=1, keepdims=True), 1.0)

    def images(self, coordinates: Doubles, radius: float) -> Doubles:
        """(n, 784) of 0..1."""
        return np.clip(self.centre + radius * coordinates @ self.directions, 0.0, 1.0)


@dataclass(frozen=True)
class ClassNormal:
    """One class's share of the records, mean, and eigenvalues and eigenvectors of its covariance."""

    share: float
    mean: Doubles
    values: Doubles
    vectors: Doubles


def handwriting_basis(kept: int) -> Basis:
    """Return the principal components of invented handwriting."""
    images, _ = strokes.handwriting(GLYPHS, COPIES // 5, SEED)
    flat = images.reshape(len(images), -1) / 255.0
    centre = flat.mean(axis=0)
    _, vectors = np.linalg.eigh((flat - centre).T @ (flat - centre))
    return Basis(centre, vectors[:, ::-1][:, :kept].T)


def cosine_basis(kept: int) -> Basis:
    """Return the lowest frequencies, around grey."""
    waves: Doubles = np.asarray(idct(np.eye(SIDE), norm="ortho", axis=1))
    order = sorted(itertools.product(range(SIDE), repeat=2), key=lambda place: (sum(place), place))[:kept]
    return Basis(np.full(SIDE**2, 0.5), np.stack([np.outer(waves[i], waves[j]).ravel() for i, j in order]))


def digits(*, held_out: bool) -> Pictures:
    folder = data_folder() / "mnist"
    parts = [read_idx(folder / f"{part}-{kind}-ubyte.gz") for part in ("train", "t10k") for kind in _IDX]
    train, labels, test, test_labels = (part.reshape(len(part), -1).squeeze() for part in parts)
    if held_out:
        train, test, labels, test_labels = (
            part for whole in (train, labels) for part in (whole[:-VALIDATION], whole[-VALIDATION:])
        )
    return Pictures(train / 255.0, labels.astype(np.int64), test / 255.0, test_labels.astype(np.int64))


_IDX = ("images-idx3", "labels-idx1")


def radiographs(*, held_out: bool) -> Pictures:
    path = data_folder() / "pneumoniamnist" / "pneumoniamnist_rebuilt.npz"
    parts = [read_npz(path, split=split) for split in ("train", "val", "test")]
    inputs = [part.inputs.reshape(len(part), -1) / 255.0 for part in parts]
    labels = [np.asarray(part.labels, np.int64).reshape(-1) for part in parts]
    if held_out:
        return Pictures(inputs[0], labels[0], inputs[1], labels[1])
    return Pictures(np.concatenate(inputs[:2]), np.concatenate(labels[:2]), inputs[2], labels[2])


def released(points: Doubles, labels: Labels, weights: Sequence[float], noise_multiplier: float, seed: int) -> Doubles:
    """Return (classes, 1 + k + k(k+1)/2) noised sums over each class's records of (1, x, xxᵀ), unweighted.

    points: (n, k), each of norm at most 1. A record's vector is (√w₀, √w₁ x, √w₂ xxᵀ) in the block of its class, with
    off-diagonal products once and times √2, so that its norm is at most √(w₀ + w₁ + w₂) = 1. It is rounded to a grid,
    and noise is discrete Gaussian, as in a study with central noise.
    """
    k, classes = points.shape[1], int(labels.max()) + 1
    rows, columns = np.triu_indices(k)
    scale = np.concatenate([[1.0], np.ones(k), np.where(rows == columns, 1.0, math.sqrt(2))])
    scale *= np.sqrt(np.repeat(weights, [1, k, len(rows)]))
    mechanism = CentralNoise(1.0, noise_multiplier, classes * len(scale))
    total = np.zeros((classes, len(scale)))
    for place in range(classes):
        own = points[labels == place]
        for some in np.array_split(own, len(own) // 500 + 1):
            vectors = np.column_stack([np.ones(len(some)), some, some[:, rows] * some[:, columns]]) * scale
            total[place] += np.rint(vectors / mechanism.spacing).sum(axis=0)
    noise = DiscreteGaussianNoise(SeededRandomness(seed, allow_insecure=True)).of(1)
    return (total + noise(mechanism.units, total.size).reshape(total.shape)) * mechanism.spacing / scale


def normals(sums: Doubles, settings: MomentSettings) -> list[ClassNormal]:
    """Return the classes' normal distributions out of the noised sums: post-processing."""
    k = settings.kept
    counts = np.maximum(sums[:, 0], 1.0)
    means = sums[:, 1 : k + 1] / counts[:, None]
    covariances = np.zeros((len(sums), k, k))
    rows, columns = np.triu_indices(k)
    covariances[:, rows, columns] = covariances[:, columns, rows] = sums[:, k + 1 :] / counts[:, None]
    covariances -= means[:, :, None] * means[:, None, :]
    pooled = np.tensordot(counts / counts.sum(), covariances, 1)
    found: list[ClassNormal] = []
    for count, mean, covariance in zip(counts, means, covariances, strict=True):
        values, vectors = np.linalg.eigh((1 - settings.shrinkage) * covariance + settings.shrinkage * pooled)
        found.append(ClassNormal(count / counts.sum(), mean, np.maximum(values, settings.floor), vectors))
    return found


def drawn(classes: Sequence[ClassNormal], count: int, seed: int) -> tuple[Doubles, Labels]:
    """Return (count, k) coordinates and their classes."""
    draw = np.random.default_rng(seed)
    labels = draw.choice(len(classes), count, p=[each.share for each in classes])
    points = np.zeros((count, len(classes[0].mean)))
    for place, each in enumerate(classes):
        noise = draw.standard_normal((int((labels == place).sum()), points.shape[1]))
        points[labels == place] = each.mean + noise * np.sqrt(each.values) @ each.vectors.T
    return points, labels.astype(np.int64)


def trained_vae(data: Pictures, settings: VaeSettings, noise_multiplier: float, seed: int) -> tuple[Any, nn.Module]:
    """Return the task and its model after the plan's noised steps: one data holder, Poisson batches."""
    classes = int(data.labels.max()) + 1
    parameters = {"height": SIDE, "width": SIDE, "classes": classes, "high": 1.0}
    task = cast("ClassAutoencoder", load("vae", parameters | {"filters": settings.filters, "latent": settings.latent}))
    torch.manual_seed(seed)
    model, source, draw = task.model(), SeededSource(seed, allow_insecure=True), np.random.default_rng(seed)
    x = task.inputs(Examples.of(data.inputs.reshape(-1, SIDE, SIDE), data.labels))
    y, gradients = torch.as_tensor(data.labels), PerRecordGradients(model, task.loss)
    velocity = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for _ in range(settings.steps):
        rows = torch.as_tensor(np.flatnonzero(draw.random(len(y)) < settings.rate))
        found = gradients.clipped_sum(x[rows], y[rows], clip_norm=settings.clip)
        noised = add_noise(found, noise_multiplier=noise_multiplier, source=source).gradients
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                mean = noised[name].to(parameter) / (settings.rate * len(y))
                velocity[name] = settings.momentum * velocity[name] + mean
                parameter -= settings.learning_rate * velocity[name]
    return task, model.eval()


def network_accuracy(inputs: Doubles, labels: Labels, data: Pictures, seed: int, epochs: int = 3) -> float:
    """Train a small convolutional network on generated images, and return its accuracy on real ones."""
    torch.manual_seed(seed)
    layers = (nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, int(data.labels.max()) + 1))
    x, y, optimiser = _as_images(inputs), torch.as_tensor(labels), torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for rows in torch.split(torch.randperm(len(x)), 128):
            loss = functional.cross_entropy(model(x[rows]), y[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    with torch.no_grad():
        return float((model(_as_images(data.test_inputs)).argmax(1).numpy() == data.test_labels).mean())


def _as_images(inputs: Doubles) -> Tensor:
    return torch.as_tensor(inputs).float().reshape(-1, 1, SIDE, SIDE)


def quadratic_accuracy(points: Doubles, labels: Labels, test: Doubles, test_labels: Labels) -> float:
    """Fit quadratic discriminants to generated coordinates, and return their accuracy on real ones."""
    fitted = QuadraticDiscriminantAnalysis(reg_param=1e-4).fit(points, labels)
    return float((fitted.predict(test) == test_labels).mean())


def epsilon(noise_multiplier: float, rate: float = 1.0, steps: int = 1) -> float:
    """Return ε at δ as dp-accounting's loss distributions count it, for one record more or less."""
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    return float(accountant.compose(event, steps).get_epsilon(DELTA))


SETTINGS: Mapping[str, tuple[MomentSettings, VaeSettings]] = {
    "mnist": (
        MomentSettings(60, 5.36, (0.01, 0.16, 0.83), 0.1, 3e-3),
        VaeSettings(0.01, 150, 0.3, 0.5, 0.9),
    ),
    "pneumoniamnist": (
        MomentSettings(22, 9.6, (0.02, 0.18, 0.8), 0.3, 1e-3),
        VaeSettings(0.1, 60, 0.3, 0.5, 0.9),
    ),
}
_LOADERS = {"mnist": (digits, handwriting_basis), "pneumoniamnist": (radiographs, cosine_basis)}


def measured_moments(name: str, data: Pictures, settings: MomentSettings, seeds: Sequence[int], networks: int) -> Any:
    """Return accuracies of classifiers on images that were drawn from released moments. networks: seeds with one."""
    noise = calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=1.0, steps=1)
    basis = _LOADERS[name][1](settings.kept)
    points, test = (basis.coordinates(inputs, settings.radius) for inputs in (data.inputs, data.test_inputs))
    quadratic, network = list[float](), list[float]()
    for place, seed in enumerate(seeds):
        classes = normals(released(points, data.labels, settings.weights, noise, seed), settings)
        made, labels = drawn(classes, GENERATED, seed)
        images = basis.images(made, settings.radius)
        again = basis.coordinates(images, settings.radius)
        quadratic.append(quadratic_accuracy(again, labels, test, data.test_labels))
        if place < networks:
            network.append(network_accuracy(images, labels, data, seed))
        print(f"{name}, moments, seed {seed}: {quadratic[-1]:.4f} {network[-1:]}", flush=True)
    return {"settings": asdict(settings), "noise_multiplier": noise, "epsilon": epsilon(noise), "seeds": [*seeds]} | {
        "quadratic": quadratic,
        "network": network,
    }


def measured_vae(name: str, data: Pictures, settings: VaeSettings, seeds: Sequence[int]) -> Any:
    """Return accuracies of networks on images of the task `vae`. Classes are as many as all records, as moments say."""
    plan = {"sampling_rate": settings.rate, "steps": settings.steps}
    noise, accuracies = calibrate_noise(epsilon=EPSILON, delta=DELTA, **plan), list[float]()
    for seed in seeds:
        task, model = trained_vae(data, settings, noise, seed)
        labels = np.arange(GENERATED) % task.classes
        made = task.generate(model, labels, seed)
        accuracies.append(network_accuracy(made.inputs.reshape(GENERATED, -1), labels, data, seed))
        print(f"{name}, vae, seed {seed}: {accuracies[-1]:.4f}", flush=True)
    counted = epsilon(noise, settings.rate, settings.steps)
    return {"settings": asdict(settings), "noise_multiplier": noise, "epsilon": counted, "seeds": [*seeds]} | {
        "network": accuracies
    }


def candidates(start: MomentSettings) -> Iterator[MomentSettings]:
    """Yield settings around these."""
    for kept, radius, floor in itertools.product((0.6, 0.8, 1.0, 1.5), (0.8, 1.0, 1.25), (1e-3, 3e-3, 1e-2)):
        yield replace(start, kept=round(start.kept * kept), radius=start.radius * radius, floor=floor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", default=list(SETTINGS), help=f"of {', '.join(SETTINGS)}")
    parser.add_argument("--choose", action="store_true", help="search for the moments' settings; writes nothing")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--networks", type=int, default=2, help="seeds with a network and a vae")
    parser.add_argument("--ways", nargs="*", default=["moments", "vae"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("study_protocol").setLevel(logging.ERROR)
    for name in options.data:
        data = _LOADERS[name][0](held_out=options.choose)
        moments, vae = SETTINGS[name]
        if options.choose:
            for each in candidates(moments):
                found = measured_moments(name, data, each, range(1000, 1002), 0)["quadratic"]
                print(f"{np.mean(found):.4f} {each}", flush=True)
            continue
        if "moments" in options.ways:
            _record(f"{name}, moments", measured_moments(name, data, moments, range(options.seeds), options.networks))
        if "vae" in options.ways:
            _record(f"{name}, vae", measured_vae(name, data, vae, range(options.networks)))


def _record(name: str, result: Any) -> None:
    recorded = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(recorded | {name: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
