"""Figures 5.6 and 5.7: a small convolutional network on MNIST, trained privately once (thesis, section 5.5.2).

Per-record gradients are clipped to C = 1 and the noise is σC: the thesis clips a batch's gradient and adds 2Cσ with
σ = 0.1, whose classical ε is in the hundreds. The network is smaller than the thesis', too: 4,010 numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from scipy import stats as _stats  # pyright: ignore[reportMissingTypeStubs]
from torch import Tensor, nn

from accounting import ClassicalAccountant, log_moment
from private_learning.gradients import PerRecordGradients
from research.accuracy.gradient_norms import FloatArray
from research.figures.digits import digits
from research.figures.figure import Axis, Figure
from research.figures.synthetic import DELTA, FAILURE, ORDERS, betting, epsilon, shown_steps, student_t
from research.figures.table import Point, Points, certified, curve, last

CLIP_NORM, NOISE, BATCH, RECORDS, STEPS, SAMPLE, RATE, SEED = 1.0, 1.1, 1024, 60_000, 585, 500, 2.0, 0
PAIRS, BINS, LONGEST = 1000, 40, 40.0
MNIST, CIFAR = "MNIST", "CIFAR-10"
CLASSICAL, LOSS = "classical, moments accountant (certified)", "classical, loss distribution (certified)"
PRINTED = "Bayesian as printed: Student t, Hölder (not certified)"
FREE = "Bayesian, distribution-free, running sums (for this path)"
OWN = "the median record's own loss (known to nobody)"
TRAIN, TEST = "points of the training set", "points outside"
ACCURACY = "test accuracy"
_statistics = cast(Any, _stats)


@dataclass(frozen=True)
class TrainingRun:
    """One private training.

    norms     (steps, sample): clipped norms of the same records in every step, drawn or not
    accuracy  on the test set, at the end
    inside, outside  (pairs,) distances between gradients of two records, unclipped, at the end
    """

    norms: FloatArray
    accuracy: float
    inside: FloatArray
    outside: FloatArray


def network() -> nn.Module:
    """28 × 28 images to 10 classes."""
    return nn.Sequential(
        nn.AvgPool2d(2), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 10)
    )


@lru_cache(maxsize=1)
def run() -> TrainingRun:
    """Train once: Poisson batches, clipped sums, noise, divided by the expected size."""
    torch.manual_seed(SEED)
    generator, model = np.random.default_rng(SEED), network()
    (images, labels), (test_images, test_labels) = digits("train"), digits("t10k")
    x, y = torch.as_tensor(images[:, None]), torch.as_tensor(labels)
    gradients = PerRecordGradients(model, nn.CrossEntropyLoss(reduction="none"))
    sample, norms = torch.as_tensor(generator.choice(RECORDS, SAMPLE, replace=False)), np.empty((STEPS, SAMPLE))
    for step in range(STEPS):
        norms[step] = gradients.norms(x[sample], y[sample]).clamp(max=CLIP_NORM).numpy()
        batch = torch.as_tensor(np.flatnonzero(generator.random(RECORDS) < BATCH / RECORDS))
        part = gradients.clipped_sum(x[batch], y[batch], clip_norm=CLIP_NORM)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = generator.normal(0.0, NOISE * CLIP_NORM, tuple(parameter.shape))
                parameter -= RATE / BATCH * (part.gradients[name].double() + torch.as_tensor(noise)).float()
    with torch.no_grad():
        right = model(torch.as_tensor(test_images[:, None])).argmax(1).numpy() == test_labels
    inside = distances(model, images, labels, generator)
    return TrainingRun(norms, float(right.mean()), inside, distances(model, test_images, test_labels, generator))


def distances(model: nn.Module, images: Any, labels: Any, generator: np.random.Generator) -> FloatArray:
    """(pairs,) ‖g_i − g_j‖ of disjoint pairs, so that they are independent."""
    chosen_rows = generator.choice(len(labels), 2 * PAIRS, replace=False)
    parameters = {name: value.detach() for name, value in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(torch.func.functional_call(model, values, (x[None],)), y[None])

    every = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
    gradients = every(parameters, torch.as_tensor(images[chosen_rows, None]), torch.as_tensor(labels[chosen_rows]))
    rows = torch.cat([value.flatten(1) for value in gradients.values()], dim=1).double()
    return (rows[:PAIRS] - rows[PAIRS:]).norm(dim=1).numpy()


def growth() -> list[Point]:
    """Figure 5.6."""
    history, steps, rate = run(), shown_steps(STEPS), BATCH / RECORDS
    worst = log_moment(ORDERS, CLIP_NORM, noise_std=NOISE * CLIP_NORM, sampling_rate=rate)
    exact = ClassicalAccountant(delta=DELTA, method="pld")
    printed, sums = np.zeros(ORDERS.size), np.zeros((ORDERS.size, SAMPLE))
    curves: dict[str, list[float]] = {name: [] for name in (CLASSICAL, LOSS, PRINTED, FREE, OWN)}
    for step, norms in enumerate(history.norms, start=1):
        step_cost = log_moment(ORDERS, norms, noise_std=NOISE * CLIP_NORM, sampling_rate=rate)
        printed += student_t(STEPS * step_cost) / STEPS
        sums += step_cost
        exact.step(noise_multiplier=NOISE, sampling_rate=rate)
        if step in steps:
            curves[CLASSICAL].append(epsilon(step * worst))
            curves[LOSS].append(exact.epsilon())
            curves[PRINTED].append(epsilon(printed))
            ceiling = np.maximum(step * worst, sums.max(axis=1))
            curves[FREE].append(min(epsilon(betting(sums, ceiling), DELTA - FAILURE), epsilon(ceiling)))
            curves[OWN].append(float(np.median([epsilon(sums[:, i]) for i in range(SAMPLE)])))
    points = [point for name, values in curves.items() for point in curve(MNIST, name, steps, values)]
    return points + curve(ACCURACY, "private", (0, STEPS), (history.accuracy, history.accuracy))


def histograms() -> list[Point]:
    """Figure 5.7, and in a panel of their own the p-values of the thesis' two tests and of Kolmogorov and Smirnov."""
    history = run()
    edges = np.linspace(0.0, LONGEST, BINS + 1)
    points: list[Point] = []
    for name, values in ((TRAIN, history.inside), (TEST, history.outside)):
        counts, _ = np.histogram(np.minimum(values, LONGEST), edges)
        points += curve("MNIST, at the end of training", name, (edges[:-1] + edges[1:]) / 2, counts / PAIRS)
    for at_, (name, test) in enumerate(_TESTS.items()):
        points += curve(P_VALUES, name, (at_,), (float(test(history.inside, history.outside).pvalue),))
    return points


