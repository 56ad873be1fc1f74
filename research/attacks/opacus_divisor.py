"""How one record shows in the divisor of an Opacus run: python -m research.attacks.opacus_divisor [--runs N].

The audit pair of meta-pytorch/opacus#819. Opacus divides a noised sum by int(records / batches), and the batches are
as many as the data loader has. With batches of 16, 320 records give 20 batches and a divisor of 16. 321 records give 21
batches and a divisor of 15. So the noise on the released update has another deviation with the record than without it,
which an update of many numbers shows. The accountant counts the sum, and not its divisor.

An attacker who knows the 320 records reads the length of one update, and says whether there was another record.

accuracy  of the attacker, over runs of both kinds, half of each
stated    ε of one step by Opacus's own accountant, at δ = 1e-5
at_least  a lower bound of ε at that δ from the attacker's errors, Clopper–Pearson at 95 % in both directions together
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from typing import Any

import torch
from opacus import PrivacyEngine
from scipy import stats
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

RECORDS, BATCH, DELTA, RATE = 320, 16, 1e-5, 1.0


class _Vector(nn.Module):
    """A linear model with one output, so that an update has as many numbers as a record."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = nn.Linear(size, 1, bias=False)
        nn.init.zeros_(self.layer.weight)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs)


def one_step(records: int, size: int, noise: float) -> tuple[Tensor, int, float]:
    """Return the update of one step of Opacus on records of zeros, its divisor, and ε that Opacus states."""
    data = TensorDataset(torch.zeros(records, size), torch.zeros(records, 1))
    model: Any = _Vector(size)
    engine = PrivacyEngine(accountant="rdp")
    optimiser: Any = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimiser, loader = engine.make_private(
        module=model,
        optimizer=optimiser,
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=noise,
        max_grad_norm=1.0,
    )
    inputs, outcomes = next(iter(loader))
    optimiser.zero_grad()
    nn.functional.mse_loss(model(inputs), outcomes).backward()
    optimiser.step()
    weight = model._module.layer.weight.detach()
    return weight.flatten() / RATE, int(optimiser.expected_batch_size), float(engine.get_epsilon(DELTA))


def audit(size: int, noise: float, runs: int, seed: int) -> dict[str, float]:
    """Return how well one update's length tells the two sets of records apart."""
    torch.manual_seed(seed)
    # Between the two deviations, where both densities of the squared length are equal, nearly.
    threshold = noise * math.sqrt(size) / math.sqrt(BATCH * (BATCH - 1))
    stated, wrong = 0.0, [0, 0]
    for _ in range(runs // 2):
        for extra in (0, 1):
            update, _, stated = one_step(RECORDS + extra, size, noise)
            # Without the record the divisor is larger, and the update shorter.
            wrong[extra] += (float(update.norm()) > threshold) != bool(extra)
    half = runs // 2
    upper = [float(stats.beta.ppf(0.975, errors + 1, max(half - errors, 1))) for errors in wrong]
    # (ε, δ)-DP: 1 − δ ≤ e^ε · false alarms + misses, and the same with the two exchanged.
    at_least = max(math.log(max(1 - DELTA - upper[a], 1e-12) / upper[1 - a]) for a in (0, 1))
    return {"accuracy": 1 - sum(wrong) / (2 * half), "stated": stated, "at_least": max(0.0, at_least)}


def main() -> None:
    """Print the audit for updates of several lengths."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--runs", type=int, default=200)
    runs = arguments.parse_args().runs
    warnings.simplefilter("ignore")
    for size in (10, 1_000, 10_000):
        print(json.dumps({"numbers": size, "runs": runs, **audit(size, noise=4.0, runs=runs, seed=1)}))


if __name__ == "__main__":
    main()
