"""MNIST held by many clients, softmax regression on oriented gradients: what Figures 6.1 and 6.2 train.

FedSGD as the thesis has it (section 6.5.1), every client in every round. The gradient of a record is (p − y) xᵀ, so
that norms and clipped sums have closed forms. A linear map of 392 fixed features is in the place of its CNN.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from research.accuracy.oriented_gradients import oriented_gradients
from research.figures.digits import Labels, digits

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
CLASSES, VALIDATION = 10, 5000


@lru_cache(maxsize=2)
def features(part: str) -> tuple[Floats, Labels]:
    """((n, 392) of norm 1, labels) of "train" or "t10k". Raises DataMissing."""
    images, labels = digits(part)
    return oriented_gradients(torch.as_tensor(images * 255)).numpy(), labels


def dealt(labels: Labels, clients: int, *, iid: bool, copies: int, seed: int) -> Rows:
    """(clients, records) rows of the training set.

    iid      at random, else two shards of one digit's images each (a few mix two)
    copies   how often every image occurs: above 100 clients of 600 images the papers repeat them
    """
    generator = np.random.default_rng(seed)
    if iid:
        order = np.concatenate([generator.permutation(len(labels)) for _ in range(copies)])
        return order[: len(order) - len(order) % clients].reshape(clients, -1)
    sorted_rows = np.tile(np.argsort(labels, kind="stable"), (copies, 1)).T.ravel()
    size = len(sorted_rows) // (2 * clients)
    shards = sorted_rows[: 2 * clients * size].reshape(2 * clients, size)
    return shards[generator.permutation(2 * clients)].reshape(clients, 2 * size)


@dataclass(frozen=True)
class Clients:
    """All records, client by client: inputs (clients, records, features), truth (clients, records, classes)."""

    inputs: Floats
    truth: Floats

    @classmethod
    def of(cls, inputs: Floats, labels: Labels, rows: Rows) -> Clients:
        return cls(inputs[rows], np.eye(CLASSES, dtype=np.float32)[labels[rows]])

    def errors(self, weights: Floats) -> Floats:
        """(clients, records, classes) p − y; a record's gradient is its outer product with the inputs."""
        scores = self.inputs @ weights.T
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return scores / scores.sum(axis=-1, keepdims=True) - self.truth

    def lengths(self, errors: Floats) -> Floats:
        """(clients, records) L2 norms of the gradients."""
        return np.linalg.norm(errors, axis=-1) * np.linalg.norm(self.inputs, axis=-1)

    def sums(self, errors: Floats, clip_norm: float | None, included: npt.NDArray[np.bool_] | None = None) -> Floats:
        """(clients, classes · features) sums of gradients, each clipped where there is a clip norm."""
        if clip_norm is not None:
            errors = errors * np.minimum(1.0, clip_norm / np.maximum(self.lengths(errors), 1e-12))[..., None]
        if included is not None:
            errors = errors * included[..., None]
        return (errors.swapaxes(1, 2) @ self.inputs).reshape(len(errors), -1)


def as_float32(values: npt.NDArray[Any]) -> Floats:
    """The same array in the precision of models."""
    return values.astype(np.float32)


def projected(vectors: Floats, radius: float) -> Floats:
    """(clients, …) each moved to the ball."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors * np.minimum(1.0, radius / np.maximum(norms, 1e-12))


def accuracy(weights: Floats, inputs: Floats, labels: Labels) -> float:
    """Share that is right."""
    return float(((inputs @ weights.T).argmax(axis=1) == labels).mean())