P_VALUES = "p-values"
_TESTS = {
    "t test of the means": _statistics.ttest_ind,
    "Levene's test of the variances": _statistics.levene,
    "Kolmogorov and Smirnov's test of the laws": _statistics.ks_2samp,
}


def caption_growth(points: Points) -> str:
    """Below Figure 5.6."""
    values = {name: last(points, MNIST, name) for name in (CLASSICAL, LOSS, PRINTED, FREE, OWN)}
    accuracy = last(points, ACCURACY, "private")
    below = values[LOSS] < min(values[PRINTED], values[FREE])
    compared = "A classical number read tightly is below both Bayesian ones. " if below else ""
    loose, tight, free = (certified(values[name]) for name in (CLASSICAL, LOSS, FREE))
    return (
        f"A network of 4,010 numbers learns MNIST in {STEPS} steps at sampling rate {BATCH}/60000. Every gradient is "
        f"clipped to C = 1, with noise of {NOISE:g} C and δ = 1e-5. Test accuracy is {accuracy:.1%}. At the end the "
        f"certified numbers are classical {loose} (Chernoff's conversion) and {tight} (loss distribution). The "
        f"Bayesian numbers from the norms of {SAMPLE} training records are {values[PRINTED]:.2f} as printed and {free} "
        f"distribution-free, for this path and model. {compared}The median record's own loss is {values[OWN]:.2f}, "
        "which must stay secret."
    )


def caption_distances(points: Points) -> str:
    """Below Figure 5.7."""
    tested = ", ".join(f"{name} {last(points, P_VALUES, name):.2g}" for name in _TESTS)
    return (
        f"Distances between the gradients of two records in {PAIRS:,} disjoint pairs, inside and outside the training "
        f"set, after the training of Figure 5.6. The last bin holds all longer distances. P-values: {tested}. "
        "The thesis reads large p-values as little leakage. They certify no ε, and small ones would not "
        "show a leak either, because other people wrote the test images."
    )


GROWTH = Figure(
    number="5.6",
    title="ε while a network is trained",
    compute=growth,
    axes={"": (Axis("steps", low=0.0), Axis("ε", low=0.0))},
    caption=caption_growth,
    columns=1,
    data="MNIST",
    aside=(ACCURACY,),
)
DISTANCES = Figure(
    number="5.7",
    title="Distances between gradients, inside and outside the training set",
    compute=histograms,
    axes={"": (Axis("distance"), Axis("share of pairs"))},
    caption=caption_distances,
    columns=1,
    data="MNIST",
    aside=(P_VALUES,),
)
