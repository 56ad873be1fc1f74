"""Low-rank adapters: a frozen layer with two small trained ones beside it (Hu et al. 2021, LoRA, section 4.1).

h = W₀ x + b₀ + B A x, with A of R rows drawn at random and B zero, so that the first model is the frozen one. The
factor α/R of the paper is 1. A convolution is a matrix over its patches: A is a convolution of the same kernel to R
channels, B one of 1 × 1. Both are layers whose gradients are known in closed form.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError

# Their own code reads the weights of the layers in them, and never calls them.
_READ_INSIDE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


class LowRank(nn.Module):
    """x -> base(x) + up(down(x)); `base` is not trained."""

    def __init__(self, base: nn.Linear | nn.Conv1d | nn.Conv2d, rank: int) -> None:
        super().__init__()
        self.base, place = base, {"device": base.weight.device, "dtype": base.weight.dtype}
        if isinstance(base, nn.Linear):
            self.down: nn.Module = nn.Linear(base.in_features, rank, bias=False, **place)
            self.up: nn.Module = nn.Linear(rank, base.out_features, bias=False, **place)
        else:
            kind = type(base)
            self.down = kind(
                base.in_channels,
                rank,
                base.kernel_size,  # pyright: ignore[reportArgumentType]
                base.stride,  # pyright: ignore[reportArgumentType]
                base.padding,  # pyright: ignore[reportArgumentType]
                base.dilation,  # pyright: ignore[reportArgumentType]
                bias=False,
                padding_mode=base.padding_mode,
                **place,
            )
            self.up = kind(rank, base.out_channels, 1, bias=False, **place)
        nn.init.zeros_(cast("Tensor", self.up.weight))
        base.requires_grad_(False)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.base(inputs) + self.up(self.down(inputs))

    def merged(self) -> nn.Module:
        """`base` with B A added to its weight, in place: the same function of its inputs, up to rounding."""
        down, up = cast("Tensor", self.down.weight), cast("Tensor", self.up.weight)
        with torch.no_grad():
            change = up.flatten(1).double() @ down.flatten(1).double()
            self.base.weight.copy_(self.base.weight.double() + change.view_as(self.base.weight))
        return self.base


def adapt(model: nn.Module, rank: int, head: str) -> None:
    """Put adapters beside every linear layer and convolution outside `head`, in place; everything else is frozen.

    Raises:
        ConfigurationError: the rank is above what a layer can have; no layer takes an adapter.
    """
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(within(name, head))
    found = {name: layer for name, layer in _adaptable(model).items() if not within(name, head)}
    if not found:
        raise ConfigurationError(
            "trainable lora: outside its head the task's model has no linear layer or convolution (of one group, and "
            "not inside a layer of attention) to adapt; say head, or patterns of names"
        )
    for name, layer in found.items():
        most = min(layer.weight.shape[0], layer.weight[0].numel())
        if rank > most:
            raise ConfigurationError(
                f"trainable lora:{rank}: layer {name!r} has a matrix of {layer.weight.shape[0]} × "
                f"{layer.weight[0].numel()}, whose rank is at most {most}: take lora:{most} or less"
            )
        above, _, last = name.rpartition(".")
        setattr(model.get_submodule(above), last, LowRank(layer, rank))


def merge(model: nn.Module) -> nn.Module:
    """The model without adapters: what they add is in the weights of their layers. In place, but for one at the top."""
    if isinstance(model, LowRank):
        return model.merged()
    for name, child in model.named_children():
        setattr(model, name, merge(child))
    return model


def _adaptable(model: nn.Module) -> dict[str, nn.Linear | nn.Conv1d | nn.Conv2d]:
    """Name -> layer, of exactly these types: a subclass may compute something else."""
    read = [f"{name}." if name else "" for name, module in model.named_modules() if isinstance(module, _READ_INSIDE)]
    found: dict[str, nn.Linear | nn.Conv1d | nn.Conv2d] = {}
    for name, module in model.named_modules():
        if type(module) not in (nn.Linear, nn.Conv1d, nn.Conv2d) or any(name.startswith(one) for one in read):
            continue
        layer = cast("nn.Linear | nn.Conv1d | nn.Conv2d", module)
        if isinstance(layer, nn.Linear) or layer.groups == 1:
            found[name] = layer
    return found


def within(name: str, module: str) -> bool:
    """Whether a parameter or module of this name belongs to the module; `` is the model itself."""
    return module in ("", name) or name.startswith(f"{module}.")
