"""A model's trainable parameters as the float32 arrays that travel."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from client_sdk.protocol.wire.tensors import Array, Spec


def weights_of(model: nn.Module) -> dict[str, Array]:
    """Parameter name -> float32 array. Parameters that are not trained are part of the task and do not travel."""
    return {
        name: parameter.detach().to("cpu", torch.float32).numpy().copy()
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }


def spec_of_model(model: nn.Module) -> Spec:
    """Names, shapes and types that a study of this model fixes."""
    return {n: (tuple(p.shape), "float32") for n, p in sorted(model.named_parameters()) if p.requires_grad}


def load_weights(model: nn.Module, weights: Mapping[str, Array]) -> None:
    """Put arrays of the model's own spec into it, in place."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, array in weights.items():
            parameters[name].copy_(torch.as_tensor(np.ascontiguousarray(array)))
