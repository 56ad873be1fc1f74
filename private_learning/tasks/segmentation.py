"""Segmentation, a class for every pixel: a small U-Net, its loss, and the reading of masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError, Examples, Records, WrongRows
from private_learning.tasks.convolutions import ConvolutionLayout, strided, why_not_normalised
from private_learning.tasks.losses import LARGEST_WEIGHT, numbers_of
from private_learning.tasks.scaled import ImageShape, ScaledArrays, labels_of
from private_learning.tasks.task import Task, require_metrics
from private_learning.tasks.weights import normalised

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[Any]]
# What a target says of a pixel that is not labelled, as of a row that is not there: `dataset.ABSENT`.
UNLABELLED = -1
# A round's metrics are at most 32 numbers.
MAX_CLASSES_SHOWN = 14


class SegmentationParameters(ImageShape):
    """Parameters of the images and their masks, of the loss, and of the network."""

    classes: int = Field(ge=2, le=256, description="how many kinds of pixels there are, the background among them")
    mask_values: str | None = Field(
        default=None,
        alias="mask-values",
        description="numbers in the masks in the order of the classes, with bars between. Default: 0, 1, …",
    )
    unlabelled: int | None = Field(
        default=None, description="number in the masks of unlabelled pixels. Default: there are none"
    )
    class_weights: str | None = Field(
        default=None,
        alias="class-weights",
        description="weight of a pixel of each class: numbers with bars between. Default: all 1",
    )
    dice: float = Field(default=0.0, ge=0, le=100, description="what the Dice loss counts beside the cross-entropy")
    filters: int = Field(
        default=16, ge=1, le=1024, description="filters at full size. Every level below has twice as many"
    )
    depth: int = Field(default=2, ge=1, le=5, description="how often height and width are halved on the way down")
    groups: int = Field(default=8, ge=1, le=1024, description="groups of every normalisation, a divisor of filters")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if len(self.values) != self.classes:
            raise ValueError(f"mask-values must be {self.classes} different whole numbers between bars, such as 0|255")
        if self.unlabelled in self.values:
            raise ValueError("unlabelled must be none of the mask's values")
        weights = self.weights
        sound = len(weights) == self.classes and all(0 < weight <= LARGEST_WEIGHT for weight in weights)
        if self.class_weights is not None and not sound:
            raise ValueError(f"class-weights must be {self.classes} numbers above 0 and up to {LARGEST_WEIGHT:g}")
        smallest = (strided(side, 2, self.depth) for side in (self.height, self.width))
        problem = why_not_normalised(self.filters, self.groups, next(smallest) * next(smallest))
        if problem is not None:
            raise ValueError(problem)
        return self

    @property
    def values(self) -> tuple[int, ...]:
        """Return the numbers in the masks for each class, none where they cannot be read."""
        if self.mask_values is None:
            return tuple(range(self.classes))
        numbers = numbers_of(self.mask_values)
        return (
            tuple(map(int, numbers)) if len(set(numbers)) == len(numbers) and all(v == int(v) for v in numbers) else ()
        )

    @property
    def weights(self) -> tuple[float, ...]:
        return () if self.class_weights is None else numbers_of(self.class_weights)


class Segmentation(ScaledArrays, Task):
    """A U-Net with GroupNorm: scores of every class for every pixel. Targets are (n, height, width) classes."""

    name, kind = "segmentation", SegmentationParameters
    predicts = "masks of images"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.parameters = self.kind.read(self.name, parameters)
        self.shape, self.reach = self.parameters.shape, self.parameters.reach

    @property
    def layout(self) -> ConvolutionLayout:
        p = self.parameters
        shapes: dict[str, tuple[int, ...]] = {}
        for at in range(p.depth + 1):
            filters = p.filters << at
            shapes[f"down.{at}.0"] = filters, (filters // 2 if at else p.channels), 3, 3
            shapes[f"down.{at}.2"] = filters, filters, 3, 3
        for at in range(p.depth):
            filters = p.filters << at
            shapes[f"up.{at}.0"] = filters, 3 * filters, 3, 3
            shapes[f"up.{at}.2"] = filters, filters, 3, 3
        return ConvolutionLayout(shapes, (p.classes, p.filters, 1, 1))

    def model(self) -> nn.Module:
        from private_learning.tasks.networks import UNet

        return UNet(self.layout, self.parameters.groups, self.parameters.depth)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        return normalised(self.layout, random)

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"height": 32, "width": 32, "classes": 2, "mask-values": "0|255", "filters": 8, "dice": 1.0}

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        """Return random images in which every class is a band of rows, brighter than the one before."""
        draw, p = np.random.default_rng(seed), self.parameters
        edges = np.sort(draw.integers(0, p.height + 1, (count, p.classes - 1)), axis=1)
        classes = (np.arange(p.height) >= edges[:, :, None]).sum(1)
        shades = classes[:, None, :, None] + draw.uniform(size=(count, *p.shape))
        masks = np.repeat(np.array(p.values)[classes][:, :, None], p.width, axis=2)
        return Examples.of(p.low + (p.high - p.low) * shades / p.classes, masks)

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,): a mean over the record's own labelled pixels."""
        from private_learning.gradients.pixels import PixelLoss

        return PixelLoss(self.parameters.weights, self.parameters.dice)

    def targets(self, data: Records) -> Tensor:
        """Return (n, height, width) int64 classes, UNLABELLED where the mask says so."""
        import torch

        masks, p = labels_of(self.name, data), self.parameters
        masks = masks[:, 0] if masks.ndim == 4 and masks.shape[1] == 1 else masks
        if masks.dtype.kind not in "buif" or masks.shape[1:] != (p.height, p.width):
            raise DataError(
                f"labels: one mask of {p.height} × {p.width} numbers for each image is expected: an array labels of an "
                ".npz file, or a folder with the sub-folders images and masks"
            )
        labels = np.full(masks.shape, UNLABELLED, np.int64)
        for place, value in enumerate(p.values):
            labels[masks == value] = place
        wrong = (labels == UNLABELLED) & (True if p.unlabelled is None else masks != p.unlabelled)
        self._refuse(wrong.any(axis=(1, 2)), "have pixels that are none of the study's mask-values")
        self._refuse((labels == UNLABELLED).all(axis=(1, 2)), "have no labelled pixel: leave these records out")
        return torch.as_tensor(labels)

    def _refuse(self, wrong: Array, problem: str) -> None:
        if wrong.any():
            raise WrongRows(f"labels: {int(wrong.sum())} of {len(wrong)} masks {problem}", wrong)

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return (n, classes, height, width) probabilities, in the precision of the outputs."""
        import torch

        return torch.softmax(outputs, dim=1)

    def masks(self, probabilities: Array) -> Array:
        """Return (n, height, width) mask values of the likeliest class, out of (n, classes, height, width)."""
        return np.array(self.parameters.values)[probabilities.argmax(axis=1)]

    def target_counts(self, targets: Tensor) -> dict[str, int]:
        """Return how many masks hold a value, by the value."""
        masks = {str(value): (targets == place) for place, value in enumerate(self.parameters.values)}
        if self.parameters.unlabelled is not None:
            masks["not labelled"] = targets == UNLABELLED
        return {name: int(pixels.flatten(1).any(1).sum()) for name, pixels in masks.items()}

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return Dice and IoU over the labelled pixels of all records together, and the share of pixels that are right.

        Both are means over the classes, and each class's own value for up to MOST_SHOWN classes. A class that is
        neither there nor predicted has none, and is in no mean.
        """
        require_metrics(outputs, targets)
        labelled, classes = targets != UNLABELLED, self.parameters.classes
        cells = targets[labelled] * classes + outputs.argmax(1)[labelled]
        counts = np.bincount(cells.numpy(), minlength=classes**2).reshape(classes, classes)
        right, occurrences = np.diag(counts), counts.sum(0) + counts.sum(1)
        present = np.flatnonzero(occurrences)
        dice, overlap = 2 * right[present] / occurrences[present], right[present] / (occurrences - right)[present]
        metrics = {"dice": dice.mean(), "iou": overlap.mean(), "pixel_accuracy": right.sum() / counts.sum()}
        if classes <= MAX_CLASSES_SHOWN:
            for at, place in enumerate(present):
                metrics |= {f"dice_{place}": dice[at], f"iou_{place}": overlap[at]}
        return {name: float(value) for name, value in metrics.items()}
