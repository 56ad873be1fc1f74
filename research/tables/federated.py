"""Federated learning of a linear map from zero, one gradient a round, clients protected by central noise.

The mechanism is a study's (scheme `client`): every client's mean gradient is clipped, rounded to the public grid and
added up exactly; the discrete Gaussian of `CentralNoise` is added to the sum. Vectorised: residuals once per distinct
record, whoever has it, and clients in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from study_protocol.randomness.discrete_gaussian import DiscreteGaussianNoise
from study_protocol.randomness.source import Randomness
from study_protocol.study.central_noise import CentralNoise

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Labels = NDArray[np.int64]
Rows = NDArray[np.int64]

# Gradients of a block of clients, in numbers.
_BLOCK = 1_000_000


@dataclass(frozen=True)
class FederatedSettings:
    """What a run needs beside the noise. Everything is public and fixed before the first round.

    kept            coordinates of the feature map
    clip, last_clip of a client's mean gradient: in the first and the last round, geometric in between
    record_clip     of a record's gradient; None: √2, which no gradient of a record of norm 1 passes
    averaged        the released model is the mean over this last share of the rounds; 0: the last one
    """

    kept: int
    rounds: int
    clip: float
    last_clip: float
    learning_rate: float
    momentum: float
    averaged: float = 0.0
    record_clip: float | None = None
    classes: int = 10

    def clip_norm(self, place: int) -> float:
        """Of the round at this place, from 0."""
        return self.clip * (self.last_clip / self.clip) ** (place / max(1, self.rounds - 1))

    def mechanism(self, place: int, noise_multiplier: float) -> CentralNoise:
        """The round's grid, sensitivity and noise."""
        return CentralNoise(self.clip_norm(place), noise_multiplier, self.kept * self.classes)


@dataclass(frozen=True)
class FederatedClients:
    """inputs: (records, kept), norm ≤ 1, every record once. labels: (records,). rows: (clients, each) of `inputs`."""

    inputs: Floats
    labels: Labels
    rows: Rows


@dataclass(frozen=True)
class Trained:
    """weights: (kept, classes). norms: (rounds, clients), of the mean gradients before the clip."""

    weights: Floats
    norms: Doubles


def train(
    clients: FederatedClients,
    settings: FederatedSettings,
    noise_multiplier: float,
    randomness: Randomness,
    *,
    stand_for: int | None = None,
) -> Trained:
    """A run of all rounds; noise_multiplier 0: without noise.

    stand_for  the clients here are a sample of so many, and each counts for several; for choosing settings alone
    """
    count, counted_clients = len(clients.rows), stand_for or len(clients.rows)
    weights, velocity = (np.zeros((settings.kept, settings.classes)) for _ in range(2))
    tail: list[Doubles] = []
    norms: list[Doubles] = []
    noise = DiscreteGaussianNoise(randomness)
    for place in range(settings.rounds):
        # Without noise the grid is a study's at noise multiplier 1.
        mechanism = settings.mechanism(place, noise_multiplier or 1.0)
        total, clipped_total = clipped_sum(clients, weights, mechanism, settings.record_clip)
        norms.append(clipped_total)
        if noise_multiplier:
            draw = noise.of(place + 1)(mechanism.units, total.size).reshape(total.shape)
            total = total * (counted_clients / count) + draw
            total /= counted_clients / count
        velocity = settings.momentum * velocity + total * (mechanism.spacing / count)
        weights = weights - settings.learning_rate * velocity
        if place >= settings.rounds * (1 - settings.averaged) or place == settings.rounds - 1:
            tail.append(weights)
    return Trained(np.mean(tail, axis=0).astype(np.float32), np.array(norms))


def clipped_sum(
    clients: FederatedClients, weights: Doubles, mechanism: CentralNoise, record_clip: float | None = None
) -> tuple[Doubles, Doubles]:
    """Σ_i of the clients' clipped mean gradients in whole grid units (kept, classes), and their norms (clients,).

    Sums of whole numbers are exact: taking a client away moves the sum by its own rounded update, whatever the blocks.
    """
    errors = residuals(clients.inputs, clients.labels, weights, record_clip)
    total = np.zeros(weights.shape)
    norms: list[Doubles] = []
    for gradients in _mean_gradients(clients, errors):
        lengths = np.sqrt(np.einsum("ckl,ckl->c", gradients, gradients))
        factors = np.minimum(1, mechanism.clip_norm / np.maximum(lengths, np.finfo(float).tiny))
        total += np.rint(gradients * (factors / mechanism.spacing)[:, None, None]).sum(axis=0)
        norms.append(lengths)
    return total, np.concatenate(norms)


def residuals(inputs: Floats, labels: Labels, weights: Doubles, record_clip: float | None = None) -> Floats:
    """p − y of the softmax (records, classes), so that a record's gradient is its outer product with the features.

    With a record clip each is scaled so that the gradient's norm is at most that.
    """
    scores = inputs @ weights.astype(np.float32)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    exponentials[np.arange(len(labels)), labels] -= 1
    if record_clip is not None:
        lengths = np.linalg.norm(exponentials, axis=1) * np.linalg.norm(inputs, axis=1)
        exponentials *= np.minimum(1, record_clip / np.maximum(lengths, np.finfo(np.float32).tiny))[:, None]
    return exponentials


def _mean_gradients(clients: FederatedClients, errors: Floats) -> Iterator[Doubles]:
    """(block, kept, classes) of one block of clients after the other."""
    each = clients.rows.shape[1]
    block = max(1, _BLOCK // (errors.shape[1] * clients.inputs.shape[1]))
    for start in range(0, len(clients.rows), block):
        rows = clients.rows[start : start + block]
        # One client's features at a time stay in the processor's cache.
        products = [
            errors.take(client_rows, axis=0).T @ clients.inputs.take(client_rows, axis=0) for client_rows in rows
        ]
        yield np.stack(products).transpose(0, 2, 1).astype(np.float64) / each


def accuracy(weights: Floats, inputs: Floats, labels: Labels) -> float:
    """Share of records whose class is named."""
    return float(np.mean((inputs @ weights).argmax(axis=1) == labels))
