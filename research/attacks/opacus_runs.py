"""Runs of Opacus for `research.attacks.opacus`, in an environment of its own: `PYTHON -I opacus_runs.py REQUEST`.

REQUEST is a JSON file. For each coin a model is trained on `records` records, and on the canary where the coin says so,
with Opacus as its tutorial has it: a DataLoader with a batch size, `make_private`, `step`. The answer is the last line
of output, and the released mean gradients lie in the file that the request names.
"""

from __future__ import annotations

import json
import sys
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def run(request: dict[str, Any], inside: bool, seed: int) -> tuple[np.ndarray, float | None]:
    """Return (steps, features) released mean gradients, and ε as Opacus states it where it is asked for."""
    torch.manual_seed(seed)
    features, records = request["features"], request["records"]
    inputs = torch.zeros(records + inside, features)
    if inside:
        inputs[-1, 0] = request["length"]
    data = TensorDataset(inputs, torch.ones(len(inputs), 1))
    layer = nn.Linear(features, 1, bias=False)
    nn.init.zeros_(layer.weight)
    engine = PrivacyEngine()
    made: Any = engine.make_private(
        module=layer,
        optimizer=torch.optim.SGD(layer.parameters(), lr=request["learning_rate"]),
        data_loader=DataLoader(data, batch_size=request["batch_size"]),
        noise_multiplier=request["noise_multiplier"],
        max_grad_norm=request["clip_norm"],
    )
    model, optimiser, loader = made
    released: list[np.ndarray] = []
    while len(released) < request["steps"]:
        for x, y in loader:
            before = layer.weight.detach().clone()
            optimiser.zero_grad()
            nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
            optimiser.step()
            moved = (before - layer.weight.detach()) / request["learning_rate"]
            released.append(moved.flatten().double().numpy())
            if len(released) == request["steps"]:
                break
    epsilon = float(engine.get_epsilon(request["delta"])) if seed == 0 else None
    return np.array(released), epsilon


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    request = json.loads(Path(sys.argv[1]).read_text())
    results = [run(request, inside, seed) for seed, inside in enumerate(request["inside"])]
    np.save(request["out"], np.array([released for released, _ in results]))
    print(json.dumps({"opacus": version("opacus"), "torch": version("torch"), "epsilon": results[0][1]}))


if __name__ == "__main__":
    main()
