"""Rules for the layers of a model: known, refused, or without a closed form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from private_learning.gradients.attention import AttentionRule
from private_learning.gradients.composite import Composite
from private_learning.gradients.convolution import ConvLayer
from private_learning.gradients.embedding_bag import Bag
from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.layers import EmbeddingLayer, FixedNorm, Layer, LinearLayer, NormalisedLayer
from private_learning.gradients.recurrent import RecurrentCell, RecurrentRule
from private_learning.gradients.score_variance import ScoreVariance, ScoreVarianceLayer

# Exact types: a subclass may compute something else with the same parameters.
RULES: dict[type[nn.Module], type[Layer] | type[Composite]] = {
    nn.Linear: LinearLayer,
    nn.Conv1d: ConvLayer,
    nn.Conv2d: ConvLayer,
    nn.Embedding: EmbeddingLayer,
    nn.LayerNorm: NormalisedLayer,
    nn.GroupNorm: NormalisedLayer,
    nn.InstanceNorm1d: NormalisedLayer,
    nn.InstanceNorm2d: NormalisedLayer,
    nn.InstanceNorm3d: NormalisedLayer,
    ScoreVariance: ScoreVarianceLayer,
    nn.BatchNorm1d: FixedNorm,
    nn.BatchNorm2d: FixedNorm,
    nn.BatchNorm3d: FixedNorm,
    nn.MultiheadAttention: AttentionRule,
    nn.EmbeddingBag: Bag,
    nn.LSTM: RecurrentRule,
    nn.GRU: RecurrentRule,
    nn.RNN: RecurrentRule,
    nn.LSTMCell: RecurrentCell,
    nn.GRUCell: RecurrentCell,
    nn.RNNCell: RecurrentCell,
}
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """Name -> parameter, each shared parameter once, under its first name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def checked_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return name -> trainable parameter.

    Raises:
        ValueError: there are none, or several types or devices.
        UnsupportedLayer: a type below float32.
    """
    parameters = trainable(model)
    if not parameters:
        raise ValueError("model has no trainable parameter")
    for name, parameter in parameters.items():
        if parameter.dtype in (torch.bfloat16, torch.float16):
            raise UnsupportedLayer(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}, in which a clipped gradient can "
                "be longer than the clip norm that is charged: keep the trainable parameters in float32 "
                "(model.float()), and let only the computation be in bfloat16 (--bfloat16, or torch.autocast)"
            )
    kinds = {(p.dtype, p.device) for p in parameters.values()}
    if len(kinds) > 1 or not next(iter(kinds))[0].is_floating_point:
        raise ValueError(f"model's trainable parameters must share one floating type and device, got {kinds}")
    return parameters


def gradients_of(loss: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return parameter name -> gradient, zeros where the loss does not depend on the parameter."""
    grads = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, grads, strict=True))


def _modules(model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Return every module once, with its name. Torch's own annotation leaves the type open."""
    return cast("Iterable[tuple[str, nn.Module]]", model.named_modules())


def risky_layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """(where, module) of the layers that may let records reach each other, depending on their mode."""
    # The one base that every batch and instance norm shares has no public name.
    types = (nn.modules.batchnorm._NormBase, nn.Embedding, nn.EmbeddingBag)  # pyright: ignore[reportPrivateUsage]
    return [(_label(name, module), module) for name, module in _modules(model) if isinstance(module, types)]


def _label(name: str, module: nn.Module) -> str:
    return f"{name or 'the model'} ({type(module).__name__})"


def refuse_cross_record(layers: Iterable[tuple[str, nn.Module]]) -> None:
    """Raise UnsupportedLayer for layers through which one record reaches another's gradient or a stored statistic."""
    for layer_name, module in layers:
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            if module.scale_grad_by_freq:
                raise UnsupportedLayer(f"{layer_name} scales by counts over the batch: set scale_grad_by_freq=False")
            if module.max_norm is not None:
                raise UnsupportedLayer(f"{layer_name} rewrites the rows it looks up: set max_norm=None")
        elif isinstance(module, INSTANCE_NORMS):
            if module.track_running_stats and module.training:
                raise UnsupportedLayer(f"{layer_name} stores raw statistics of the data: set track_running_stats=False")
        # Without running statistics batch norm uses the batch's own in eval mode too.
        elif module.training or not module.track_running_stats:
            raise UnsupportedLayer(
                f"{layer_name} mixes the records of a batch: use GroupNorm, LayerNorm or InstanceNorm, or keep a "
                "public pretrained BatchNorm in eval mode"
            )


def known_layers(model: nn.Module) -> list[Layer | Composite]:
    """Return the layers that own trainable parameters.

    Raises:
        NotLayerwise: one of them has no closed form here.
    """
    names = {id(p): name for name, p in trainable(model).items()}
    layers: list[Layer | Composite] = []
    covered: set[int] = set()
    for name, module in _modules(model):
        if id(module) in covered:
            continue
        rule = RULES.get(type(module))
        if rule is not None and issubclass(rule, Composite):
            covered.update(map(id, module.modules()))
            # Torch's own forward of packed sequences has shapes that follow the longest record.
            registered, needs_rule = _registered(module), rule.packs
        else:
            registered, needs_rule = _direct_parameters(module), False
        trainable_names = {key: names[id(p)] for key, p in registered.items() if id(p) in names}
        if trainable_names or needs_rule:
            label = _label(name, module)
            layers.append(_rule_for(label, module, rule, set(registered))(name, module, trainable_names))
    return layers


def _rule_for(
    label: str, module: nn.Module, rule: type[Layer] | type[Composite] | None, registered: set[str]
) -> type[Layer] | type[Composite]:
    """Return the rule. Raises NotLayerwise: there is none, or the module differs from its type."""
    if rule is None:
        raise NotLayerwise(f"{label} has no closed form here")
    if issubclass(rule, Composite):
        as_known = registered == rule.expected(module)
    else:
        as_known = registered <= {"weight", "bias"}
        if as_known and "weight" not in registered:
            raise NotLayerwise(f"{label} computes its weight from other parameters")
    if "forward" in vars(module) or not as_known:
        raise NotLayerwise(f"{label} has been re-parametrised or patched")
    return rule


def _direct_parameters(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return name -> parameter of the module itself. Unlike named_parameters() it lists those that were set to None."""
    return vars(module)["_parameters"]


def _registered(module: nn.Module) -> dict[str, nn.Parameter | None]:
    """Return name -> parameter of the module and its children, None included."""
    return {
        f"{name}.{key}" if name else key: parameter
        for name, child in _modules(module)
        for key, parameter in _direct_parameters(child).items()
    }
