"""Classifiers on arrays: a small convolutional network on images, a last layer on given features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import nn

from client_sdk.data import DataError, Examples, Records
from client_sdk.tasks.task import Classification, TaskDataset, TaskParameters


class ImageParameters(TaskParameters):
    """Shape of an image and the public range of a pixel."""

    channels: int = Field(default=1, ge=1, le=64)
    height: int = Field(ge=4, le=4096)
    width: int = Field(ge=4, le=4096)
    classes: int = Field(ge=2, le=10_000)
    low: float = 0.0
    high: float = 255.0
    filters: int = Field(default=16, ge=1, le=1024)
    hidden: int = Field(default=32, ge=1, le=65_536)

    @model_validator(mode="after")
    def _range(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        return self


class SmallCnn(Classification):
    """Two strided 3 × 3 convolutions and one hidden layer, tanh throughout, no normalisation across records."""

    name = "cnn"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = ImageParameters.read(self.name, parameters)
        self.classes = self.parameters.classes

    def model(self) -> nn.Module:
        p = self.parameters
        # Stride 2 with padding 1 halves a side, rounded up; done twice.
        flat = 2 * p.filters * -(-p.height // 4) * -(-p.width // 4)
        return nn.Sequential(
            nn.Conv2d(p.channels, p.filters, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Conv2d(p.filters, 2 * p.filters, 3, stride=2, padding=1),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(flat, p.hidden),
            nn.Tanh(),
            nn.Linear(p.hidden, self.outputs),
        )

    def dataset(self, data: Records) -> TaskDataset:
        p = self.parameters
        examples = _examples(self.name, data)
        images = examples.inputs[:, None] if examples.inputs.ndim == 3 and p.channels == 1 else examples.inputs
        if images.shape[1:] != (p.channels, p.height, p.width):
            raise DataError(f"inputs: images of shape ({p.channels}, {p.height}, {p.width}) are expected")
        # Differences of unsigned integers would wrap around.
        pixels = images.astype(np.float32) if images.dtype.kind in "ui" else images
        scaled = (np.clip(pixels, p.low, p.high) - p.low) / (p.high - p.low)
        targets = self.integer_labels(examples.labels)
        return TaskDataset(torch.as_tensor(2 * scaled - 1).float(), targets, examples.patients)


class FeatureParameters(TaskParameters):
    """features: numbers per record. bound: public; a longer feature vector is scaled down to this L2 norm."""

    features: int = Field(ge=1, le=1_000_000)
    classes: int = Field(ge=2, le=10_000)
    bound: float = Field(gt=0)


class LastLayer(Classification):
    """A linear classifier on features that a fixed, public network has made."""

    name = "last-layer"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = FeatureParameters.read(self.name, parameters)
        self.classes = self.parameters.classes

    def model(self) -> nn.Module:
        return self.linear(self.parameters.features)

    def dataset(self, data: Records) -> TaskDataset:
        examples = _examples(self.name, data)
        if examples.inputs.shape[1:] != (self.parameters.features,):
            raise DataError(f"inputs: {self.parameters.features} features per record are expected")
        features = examples.inputs.astype(np.float64)
        with np.errstate(over="ignore"):  # a norm beyond the largest float scales its record to 0
            norms = np.linalg.norm(features, axis=1, keepdims=True)
        bounded = features * (self.parameters.bound / np.maximum(norms, self.parameters.bound))
        targets = self.integer_labels(examples.labels)
        return TaskDataset(torch.as_tensor(bounded).float(), targets, examples.patients)


def _examples(task: str, data: Records) -> Examples:
    if not isinstance(data, Examples):
        raise DataError(f"task {task} takes arrays (inputs, labels), not a table")
    wrong = int(np.sum(~np.isfinite(data.inputs).reshape(len(data), -1).all(axis=1)))
    if wrong:
        raise DataError(f"inputs: {wrong} of {len(data)} records hold NaN or an infinity")
    return data
