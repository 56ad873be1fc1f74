"""A fixed scattering transform of grey images (Bruna & Mallat 2013; filters as in Andreux et al. 2020, Kymatio).

Two scales, eight directions: the image, its first- and its second-order wavelet moduli, smoothed at 7 × 7 places.
Everything is a constant, and every image is mapped by itself: the map costs no privacy.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Images = NDArray[np.uint8]
Floats = NDArray[np.float32]

SIDE, PLACES = 28, 7
DIRECTIONS = 8
CHANNELS = 1 + 2 * DIRECTIONS + DIRECTIONS**2
_PADDED = 32
_MARGIN = (_PADDED - SIDE) // 2
_CHUNK = 250
# Kymatio's constants: spread of an envelope at scale 0, its highest frequency.
_SPREAD, _FREQUENCY = 0.8, 3 * np.pi / 4
# Of the smoothing: Kymatio's 0.8 · 2, a little wider, since places are 4 pixels apart.
_SMOOTH = 1.92


def scattering(images: Images) -> Floats:
    """(n, 28, 28) images of 0..255 to (n, 81 · 7 · 7) features: square roots of the smoothed moduli.

    Raises ValueError for images of another size.
    """
    if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
        raise ValueError(f"images must have shape (n, {SIDE}, {SIDE}), got {images.shape}")
    parts = [_moduli(part).sqrt().flatten(1) for part in torch.from_numpy(images).split(_CHUNK)]
    return torch.cat(parts).numpy()


def _moduli(images: Tensor) -> Tensor:
    """(n, channels, 7, 7), not negative."""
    fine, coarse = _wavelets(0), _wavelets(1)
    padded = torch.nn.functional.pad(images.float() / 255, (_MARGIN,) * 4)
    spectrum = torch.fft.fft2(padded)[:, None]
    first = torch.fft.ifft2(spectrum * fine).abs()
    second = torch.fft.ifft2(_halved(spectrum * coarse)).abs()
    crossed = torch.fft.ifft2(_halved(torch.fft.fft2(first)[:, :, None] * coarse)).abs().flatten(1, 2)
    return torch.cat([_smoothed(each) for each in (padded[:, None], first, second, crossed)], dim=1)


def _halved(spectrum: Tensor) -> Tensor:
    """Every other pixel in both directions: the spectrum folded over."""
    half = spectrum.shape[-1] // 2
    return spectrum.unflatten(-2, (2, half)).sum(-3).unflatten(-1, (2, half)).sum(-2) / 4


def _smoothed(maps: Tensor) -> Tensor:
    """(…, m, m) on the padded square to (…, 7, 7): Gaussian means around places 4 pixels apart."""
    weights = _smoothing(maps.shape[-1])
    return weights @ maps @ weights.T


@cache
def _smoothing(size: int) -> Tensor:
    places = _MARGIN + (np.arange(PLACES) + 0.5) * SIDE / PLACES - 0.5
    distances = np.arange(size) * (_PADDED / size) - places[:, None]
    weights = np.exp(-(distances**2) / (2 * _SMOOTH**2))
    return torch.from_numpy((weights / weights.sum(axis=1, keepdims=True)).astype(np.float32))


@cache
def _wavelets(scale: int) -> Tensor:
    """Fourier transforms (directions, 32, 32) of the Morlet wavelets of one scale."""
    angles = (_directions() * np.pi) / DIRECTIONS
    filters = [np.fft.fft2(_morlet(_SPREAD * 2**scale, _FREQUENCY / 2**scale, angle)) for angle in angles]
    return torch.from_numpy(np.stack(filters).astype(np.complex64))


def _directions() -> NDArray[np.int64]:
    return DIRECTIONS // 2 - 1 - np.arange(DIRECTIONS)


def _morlet(spread: float, frequency: float, angle: float) -> NDArray[np.complex128]:
    """(32, 32), periodic: a wave under an envelope, less what makes its mean 0."""
    wave, envelope = _gabor(spread, frequency, angle), _gabor(spread, 0.0, angle)
    return wave - wave.sum() / envelope.sum() * envelope


def _gabor(spread: float, frequency: float, angle: float) -> NDArray[np.complex128]:
    slant = 4 / DIRECTIONS
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    curve = turn @ np.diag([1, slant**2]) @ turn.T / (2 * spread**2)
    # Five periods: what lies beyond has vanished.
    reach = np.arange(-2 * _PADDED, 3 * _PADDED)
    x, y = np.meshgrid(reach, reach, indexing="ij")
    envelope = curve[0, 0] * x**2 + 2 * curve[0, 1] * x * y + curve[1, 1] * y**2
    wave = np.exp(-envelope + 1j * frequency * (x * np.cos(angle) + y * np.sin(angle)))
    folded = wave.reshape(5, _PADDED, 5, _PADDED).sum(axis=(0, 2))
    return folded / (2 * np.pi * spread**2 / slant)
