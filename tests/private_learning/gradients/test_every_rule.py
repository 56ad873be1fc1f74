"""Every layer rule has a case beside one backward per record, so a new rule without one fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients.inspection import RULES
from private_learning.gradients.score_variance import ScoreVariance
from tests.private_learning.gradients.references import assert_exact

Build = Callable[[], nn.Module]
Shape = tuple[int, ...]


class FirstOutput(nn.Module):
    """A layer that returns a pair, and of it the first."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        outputs = self.layer(x, x, x) if isinstance(self.layer, nn.MultiheadAttention) else self.layer(x)
        return outputs[0] if isinstance(outputs, tuple) else outputs


# Layer -> how it is built, and the shape of a batch. Codes below 7 where the layer looks them up.
CASES: dict[type[nn.Module], tuple[Build, Shape]] = {
    nn.Linear: (lambda: nn.Linear(4, 3), (6, 4)),
    nn.Conv1d: (lambda: nn.Conv1d(2, 3, 3, padding=1), (6, 2, 5)),
    nn.Conv2d: (lambda: nn.Conv2d(2, 3, 3, stride=2), (6, 2, 5, 5)),
    nn.Embedding: (lambda: nn.Embedding(7, 3), (6, 4)),
    nn.EmbeddingBag: (lambda: nn.EmbeddingBag(7, 3, mode="mean"), (6, 4)),
    nn.LayerNorm: (lambda: nn.LayerNorm(4), (6, 4)),
    nn.GroupNorm: (lambda: nn.GroupNorm(2, 4), (6, 4, 5)),
    nn.InstanceNorm1d: (lambda: nn.InstanceNorm1d(3, affine=True), (6, 3, 5)),
    nn.InstanceNorm2d: (lambda: nn.InstanceNorm2d(3, affine=True), (6, 3, 4, 4)),
    nn.InstanceNorm3d: (lambda: nn.InstanceNorm3d(2, affine=True), (6, 2, 2, 3, 2)),
    nn.BatchNorm1d: (lambda: nn.BatchNorm1d(4).eval(), (6, 4)),
    nn.BatchNorm2d: (lambda: nn.BatchNorm2d(2).eval(), (6, 2, 3, 3)),
    nn.BatchNorm3d: (lambda: nn.BatchNorm3d(2).eval(), (6, 2, 2, 2, 2)),
    nn.MultiheadAttention: (lambda: nn.MultiheadAttention(4, 2, batch_first=True), (6, 3, 4)),
    nn.LSTM: (lambda: nn.LSTM(3, 4, batch_first=True), (6, 5, 3)),
    nn.GRU: (lambda: nn.GRU(3, 4, batch_first=True), (6, 5, 3)),
    nn.RNN: (lambda: nn.RNN(3, 4, batch_first=True), (6, 5, 3)),
    nn.LSTMCell: (lambda: nn.LSTMCell(3, 4), (6, 3)),
    nn.GRUCell: (lambda: nn.GRUCell(3, 4), (6, 3)),
    nn.RNNCell: (lambda: nn.RNNCell(3, 4), (6, 3)),
    ScoreVariance: (lambda: ScoreVariance(3, -1.0), (6, 3)),
}


def test_every_rule_has_a_case() -> None:
    assert set(CASES) == set(RULES)


@pytest.mark.slow_cases("GRU", "GRUCell", "LSTM", "LSTMCell", "MultiheadAttention", "RNN", "RNNCell")
@pytest.mark.parametrize("layer", CASES, ids=lambda layer: layer.__name__)
def test_its_gradients_are_those_of_one_backward_per_record(layer: type[nn.Module]) -> None:
    build, shape = CASES[layer]
    torch.manual_seed(3)
    model = FirstOutput(build()).double()
    looks_up = layer in (nn.Embedding, nn.EmbeddingBag)
    x = torch.randint(7, shape) if looks_up else torch.randn(*shape, dtype=torch.float64)
    assert_exact(model, x, torch.randn(shape[0], dtype=torch.float64))
