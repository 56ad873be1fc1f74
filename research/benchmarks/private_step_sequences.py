"""Models of sequences for `research.benchmarks.private_step`: attention, bags of codes, a cell in a loop, a tied
table."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, CODES = 64, 4, 1000


class Attention(nn.Module):
    """Self-attention over numbers (batch, positions, 64), a mean and a last layer; `attends` is the module for it."""

    def __init__(self, attends: nn.Module) -> None:
        super().__init__()
        self.attention, self.head = attends, nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2)"""
        return self.head(self.attention(x, x, x)[0].mean(1))


def attention() -> nn.Module:
    """PyTorch's attention."""
    return Attention(nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)).eval()


def attention_of_opacus() -> nn.Module:
    """Opacus's own in its place."""
    from opacus.layers import DPMultiheadAttention

    return Attention(DPMultiheadAttention(WIDTH, HEADS, batch_first=True)).train()


class Encoder(nn.Module):
    """Codes, two encoder layers, a mean and a last layer; without dropout."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.table, self.encoder = nn.Embedding(CODES, WIDTH), nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2)"""
        return self.head(self.encoder(self.table(x)).mean(1))


def encoder() -> nn.Module:
    """As a study trains it."""
    return Encoder().eval()


def bag() -> nn.Module:
    return nn.Sequential(
        nn.EmbeddingBag(CODES, WIDTH, mode="mean"), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2)
    )


def fixed_norm() -> nn.Module:
    """A CNN with batch normalisation by stored statistics."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.BatchNorm2d(32),
        nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    ).eval()  # fmt: skip


class Cell(nn.Module):
    """A recurrent cell written by hand: two linear layers, called at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.onward = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2)"""
        state = x.new_zeros(len(x), WIDTH)
        for step in range(x.shape[1]):
            state = (self.inward(x[:, step]) + self.onward(state)).tanh()
        return self.head(state)


class Tied(nn.Module):
    """Codes to scores of codes, by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.body = nn.Embedding(CODES, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, CODES, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        """(batch, codes)"""
        return self.head(functional.relu(self.body(self.table(x))).mean(1))
