"""The model of the task `features`: a frozen module, a bound on what it gives, and one trained layer."""

from __future__ import annotations

import hashlib
import json

import torch
from torch import Tensor, nn

from private_learning.tasks.task import TaskError


class OnFeatures(nn.Module):
    """(n, ...) to (n, outputs): `head` of the module's features, of L2 norm `bound` at most."""

    def __init__(self, module: nn.Module, features: int, bound: float, head: nn.Linear) -> None:
        super().__init__()
        self.module = module.requires_grad_(False).eval()
        self._features, self._bound = features, bound
        self.head = head

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.module(inputs)
        count = len(inputs)
        if not isinstance(features, Tensor) or features.shape[:1] != (count,):
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise TaskError(f"the module makes {shape} of {count} records: a tensor is expected, one row for each")
        if features.numel() != count * self._features:
            raise TaskError(
                f"the module makes {features[0].numel():,} numbers of each record, the study says {self._features:,}: "
                "correct the parameter features"
            )
        rows = features.reshape(count, self._features).double()
        norms = rows.square().sum(dim=1, keepdim=True).sqrt()
        return self.head((rows * (self._bound / norms.clamp(min=self._bound))).float())


def state_digest(module: nn.Module) -> str | None:
    """Return the SHA-256 (hex) of names, types, shapes and numbers of all parameters and buffers.

    None: there are none.
    """
    state = module.state_dict()
    if not state:
        return None
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data if tensor.numel() else b"")
    return digest.hexdigest()
