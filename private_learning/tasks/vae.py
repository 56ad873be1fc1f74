"""A generator of images by class: a small variational autoencoder with a prior of its own for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import Examples
from private_learning.tasks.scaled import ClassifiedArrays, ImageShape
from private_learning.tasks.task import TaskError
from private_learning.tasks.weights import uniform
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from private_learning.tasks.vae_model import ConditionalAutoencoder

# Priors of two classes are then 5.7 standard deviations apart.
CENTRE = 4.0
_AT_ONCE = 1000


class VaeParameters(ImageShape):
    """Parameters of the images, their classes, and the network."""

    classes: int = Field(ge=2, le=1000, description="the label is 0, 1, …, classes − 1")
    filters: int = Field(
        default=8, ge=1, le=1024, description="filters at half the size. A quarter of the size has twice as many"
    )
    latent: int = Field(default=16, ge=2, le=4096, description="numbers that describe an image, as many as classes")

    @model_validator(mode="after")
    def _places(self) -> Self:
        if self.latent < self.classes:
            raise ValueError("latent must be at least classes: the prior of each class has a direction of its own")
        return self


class ClassAutoencoder(ClassifiedArrays):
    """Generates images of a class: an encoder and a decoder with tanh, and a normal prior for each class.

    The prior of class y is N(CENTRE·e_y, I), so that the code of an image also says its class. Loss of a record: minus
    the evidence lower bound in nats per pixel (Kingma & Welling 2014, equation 10), with pixels as chances of white.
    """

    name, kind = "vae", VaeParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.classes = self.parameters.classes
        self.shape, self.reach = self.parameters.shape, self.parameters.reach

    @property
    def layers(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of each layer's weights, by name."""
        p = self.parameters
        narrow, wide = p.filters, 2 * p.filters
        flat = wide * -(-p.height // 4) * -(-p.width // 4)
        return {
            "encoder.0": (narrow, p.channels, 3, 3),
            "encoder.2": (wide, narrow, 3, 3),
            "encoder.5": (2 * p.latent, flat),
            "spread": (flat, p.latent),
            "middle": (narrow, wide, 3, 3),
            "last": (p.channels, narrow, 3, 3),
        }

    def model(self) -> nn.Module:
        from private_learning.tasks.vae_model import ConditionalAutoencoder

        return ConditionalAutoencoder(self.layers, self.shape)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return uniform(self.layers, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"height": 28, "width": 28, "classes": 2}

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,), minus the evidence lower bound of each record."""
        from private_learning.tasks.vae_model import EvidenceLoss

        return EvidenceLoss(self.parameters.latent, CENTRE)

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return (n, classes) probabilities of the classes, by the density of each prior at the mean code."""
        return super().predictions(self._scores(outputs))

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return those of the classes, and the mean squared error of reconstructed pixels, as parts of their range."""
        metrics = super().metrics(self._scores(outputs), targets)
        decoded, images = outputs[:, 2 * self.parameters.latent :].double().chunk(2, dim=1)
        error = decoded.sigmoid() - (images + 1) / 2
        return metrics | {"reconstruction_error": error.square().mean().item()}

    def _scores(self, outputs: Tensor) -> Tensor:
        """Return scores as a classifier's: squared lengths of means of priors are equal and fall out."""
        scores = CENTRE * outputs[:, : self.classes]
        return scores[:, 1:] - scores[:, :1] if self.classes == 2 else scores

    def generate(self, model: ConditionalAutoencoder, labels: Sequence[int], seed: int) -> Examples:
        """Return a new image for each label, within low and high: post-processing of the model.

        The same model, labels and seed give the same images on one machine.

        Raises:
            TaskError: no label, or one that is none of the classes.
        """
        import torch

        p, classes = self.parameters, np.asarray(labels)
        if classes.ndim != 1 or not len(classes) or not np.isin(classes, np.arange(p.classes)).all():
            raise TaskError(f"labels: give a list of whole numbers from 0 to {p.classes - 1}")
        codes = np.random.default_rng(seed).standard_normal((len(classes), p.latent))
        codes[np.arange(len(classes)), classes.astype(int)] += CENTRE
        with torch.no_grad():
            parts = torch.split(torch.as_tensor(codes).float(), _AT_ONCE)
            shades = torch.cat([model.decoded(part).sigmoid() for part in parts]).numpy()
        return Examples.of(p.low + (p.high - p.low) * shades.astype(np.float64), classes.astype(np.int64))
