"""Low-rank adapters: a frozen layer with two small trained ones beside it (Hu et al. 2021, LoRA, section 4.1).

h = W₀ x + b₀ + B A x, with A of R rows drawn at random and B zero, so that the first model is the frozen one. The
factor α/R of the paper is 1. A convolution is a matrix over its patches. A is then a convolution of the same kernel to
R channels, B one of 1 × 1. Both are layers whose gradients are known in closed form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from private_learning.errors import ConfigurationError

# Their own code reads the weights of the layers in them, and never calls them.
_READ_INSIDE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class LowRank(nn.Module):
    """x -> base(x) + up(down(x)), in which `base` is not trained."""

    def __init__(self, base: nn.Linear | nn.Conv1d | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.base = base
        self.down, self.up = _linear(base, rank) if isinstance(base, nn.Linear) else _convolutions(base, rank)
        self.down.to(base.weight)
        self.up.to(base.weight)
        nn.init.zeros_(self.up.weight)
        base.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base(inputs) + self.up(self.down(inputs))

    def merged(self) -> nn.Module:
        """Return `base` with B A added to its weight, in place: the same function of its inputs, up to rounding."""
        with torch.no_grad():
            change = self.up.weight.flatten(1).double() @ self.down.weight.flatten(1).double()
            self.base.weight.copy_(self.base.weight.double() + change.view_as(self.base.weight))
        return self.base


def _linear(base: nn.Linear, rank: int) -> tuple[nn.Linear, nn.Linear]:
    return nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)


def _convolutions(base: nn.Conv1d | nn.Conv2d, rank: int) -> tuple[nn.Conv1d | nn.Conv2d, nn.Conv1d | nn.Conv2d]:
    # Of one class, whose arguments have the shapes of its own attributes.
    kind: Any = type(base)
    places = (base.kernel_size, base.stride, base.padding, base.dilation)
    down = kind(base.in_channels, rank, *places, bias=False, padding_mode=base.padding_mode)
    return down, kind(rank, base.out_channels, 1, bias=False)


def adapt(model: nn.Module, rank: int, head: str) -> None:
    """Put adapters beside every linear layer and convolution outside `head`, in place, and freeze all else.

    Raises:
        ConfigurationError: the rank is above the maximum of a layer, or no layer takes an adapter.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and within(name, head))
    layers = {name: layer for name, layer in _adaptable(model).items() if not within(name, head)}
    if not layers:
        raise ConfigurationError(
            "trainable lora: outside its head the task's model has no linear layer or convolution (of one group, and "
            "not inside a layer of attention) to adapt: say head, or patterns of names"
        )
    for name, layer in layers.items():
        max_rank = min(layer.weight.shape[0], layer.weight[0].numel())
        if rank > max_rank:
            raise ConfigurationError(
                f"trainable lora:{rank}: layer {name!r} has a matrix of {layer.weight.shape[0]} × "
                f"{layer.weight[0].numel()}, whose rank is at most {max_rank}: take lora:{max_rank} or less"
            )
        above, _, last = name.rpartition(".")
        setattr(model.get_submodule(above), last, LowRank(layer, rank))


def merge(model: nn.Module) -> nn.Module:
    """Return the model without adapters, whose sum is in the weights of their layers.

    In place, but for one at the top.
    """
    if isinstance(model, LowRank):
        return model.merged()
    for name, child in model.named_children():
        setattr(model, name, merge(child))
    return model


def _adaptable(model: nn.Module) -> dict[str, nn.Linear | nn.Conv1d | nn.Conv2d]:
    """Return name -> layer, of exactly these types: a subclass may compute something else."""
    read = [f"{name}." if name else "" for name, module in modules_of(model) if isinstance(module, _READ_INSIDE)]
    layers: dict[str, nn.Linear | nn.Conv1d | nn.Conv2d] = {}
    for name, module in modules_of(model):
        if type(module) not in (nn.Linear, nn.Conv1d, nn.Conv2d) or any(name.startswith(prefix) for prefix in read):
            continue
        layer = cast("nn.Linear | nn.Conv1d | nn.Conv2d", module)
        if isinstance(layer, nn.Linear) or layer.groups == 1:
            layers[name] = layer
    return layers


def modules_of(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Return every module once, with its name. Torch's own annotation leaves the type open."""
    return cast("Iterable[tuple[str, nn.Module]]", model.named_modules())


def within(name: str, module: str) -> bool:
    """Return whether a parameter or module of this name belongs to the module. An empty name is the model itself."""
    return module in ("", name) or name.startswith(f"{module}.")
