"""Clipped per-record gradient norms of a full private run: logistic regression on the Wisconsin breast-cancer data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GradientNormRun:
    """Public settings of DP-SGD with Poisson batches, noise σ·C on the sum, step 1/(q·records)."""

    clip_norm: float = 1.0
    noise_multiplier: float = 2.0
    sampling_rate: float = 0.1
    steps: int = 300
    records: int = 455
    delta: float = 1e-5
    estimator_failure_probability: float = 1e-6


def records() -> tuple[FloatArray, FloatArray]:
    """Standardised features with a bias column, and labels 0/1, in the order of a fixed permutation."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    rows = np.random.default_rng(0).permutation(labels.size)
    return np.column_stack([features, np.ones(labels.size)])[rows], labels[rows].astype(np.float64)


def clipped_norms(run: GradientNormRun, seed: int, *, accounting_sample: bool = False) -> FloatArray:
    """Norms (steps, records) along one run that trains on the first `run.records` records.

    Everybody is measured at every step, sampled or not; with `accounting_sample` the records held out of training too.
    """
    features, labels = records()
    lengths = np.linalg.norm(features, axis=1)
    rng = np.random.default_rng(seed)
    weights, norms = np.zeros(features.shape[1]), []
    for _ in range(run.steps):
        errors = 1 / (1 + np.exp(-features @ weights)) - labels
        raw = np.abs(errors) * lengths
        norms.append(np.minimum(raw, run.clip_norm))
        scale = np.minimum(1.0, run.clip_norm / np.maximum(raw, 1e-300))
        batch = np.flatnonzero(rng.random(run.records) < run.sampling_rate)
        total = (errors * scale)[batch] @ features[batch]
        noise = rng.normal(0.0, run.noise_multiplier * run.clip_norm, weights.size)
        weights -= (total + noise) / (run.sampling_rate * run.records)
    return np.array(norms) if accounting_sample else np.array(norms)[:, : run.records]
