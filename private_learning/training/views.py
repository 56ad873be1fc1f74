"""Views of records that augmentation makes of the images or signals of a pass, before gradients are taken.

Every slot of a step has draws of its own, of an addressed cryptographic stream. The records in the other slots change
no view. The views of a record are rows beside each other (`private_learning.training.patients`): its gradient is their
mean.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from private_learning.errors import ConfigurationError
from private_learning.gradients.slots import Words
from study_protocol.study.augmentation import Augmentation

Draws = NDArray[np.unsignedinteger]
# What a view is drawn by, one word each.
_DOWN, _RIGHT, _FLIP, _ANGLE, _SCALE, _CONTRAST, _BRIGHTNESS, _NOISE = range(8)


class Views:
    """The views in one step's passes, which come in the order of their slots.

    source  (count, type) -> uniform words: `RandomSource.words`
    grouped  records are several rows already: (width, rows, ...)
    """

    def __init__(self, augmentation: Augmentation, source: Words, *, grouped: bool) -> None:
        self._augmentation, self._source, self._grouped = augmentation, source, grouped
        self._next = 0

    def of(self, x: Tensor, y: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Return (width, rows · views, ...) and targets as many, of the records in the slots from `first`."""
        words = self._words(x)
        # Passes without a record were left out, their slots' draws are not.
        self._source.words((first - self._next) * words, np.uint32)
        self._next = first + len(x)
        return self._changed(x, y, self._source.words(len(x) * words, np.uint32))

    def trial_views(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same of a few records, by draws that are always alike, to try the model on views."""
        draws = np.random.default_rng(0).integers(1 << 32, size=len(x) * self._words(x), dtype=np.uint32)
        return self._changed(x, y, draws)

    def _words(self, x: Tensor) -> int:
        """Return the number of words for one record."""
        return self._augmentation.views * 8 * (x.shape[1] if self._grouped else 1)

    def _changed(self, x: Tensor, y: Tensor, draws: NDArray[np.unsignedinteger]) -> tuple[Tensor, Tensor]:
        x, y = (x, y) if self._grouped else (x.unsqueeze(1), y.unsqueeze(1))
        views = self._augmentation.views
        each = x.repeat_interleave(views, 1)
        changed = changed_by(self._augmentation, each.flatten(0, 1), draws.reshape(-1, 8))
        return torch.unflatten(changed, 0, each.shape[:2]), y.repeat_interleave(views, 1)


def require_views(augmentation: Augmentation, inputs: torch.Size, targets: torch.Size, dtype: torch.dtype) -> None:
    """Raise ConfigurationError where these records, without their first axis, cannot be changed so."""
    if not dtype.is_floating_point or len(inputs) not in (2, 3):
        raise ConfigurationError("training.augmentation is for images and signals: this task's inputs are neither")
    if len(targets) >= 2 and augmentation.moves:
        raise ConfigurationError(
            "training.augmentation: targets are images here, which would not move along: contrast, brightness and "
            "noise alone may be used"
        )
    of_images = (augmentation.rotation, augmentation.contrast, augmentation.brightness, augmentation.flip)
    if len(inputs) == 2 and any(of_images):
        raise ConfigurationError("training.augmentation: of signals only shift, scale and noise may be used")
    if augmentation.shift >= min(inputs[1:]):
        raise ConfigurationError(f"training.augmentation: shift must be below {min(inputs[1:])}, the size of an input")


def changed_by(augmentation: Augmentation, x: Tensor, draws: Draws) -> Tensor:
    """Return (views, channels, ...), each changed by its own draws, (views, 8), in [0, 2³²)."""
    even = torch.as_tensor(draws * 2.0**-32)
    places = even.to(x.device, torch.float32)
    spread = 2 * places - 1
    columns = (-1, *(1,) * (x.dim() - 1))
    if x.dim() == 3:
        x = _shifted(x, _whole(even[:, _RIGHT], augmentation.shift))
        x = x * (1 + augmentation.scale * spread[:, _SCALE]).view(columns)
    elif augmentation.moves:
        x = _moved(augmentation, x, even, spread)
    if augmentation.contrast:
        x = x * (1 + augmentation.contrast * spread[:, _CONTRAST]).view(columns)
    if augmentation.brightness:
        x = x + (augmentation.brightness * spread[:, _BRIGHTNESS]).view(columns)
    if augmentation.noise:
        # It has to hide no value: any generator does, seeded by the first slot's word.
        generator = torch.Generator().manual_seed(int(draws[0, _NOISE]))
        normal = torch.randn(x.shape, generator=generator, dtype=torch.float32)
        x = x + augmentation.noise * normal.to(x)
    return x


def _whole(even: Tensor, limit: int) -> Tensor:
    """Return whole numbers from −limit to limit, all equally likely."""
    return (even * (2 * limit + 1)).floor().long() - limit


def _shifted(x: Tensor, by: Tensor) -> Tensor:
    """Return (views, channels, length) moved by so many samples. The ends are repeated."""
    if not bool(by.any()):
        return x
    length = x.shape[2]
    places = (torch.arange(length) - by[:, None]).clamp_(0, length - 1).to(x.device)
    return x.gather(2, places[:, None].expand_as(x))


def _moved(augmentation: Augmentation, x: Tensor, even: Tensor, spread: Tensor) -> Tensor:
    """Return (views, channels, height, width) rotated, scaled, mirrored and shifted, with repeated edges."""
    height, width = x.shape[2:]
    angle = spread[:, _ANGLE] * math.radians(augmentation.rotation)
    sizes = 1 / (1 + augmentation.scale * spread[:, _SCALE])
    side = torch.ones_like(sizes)
    if augmentation.flip:
        side = torch.where(even[:, _FLIP].to(x.device) < 0.5, -side, side)
    across, down = angle.cos() * sizes, angle.sin() * sizes
    right = 2 * _whole(even[:, _RIGHT], augmentation.shift).to(across) / width
    below = 2 * _whole(even[:, _DOWN], augmentation.shift).to(across) / height
    # Where each place of the view lies in the record, in halves of its sides.
    rows = (side * across, -down * (height / width), -right, side * down * (width / height), across, -below)
    grid = functional.affine_grid(torch.stack(rows, 1).view(-1, 2, 3).to(x), list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
