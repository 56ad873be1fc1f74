"""The loss of pixels, against sums over single pixels and autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from private_learning.gradients.pixels import PixelLoss


def test_the_loss_of_pixels_is_the_formula_pixel_by_pixel() -> None:
    draw = np.random.default_rng(3)
    scores, classes = draw.normal(size=(2, 3, 4, 5)), draw.integers(-1, 3, (2, 4, 5))
    weights, dice = (1.0, 2.0, 5.0), 0.7
    found = PixelLoss(weights, dice)(torch.tensor(scores), torch.tensor(classes)).numpy()
    for i in range(2):
        entropy, both, sums, count = 0.0, [0.0] * 3, [0.0] * 3, 0
        for row in range(4):
            for column in range(5):
                k = classes[i, row, column]
                if k < 0:
                    continue
                p = np.exp(scores[i, :, row, column]) / np.exp(scores[i, :, row, column]).sum()
                entropy, count = entropy - weights[k] * math.log(p[k]), count + 1
                both[k] += p[k]
                sums = [s + q + (c == k) for c, (s, q) in enumerate(zip(sums, p, strict=True))]
        overlap = np.mean([(2 * b + 1) / (s + 1) for b, s in zip(both, sums, strict=True)])
        assert found[i] == pytest.approx(entropy / count + dice * (1 - overlap), rel=1e-12)


@pytest.mark.parametrize("dice", [0.0, 0.7])
def test_a_record_s_gradient_is_that_of_its_loss_alone(dice: float) -> None:
    draw = torch.Generator().manual_seed(4)
    scores = torch.randn(3, 3, 4, 5, generator=draw, dtype=torch.float64).requires_grad_()
    classes = torch.randint(-1, 3, (3, 4, 5), generator=draw)
    loss = PixelLoss((1.0, 2.0, 5.0), dice)
    (together,) = torch.autograd.grad(loss(scores, classes).sum(), scores)
    for i in range(3):
        (alone,) = torch.autograd.grad(loss(scores[i : i + 1], classes[i : i + 1]).sum(), scores)
        torch.testing.assert_close(together[i], alone[i], rtol=1e-12, atol=1e-15)
    # Pixels without a label move nothing.
    assert not together.transpose(0, 1)[:, classes < 0].any()


def test_a_record_without_a_label_costs_nothing_but_its_empty_overlap() -> None:
    scores, classes = torch.randn(1, 3, 2, 2), torch.full((1, 2, 2), -1)
    assert PixelLoss()(scores, classes).tolist() == [0.0]
    # (2·0 + 1)/(0 + 1) for every class.
    assert PixelLoss((), 0.5)(scores, classes).tolist() == [0.0]
