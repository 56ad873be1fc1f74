"""The model, its training and its records, for both apps: drawn numbers, so that nothing is downloaded."""

from __future__ import annotations

import torch
from torch import nn

COLUMNS, PATIENTS = 12, 400


def net() -> nn.Module:
    """Return a new model."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(COLUMNS, 16), nn.ReLU(), nn.Linear(16, 1))


def load_data(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the inputs, shape (PATIENTS, COLUMNS), and the outcomes, shape (PATIENTS, 1), of one hospital."""
    draws = torch.Generator().manual_seed(1 + partition)
    inputs = torch.randn(PATIENTS, COLUMNS, generator=draws)
    chance = torch.sigmoid(2 * inputs[:, :3].sum(dim=1, keepdim=True))
    return inputs, (torch.rand(PATIENTS, 1, generator=draws) < chance).float()


def train(model: nn.Module, inputs: torch.Tensor, outcomes: torch.Tensor, epochs: int, rate: float) -> float:
    """Train in place, and return the last loss."""
    optimiser, loss = torch.optim.SGD(model.parameters(), lr=rate), torch.zeros(())
    for _ in range(epochs):
        optimiser.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), outcomes)
        loss.backward()
        optimiser.step()
    return float(loss.detach())


def accuracy(model: nn.Module, inputs: torch.Tensor, outcomes: torch.Tensor) -> float:
    """Return the share of outcomes that the model predicts."""
    with torch.no_grad():
        return float(((model(inputs) > 0) == (outcomes > 0.5)).float().mean())
