"""Invented handwriting: random strokes, each glyph written many times by a shaky hand. Public: drawn from a seed alone.

What separates one glyph from another, and not one way of writing it from the next, separates digits too: feature maps
are fitted to these images (`research.tables.discriminant`), so that no budget pays for them.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Floats = NDArray[np.float64]

SIDE = 28
# As in MNIST: what is written fills a square of this side, its centre of mass in the middle of the image.
_BOX, _MIDDLE = 17.0, 13.5
_STROKES, _POINTS = 3, 40
# A stroke begins where the last one ended, or elsewhere with this probability.
_JUMP = 0.4
# The hand: control points in units of half the box, radians, shear, and log of the two scales, as deviations.
_JITTER, _TURN, _SHEAR, _SCALE = 0.10, 0.20, 0.25, 0.15
_PENS = (0.65, 0.8, 0.95, 1.15)


def handwriting(glyphs: int, copies: int, seed: int) -> tuple[Images, Labels]:
    """(glyphs · copies, 28, 28) grey images and which glyph each one is.

    A glyph is one to three cubic curves; a copy moves its control points, turns, shears and scales it, and takes one
    of four pens.
    """
    draw = np.random.default_rng(seed)
    used = draw.integers(1, _STROKES + 1, glyphs)
    shape = _glyphs(glyphs, draw)
    written = np.arange(_STROKES)[None] < used[:, None]
    images = [_render(_curves(_by_hand(shape, draw), draw), written, draw) for _ in range(copies)]
    return np.concatenate(images), np.tile(np.arange(glyphs), copies)


def _glyphs(glyphs: int, draw: np.random.Generator) -> Floats:
    """Control points (glyphs, strokes, 4, 2) in [−1, 1]²."""
    control = np.zeros((glyphs, _STROKES, 4, 2))
    start = draw.uniform(-1, 1, (glyphs, 2))
    for stroke in range(_STROKES):
        jump = draw.random(glyphs) < (_JUMP if stroke else 0)
        start = np.where(jump[:, None], draw.uniform(-1, 1, (glyphs, 2)), start)
        control[:, stroke, 0] = start
        control[:, stroke, 1:] = draw.uniform(-1, 1, (glyphs, 3, 2))
        start = control[:, stroke, 3]
    return control


def _by_hand(control: Floats, draw: np.random.Generator) -> Floats:
    """Every control point moved; strokes that were joined stay joined."""
    moved = control + draw.normal(0, _JITTER, control.shape)
    for stroke in range(1, _STROKES):
        joined = (control[:, stroke, 0] == control[:, stroke - 1, 3]).all(axis=1)
        moved[joined, stroke, 0] = moved[joined, stroke - 1, 3]
    return moved


def _curves(control: Floats, draw: np.random.Generator) -> Floats:
    """Points (glyphs, strokes, points, 2) on the curves, turned, sheared and scaled."""
    t, glyphs = np.linspace(0, 1, _POINTS), len(control)
    basis = np.stack([(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3], axis=1)
    angle, lean = draw.normal(0, _TURN, glyphs), draw.normal(0, _SHEAR, glyphs)
    scale = np.exp(draw.normal(0, _SCALE, (glyphs, 2)))
    turn = np.stack([np.stack([np.cos(angle), -np.sin(angle)], 1), np.stack([np.sin(angle), np.cos(angle)], 1)], 1)
    shear = np.tile(np.eye(2), (glyphs, 1, 1))
    shear[:, 1, 0] = lean
    return np.einsum("tk,gskd,ged->gste", basis, control, turn @ shear * scale[:, None, :], optimize=True)


def _render(points: Floats, written: NDArray[np.bool_], draw: np.random.Generator) -> Images:
    """Ink of even density along the strokes that are written, blurred by one of the pens."""
    glyphs = len(points)
    points_written = np.where(written[:, :, None, None], points, np.nan)
    flat = points_written.reshape(glyphs, -1, 2)
    low, high = np.nanmin(flat, axis=1), np.nanmax(flat, axis=1)
    # A dot is not blown up to fill the box.
    span = np.maximum((high - low).max(axis=1), 0.3)[:, None, None]
    placed = np.nan_to_num((flat - low[:, None]) / span * _BOX)
    ink = _ink(placed.reshape(points.shape), written)
    centre = (placed * ink[..., None]).sum(axis=1) / ink.sum(axis=1)[:, None]
    grid = _splat(np.clip(placed - centre[:, None] + _MIDDLE, 0, SIDE - 1.001), ink)
    pages, pens = torch.from_numpy(grid).float()[:, None], draw.choice(len(_PENS), glyphs)
    offsets = torch.arange(-3, 4).float()
    for pen, width in enumerate(_PENS):
        line = torch.exp(-(offsets**2) / (2 * width**2))
        blur = torch.outer(line, line)[None, None] / line.sum() ** 2
        mine = torch.from_numpy(pens == pen)
        pages[mine] = nn.functional.conv2d(pages[mine], blur, padding=3) * (2.0 + 0.8 * pen)
    return pages[:, 0].clamp(max=1).mul(255).round().numpy().astype(np.uint8)


def _ink(points: Floats, written: NDArray[np.bool_]) -> Floats:
    """(glyphs, strokes · points): half the way to each neighbour, so that slow curves are not darker."""
    ways = np.linalg.norm(np.diff(points, axis=2), axis=-1) / 2
    ink = np.zeros(points.shape[:3])
    ink[:, :, 1:] += ways
    ink[:, :, :-1] += ways
    return np.where(written[:, :, None], ink, 0).reshape(len(points), -1)


def _splat(points: Floats, ink: Floats) -> Floats:
    """(glyphs, 28, 28): every point's ink on the four pixels around it, by bilinear weights."""
    glyphs, whole = len(points), np.floor(points).astype(np.int64)
    rest, first = points - whole, np.arange(glyphs)[:, None] * SIDE**2
    grid = np.zeros(glyphs * SIDE**2)
    for down in (0, 1):
        for right in (0, 1):
            weight = np.abs(1 - down - rest[..., 0]) * np.abs(1 - right - rest[..., 1])
            place = first + (whole[..., 0] + down) * SIDE + whole[..., 1] + right
            grid += np.bincount(place.ravel(), (ink * weight).ravel(), glyphs * SIDE**2)
    return grid.reshape(glyphs, SIDE, SIDE)
