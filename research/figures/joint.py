"""Figure 6.2: accuracy by round with both levels protected by one noise, by two, or not at all (thesis, 6.5.4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from accounting import ClassicalAccountant, calibrate_noise
from research.figures.clients import (
    CLASSES,
    VALIDATION,
    Clients,
    Floats,
    accuracy,
    as_float32,
    dealt,
    features,
    projected,
)
from research.figures.figure import Axis, Figure
from research.figures.table import Point, Points, at, certified, curve, last

CLIENTS, RECORDS, ROUNDS, EPSILON, DELTA, SEEDS = 1000, 55, 40, 1.0, 1e-5, 3
CLIENT_CLIP, CLIP = 0.2, 1.0
RATES = (8.0, 16.0, 32.0)
IID, SHARDS = "MNIST, 1,000 clients, iid", "MNIST, 1,000 clients, two digits each"
PLAIN, ONLY, JOINT, SPLIT = "no privacy", "hospitals alone", "both levels from one noise", "a noise for each level"
WAYS = (PLAIN, ONLY, JOINT, SPLIT)
INSTANCE = "instance ε"


@dataclass(frozen=True)
class JointTraining:
    """One training. way: one of WAYS; rate: of the mean of the clients' mean gradients; split: the row of a panel."""

    way: str
    iid: bool
    rate: float
    seed: int


@lru_cache(maxsize=1)
def multiplier() -> float:
    """Noise over clip norm for (EPSILON, DELTA) after all rounds, rate 1."""
    return calibrate_noise(epsilon=EPSILON, delta=DELTA, sampling_rate=1.0, steps=ROUNDS, method="pld")


def instance_epsilon() -> float:
    """What the same noise gives one record: it moves a client's mean by CLIP/RECORDS after the client's projection."""
    account = ClassicalAccountant(delta=DELTA, method="pld")
    account.step(noise_multiplier=multiplier() * CLIENT_CLIP * RECORDS / CLIP, sampling_rate=1.0, count=ROUNDS)
    return account.epsilon()


def total(clients: Clients, weights: Floats, way: str, generator: np.random.Generator) -> Floats:
    """(classes · features,) the sum of the clients' updates, with its noise."""
    errors = clients.errors(weights)
    if way == PLAIN:
        return clients.sums(errors, None).sum(axis=0) / RECORDS
    means = as_float32(clients.sums(errors, CLIP if way in (JOINT, SPLIT) else None) / RECORDS)
    if way == SPLIT:
        # For a client's own (EPSILON, DELTA) of its records, before the client's clip; the server adds its own besides.
        means = as_float32(means + generator.normal(0.0, multiplier() * CLIP / RECORDS, means.shape))
    clipped = projected(means, CLIENT_CLIP).sum(axis=0, dtype=np.float64)
    return as_float32(clipped + generator.normal(0.0, multiplier() * CLIENT_CLIP, clipped.shape))


def trained(setting: JointTraining, *, validation: bool) -> list[float]:
    """(ROUNDS,) accuracy after every round, on the test set or on 5,000 training images that nobody holds."""
    (inputs, labels), test = features("train"), features("t10k")
    order = np.random.default_rng(7).permutation(len(labels))
    validation_rows, training_rows = order[:VALIDATION], order[VALIDATION:]
    rows = dealt(labels[training_rows], CLIENTS, iid=setting.iid, copies=1, seed=setting.seed)[:, :RECORDS]
    clients = Clients.of(inputs[training_rows], labels[training_rows], rows)
    measured = (inputs[validation_rows], labels[validation_rows]) if validation else test
    generator = np.random.default_rng([setting.seed, 1])
    weights, accuracies = np.zeros((CLASSES, inputs.shape[1]), np.float32), list[float]()
    for _ in range(ROUNDS):
        step = total(clients, weights, setting.way, generator) / CLIENTS
        weights = as_float32(weights - setting.rate * step.reshape(weights.shape))
        accuracies.append(accuracy(weights, *measured))
    return accuracies


def best_rate(way: str, *, iid: bool) -> float:
    """The learning rate with the best accuracy in the last rounds on the validation images, on a seed of its own."""
    ends = {rate: float(np.mean(trained(JointTraining(way, iid, rate, 100), validation=True)[-5:])) for rate in RATES}
    return max(ends, key=ends.__getitem__)


def compute() -> list[Point]:
    """Both splits, four ways."""
    points: list[Point] = []
    for title, iid in ((IID, True), (SHARDS, False)):
        for way in WAYS:
            rate = best_rate(way, iid=iid)
            runs = [trained(JointTraining(way, iid, rate, seed), validation=False) for seed in range(SEEDS)]
            points += curve(title, way, range(1, ROUNDS + 1), np.mean(runs, axis=0))
            points += curve(f"learning rate, {title}", way, (0,), (rate,))
    return points + curve(INSTANCE, JOINT, (0,), (instance_epsilon(),))


def caption(points: Points) -> str:
    """Below the drawing."""
    ends = {way: (last(points, IID, way), last(points, SHARDS, way)) for way in WAYS}
    caption = ". ".join(f"{way.capitalize()}: {first:.1%} and {second:.1%}" for way, (first, second) in ends.items())
    one_record = certified(at(points, INSTANCE, JOINT)[0.0], 2)
    return (
        f"Test accuracy (mean of {SEEDS} seeds) over {ROUNDS} rounds of FedSGD with {CLIENTS:,} clients of {RECORDS} "
        "images (by digits 54). The model is softmax regression on 392 fixed features. Its learning rate is found on "
        f"5,000 other images. Accuracy at the end, iid and by digits, follows. {caption}. The private curves have a "
        f"certified classical ε = {EPSILON:g} at δ = 1e-5 for a whole client. With one noise for both levels the same "
        f"noise gives one record ε = {one_record}, certified too, at no cost but the clipping of records. "
        f"With a noise for each level clients first add noise for ε = {EPSILON:g} of their own records. The clip "
        "leaves little but that noise."
    )


FIGURE = Figure(
    number="6.2",
    title="Accuracy by round, both levels protected",
    compute=compute,
    axes={"": (Axis("round", low=0.0), Axis("test accuracy", low=0.0, high=1.0))},
    caption=caption,
    data="MNIST",
    aside=(INSTANCE, f"learning rate, {IID}", f"learning rate, {SHARDS}"),
)
