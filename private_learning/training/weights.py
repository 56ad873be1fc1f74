"""A model's trainable parameters as the arrays that travel, and back."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from private_learning.gradients.inspection import trainable
from study_protocol.study.bounds import MAX_WEIGHT
from study_protocol.wire.tensors import Array, Spec


def arrays_of(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Return name -> float32 array on the host, of its own memory."""
    # On the CPU NumPy shares the memory of the parameter, which the next step changes: hence the copy.
    return {name: tensor.detach().to("cpu", torch.float32).numpy().copy() for name, tensor in tensors.items()}


def weights_of(model: nn.Module) -> dict[str, Array]:
    """Return parameter name -> float32 array.

    Parameters that are not trained are part of the task and do not travel.
    """
    return arrays_of(trainable(model))


def spec_of_model(model: nn.Module) -> Spec:
    """Return names, shapes and types that a study of this model fixes."""
    return {name: (tuple(p.shape), "float32") for name, p in sorted(trainable(model).items())}


def weight_out_of_bounds(weights: Mapping[str, Array]) -> str | None:
    """Return the name of a parameter with NaN, or with a number beyond ±MAX_WEIGHT, or None."""
    # Written so that NaN does not pass.
    return next((name for name, array in weights.items() if array.size and not np.abs(array).max() <= MAX_WEIGHT), None)


def load_weights(model: nn.Module, weights: Mapping[str, Array]) -> None:
    """Put arrays of the model's own spec into it, in place."""
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, array in weights.items():
            parameters[name].copy_(torch.as_tensor(np.asarray(array, order="C")))
