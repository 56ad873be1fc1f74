"""The models of `research.benchmarks.private_step`: each with its records, its loss and what its peers need.

Another model is one more entry of WORKLOADS. Records are made up: times depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients.layers import cross_entropy
from research.benchmarks import private_step_sequences as sequences
from research.benchmarks.simulation_work import small_cnn

Records = Callable[[int], tuple[Tensor, Tensor]]
WHOLE_GRADIENTS = ("Opacus per-sample", "torch.func vmap")


@dataclass(frozen=True)
class StepWorkload:
    """One model and the batches it is measured on.

    build     a new model
    records   batch -> (inputs, targets), first axis the records
    batches   sizes
    loss      (outputs, targets) -> (batch,) losses
    peer      the same model as Opacus can take it (DPLSTM, DPMultiheadAttention); None: as it is
    without   methods of `private_step.METHODS` that cannot take this model
    whole     largest batch at which every record's whole gradient fits an ordinary machine
    """

    build: Callable[[], nn.Module]
    records: Records
    batches: tuple[int, ...] = (64,)
    loss: Callable[[Tensor, Tensor], Tensor] = cross_entropy
    peer: Callable[[], nn.Module] | None = None
    without: tuple[str, ...] = ()
    whole: int = 1 << 30

    def model_of(self, method: str) -> nn.Module:
        """A new model for one method."""
        return self.peer() if self.peer is not None and method.startswith("Opacus") else self.build()

    def takes(self, method: str, batch: int) -> bool:
        """Can this method take a batch of this size?"""
        return method not in self.without and (batch <= self.whole or method not in WHOLE_GRADIENTS)


def numbers(*shape: int, classes: int) -> Records:
    """Records of normal numbers, a class for each."""
    return lambda batch: (torch.randn(batch, *shape), torch.randint(0, classes, (batch,)))


def codes(vocabulary: int, length: int, classes: int) -> Records:
    """Sequences of codes, a class for each."""
    return lambda batch: (torch.randint(0, vocabulary, (batch, length)), torch.randint(0, classes, (batch,)))


def tf_cnn() -> nn.Module:
    """TensorFlow Privacy's tutorial network, 3.27 million parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 1024), nn.ReLU(), nn.Linear(1024, 10),
    )  # fmt: skip


def perceptron(*widths: int) -> Callable[[], nn.Module]:
    """Linear layers of these widths with ReLU between them."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise(widths):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return build


def signal_cnn() -> nn.Module:
    """Twelve leads of 1,000 samples: four convolutions with GroupNorm, 40 thousand parameters."""

    def block(before: int, after: int, width: int) -> list[nn.Module]:
        return [nn.Conv1d(before, after, width, 2, width // 2), nn.GroupNorm(8, after), nn.ReLU()]

    return nn.Sequential(
        *block(12, 32, 7), *block(32, 32, 5), *block(32, 64, 5), *block(64, 64, 5),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip


class ResidualBlock(nn.Module):
    """Two 3 × 3 convolutions with GroupNorm, and the input, or its projection, added (He et al. 2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(8, after), nn.GroupNorm(8, after)])
        keeps_shape = before == after and stride == 1
        self.short = nn.Identity() if keeps_shape else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, after, …)"""
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.short(x))


def residual(colours: int, widths: tuple[int, ...], blocks: int) -> Callable[[], nn.Module]:
    """A 3 × 3 convolution, then so many residual blocks of each width, halving the picture between widths."""

    def build() -> nn.Module:
        layers: list[nn.Module] = [nn.Conv2d(colours, widths[0], 3, 1, 1, bias=False), nn.GroupNorm(8, widths[0])]
        before = widths[0]
        for place, width in enumerate(widths):
            for block in range(blocks):
                layers.append(ResidualBlock(before, width, 2 if place and not block else 1))
                before = width
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))

    return build


class Sequences(nn.Module):
    """Codes, an embedding of 32, one recurrent layer of 64 units, a linear head on its last output."""

    def __init__(self, layer: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.codes, self.layer, self.head = nn.Embedding(1000, 32), layer(32, 64, batch_first=True), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 2) scores of (batch, 40) codes."""
        return self.head(self.layer(self.codes(x))[0][:, -1])


def recurrent(kind: str) -> StepWorkload:
    """LSTM, GRU or RNN; Opacus has its own of each. torch.func cannot vectorise the last two."""

    def peer() -> nn.Module:
        import opacus.layers

        return Sequences(getattr(opacus.layers, f"DP{kind}"))

    without = () if kind == "LSTM" else ("torch.func vmap",)
    return StepWorkload(lambda: Sequences(getattr(nn, kind)), codes(1000, 40, 2), peer=peer, without=without)


WORKLOADS: Mapping[str, StepWorkload] = {
    "TF CNN": StepWorkload(tf_cnn, numbers(1, 28, 28, classes=10), (64, 256, 600), whole=64),
    "small CNN": StepWorkload(small_cnn, numbers(1, 28, 28, classes=10), (64, 256, 600)),
    "ResNet-18 with GroupNorm, 32 x 32": StepWorkload(
        # 11.2 million parameters: whole gradients of 16 records are 0.7 GB.
        residual(3, (64, 128, 256, 512), 2), numbers(3, 32, 32, classes=10), (16,),
    ),
    "residual CNN 16-32-64 with GroupNorm": StepWorkload(residual(3, (16, 32, 64), 1), numbers(3, 32, 32, classes=10)),
    "ECG CNN, 12 x 1000": StepWorkload(signal_cnn, numbers(12, 1000, classes=5)),
    "MLP 784-256-128-10": StepWorkload(perceptron(784, 256, 128, 10), numbers(784, classes=10)),
    "MLP 784-512-10": StepWorkload(perceptron(784, 512, 10), numbers(784, classes=10)),
    "logistic regression, 13": StepWorkload(perceptron(13, 2), numbers(13, classes=2)),
    "logistic regression, 30": StepWorkload(perceptron(30, 2), numbers(30, classes=2)),
    "logistic regression, 784": StepWorkload(perceptron(784, 10), numbers(784, classes=10)),
    "last layer, 2048 to 5": StepWorkload(perceptron(2048, 5), numbers(2048, classes=5)),
    "attention, 40 x 64": StepWorkload(
        sequences.attention, numbers(40, 64, classes=2), peer=sequences.attention_of_opacus
    ),
    "transformer encoder, 2 layers, 40 x 64": StepWorkload(
        sequences.encoder, codes(1000, 40, 2), without=("Opacus ghost", "Opacus ghost + its noise", "Opacus per-sample")
    ),
    "embedding bag, 40 codes": StepWorkload(
        sequences.bag, codes(1000, 40, 2), without=("Opacus ghost", "Opacus ghost + its noise", "Opacus per-sample")
    ),
    "CNN with fixed BatchNorm, 32 x 32": StepWorkload(
        sequences.fixed_norm, numbers(3, 32, 32, classes=10),
        without=("Opacus ghost", "Opacus ghost + its noise", "Opacus per-sample"),
    ),
    "cell in a loop, 40 x 64": StepWorkload(
        sequences.Cell, numbers(40, 64, classes=2), without=("Opacus ghost", "Opacus ghost + its noise")
    ),
    "tied embedding, 40 codes": StepWorkload(
        sequences.Tied, codes(1000, 40, 1000), without=("Opacus ghost", "Opacus ghost + its noise", "Opacus per-sample")
    ),
    "LSTM": recurrent("LSTM"),
    "GRU": recurrent("GRU"),
    "RNN": recurrent("RNN"),
}  # fmt: skip
