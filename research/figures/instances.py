"""Figure 6.1: how fast instance privacy grows, in parallel and sequential accounting (thesis, section 6.5.3).

Every client draws a batch of its 600 images at q = B/N_i, clips, adds noise σC of its own. As printed, both modes
estimate by Student t and compose by Hölder with the declared rounds: parallel takes each round's dearest client at
q = B/N_i, sequential adds all clients' costs at q = B/N, N the images of all clients. The certified curves charge every
record at C: parallel with the client's own noise, sequential with the noise of all clients, which holds where nobody
sees anything but the sum and all of them are honest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from accounting import log_moment
from accounting.estimation.upper_mean import student_upper_quantile
from accounting.mechanisms.as_printed import sequential_as_in_papers, sequential_charge, sum_of_maxima
from research.accuracy.gradient_norms import FloatArray
from research.figures.clients import CLASSES, Clients, dealt, features
from research.figures.figure import Axis, Figure
from research.figures.synthetic import ORDERS, PRINTED_FAILURE, epsilon
from research.figures.table import Point, Points, certified, curve, last

RECORDS, BATCH, CLIP, NOISE, ROUNDS, RATE, SAMPLE, SEED = 600, 60, 1.0, 1.0, 60, 4.0, 30, 0
SIZES = (100, 1000)
PARALLEL, SEQUENTIAL = "parallel as printed (not certified)", "sequential as printed (not certified)"
CHARGED, SUMMED = "parallel, worst case (certified)", "sequential, worst case (certified where only the sum is seen)"


@dataclass(frozen=True)
class InstancePanel:
    """One panel."""

    clients: int
    iid: bool

    @property
    def title(self) -> str:
        """Of the panel."""
        return f"{self.clients:,} clients, {'iid' if self.iid else 'two digits each'}"


def norms_by_round(setting: InstancePanel) -> list[FloatArray]:
    """Round by round (clients, SAMPLE): clipped gradient norms of the same images of every client.

    The sum of all noise is added at once, which is the same law.
    """
    inputs, labels = features("train")
    rows = dealt(labels, setting.clients, iid=setting.iid, copies=setting.clients * RECORDS // len(labels), seed=SEED)
    generator, samples = np.random.default_rng(SEED), list[FloatArray]()
    weights = np.zeros((CLASSES, inputs.shape[1]), np.float32)
    watched = Clients.of(inputs, labels, rows[:, :SAMPLE])
    for _ in range(ROUNDS):
        samples.append(np.minimum(watched.lengths(watched.errors(weights)), CLIP).astype(np.float64))
        total = np.zeros(weights.size)
        for some in np.array_split(rows, max(1, setting.clients // 100)):
            # A batch of exactly B, drawn anew: for the path only. The accounts are for Poisson batches.
            batch = Clients.of(inputs, labels, generator.permuted(some, axis=1)[:, :BATCH])
            total += batch.sums(batch.errors(weights), CLIP).sum(axis=0, dtype=np.float64)
        total += generator.normal(0.0, NOISE * CLIP * math.sqrt(setting.clients), total.size)
        step = total.reshape(weights.shape) / (BATCH * setting.clients)
        weights = (weights - RATE * step).astype(np.float32)
    return samples


def student_t(log_values: FloatArray) -> FloatArray:
    """(clients, orders) from (orders, clients, records): Definition 17, for all clients at once."""
    top = log_values.max(axis=-1, keepdims=True)
    scaled = np.exp(log_values - top)
    m = scaled.shape[-1]
    quantile = student_upper_quantile(m - 1, PRINTED_FAILURE)
    bound = scaled.mean(axis=-1) + quantile * scaled.std(axis=-1) / math.sqrt(m - 1)
    return (top[..., 0] + np.log(bound)).T


def estimated(norms: FloatArray, rate: float) -> FloatArray:
    """(clients, orders) one round's cost by Theorem 1, from the sample's norms (clients, records)."""
    step_cost = log_moment(ORDERS, norms, noise_std=NOISE * CLIP, sampling_rate=rate)
    return student_t(ROUNDS * step_cost) / ROUNDS


def panel(setting: InstancePanel) -> list[Point]:
    """Four curves: ε after each round less ε after the first."""
    everybody = setting.clients * RECORDS
    by_round = norms_by_round(setting)
    own_costs = np.stack([estimated(norms, BATCH / RECORDS) for norms in by_round])
    shared = np.stack([sequential_as_in_papers(estimated(norms, BATCH / everybody)) for norms in by_round])
    worst = log_moment(ORDERS, CLIP, noise_std=NOISE * CLIP, sampling_rate=BATCH / RECORDS)
    pooled = sequential_charge(
        ORDERS,
        np.array([CLIP]),
        sampling_rate=BATCH / RECORDS,
        noise_stds=[NOISE * CLIP] * setting.clients,
        participation=1.0,
    )[:, 0]
    rounds = np.arange(1, ROUNDS + 1)
    curves = {
        PARALLEL: [epsilon(sum_of_maxima(own_costs[:r])) for r in rounds],
        SEQUENTIAL: [epsilon(shared[:r].sum(axis=0)) for r in rounds],
        CHARGED: [epsilon(r * worst) for r in rounds],
        SUMMED: [epsilon(r * pooled) for r in rounds],
    }
    points: list[Point] = []
    for name, values in curves.items():
        grown = np.array(values) - values[0]
        points += curve(setting.title, name, rounds[1:], grown[1:])
        points += curve(f"first round, {setting.title}", name, (1,), (values[0],))
    return points


SETTINGS = tuple(InstancePanel(clients, iid) for iid in (True, False) for clients in SIZES)


def compute() -> list[Point]:
    """All four panels."""
    return [point for setting in SETTINGS for point in panel(setting)]


def caption(points: Points) -> str:
    """Below the drawing."""
    some, large_title = SETTINGS[0].title, SETTINGS[1].title

    def total(title: str, name: str) -> float:
        return last(points, title, name) + last(points, f"first round, {title}", name)

    def safe(title: str, name: str) -> str:
        return certified(total(title, name))

    return (
        f"Growth of ε at instance level since the first round. MNIST, FedSGD, {RECORDS} images a client, batches of "
        f"{BATCH}, C = {CLIP:g}, noise {NOISE:g} C of every client, δ = 1e-5, Chernoff's conversion, {ROUNDS} rounds. "
        "With 1,000 clients every image is held ten times, and ε would have to be read for groups of ten. With 100 "
        f"clients, iid, ε as printed ends at {total(some, PARALLEL):.3g} in parallel and "
        f"{total(some, SEQUENTIAL):.3g} in sequential accounting. Certified ε is {safe(some, CHARGED)} for every "
        f"client's own update and {safe(some, SUMMED)} for the sum of all, whose noise is added up. With 1,000 clients "
        f"it is {safe(large_title, CHARGED)} and {safe(large_title, SUMMED)}. Sequential accounting as printed charges "
        "a record at B/N with one client's noise. This is a bound only where participation is secret."
    )


FIGURE = Figure(
    number="6.1",
    title="Growth of ε in parallel and sequential accounting",
    compute=compute,
    axes={"": (Axis("round"), Axis("ε less its first value", "log"))},
    caption=caption,
    data="MNIST",
    aside=tuple(f"first round, {setting.title}" for setting in SETTINGS),
)
