"""Where a part of a layer's parameters is trained, norms and sums are those of this part: against autograd alone."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.inspection import trainable


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.layer(inputs).mean(1))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(8, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.cell(inputs)[0][:, -1])


def _images() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4)),
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(128, 3),
    )


MODELS = {"attention": _Attention, "recurrent": _Recurrent, "images": _images}
PARTS = {
    "biases": ["*bias*"],
    "weights": ["*weight*"],
    "last layer": ["last.*", "5.*"],
    "first layer's weight": ["layer.self_attn.in_proj_weight", "cell.weight_hh_l0", "1.weight"],
    "normalisation": ["*norm1*", "cell.bias_ih_l0", "2.*"],
}


@pytest.mark.quick(
    "attention-last layer",
    "attention-weights",
    "images-biases",
    "images-last layer",
    "images-weights",
    "recurrent-last layer",
    "recurrent-normalisation",
)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", MODELS)
def test_a_trained_part_has_the_norms_and_sums_of_one_backward_for_each_record(name: str, part: str) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().double().eval()
    inputs, targets = torch.randn(7, 4, 8, dtype=torch.float64), torch.randint(0, 3, (7,))
    for which, p in model.named_parameters():
        p.requires_grad_(any(fnmatchcase(which, pattern) for pattern in PARTS[part]))
    parameters = trainable(model)
    assert 0 < len(parameters) < len([*model.parameters()])
    loss = nn.CrossEntropyLoss(reduction="none")
    norms: list[Tensor] = []
    total = {which: torch.zeros_like(p) for which, p in parameters.items()}
    for one in range(len(inputs)):
        value = loss(model(inputs[one : one + 1]), targets[one : one + 1]).sum()
        found = dict(zip(parameters, torch.autograd.grad(value, [*parameters.values()]), strict=True))
        norms.append(torch.cat([g.flatten() for g in found.values()]).norm())
        for which, gradient in found.items():
            total[which] += gradient * min(1.0, 0.1 / float(norms[-1]))
    gradients = PerRecordGradients(model, loss)
    torch.testing.assert_close(gradients.norms(inputs, targets).double(), torch.stack(norms), rtol=1e-6, atol=1e-9)
    summed = gradients.clipped_sum(inputs, targets, clip_norm=0.1).gradients
    assert summed.keys() == total.keys()
    for which, gradient in summed.items():
        torch.testing.assert_close(gradient.double(), total[which], rtol=1e-5, atol=1e-7)
