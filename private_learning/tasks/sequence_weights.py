"""First weights of models of sequences, as torch draws them but with numpy."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from private_learning.tasks.sequences import CodeSequences

_GATES = {"gru": 3, "lstm": 4}


def drawn_sequences(task: CodeSequences, random: np.random.Generator) -> dict[str, Array]:
    """Return parameter name -> float32 array, as in a new model of the task."""
    p = task.parameters
    weights = {"embed.weight": _normal((task.tokens, p.embedding), random)}
    # The row of no event stays zero: no gradient reaches it.
    weights["embed.weight"][0] = 0.0
    if p.model == "transformer":
        weights |= _encoder(task, random)
        state = p.embedding
    else:
        weights |= _recurrent(task, random)
        state = p.hidden
    return weights | _linear("head", state + task.features, task.outputs, random)


def _recurrent(task: CodeSequences, random: np.random.Generator) -> dict[str, Array]:
    p, bound = task.parameters, 1 / math.sqrt(task.parameters.hidden)
    rows, weights = _GATES[p.model] * p.hidden, dict[str, Array]()
    for layer in range(p.layers):
        wide = p.hidden if layer else p.embedding
        shapes = {"weight_ih": (rows, wide), "weight_hh": (rows, p.hidden), "bias_ih": (rows,), "bias_hh": (rows,)}
        weights |= {f"units.{kind}_l{layer}": _even(shape, bound, random) for kind, shape in shapes.items()}
    return weights


def _encoder(task: CodeSequences, random: np.random.Generator) -> dict[str, Array]:
    p = task.parameters
    wide = p.embedding
    weights = {"places.weight": _normal((p.length, wide), random)}
    for layer in range(p.layers):
        at = f"units.layers.{layer}"
        # Glorot and Bengio 2010, over the three maps together.
        weights[f"{at}.self_attn.in_proj_weight"] = _even((3 * wide, wide), math.sqrt(6 / (4 * wide)), random)
        weights[f"{at}.self_attn.in_proj_bias"] = np.zeros(3 * wide, np.float32)
        weights |= _linear(f"{at}.self_attn.out_proj", wide, wide, random)
        weights[f"{at}.self_attn.out_proj.bias"] = np.zeros(wide, np.float32)
        weights |= _linear(f"{at}.linear1", wide, p.hidden, random) | _linear(f"{at}.linear2", p.hidden, wide, random)
        for norm in ("norm1", "norm2"):
            weights[f"{at}.{norm}.weight"] = np.ones(wide, np.float32)
            weights[f"{at}.{norm}.bias"] = np.zeros(wide, np.float32)
    return weights


def _linear(name: str, wide: int, out: int, random: np.random.Generator) -> dict[str, Array]:
    bound = 1 / math.sqrt(wide)
    return {f"{name}.weight": _even((out, wide), bound, random), f"{name}.bias": _even((out,), bound, random)}


def _even(shape: tuple[int, ...], bound: float, random: np.random.Generator) -> Array:
    return random.uniform(-bound, bound, shape).astype(np.float32)


def _normal(shape: tuple[int, ...], random: np.random.Generator) -> Array:
    return random.standard_normal(shape).astype(np.float32)
