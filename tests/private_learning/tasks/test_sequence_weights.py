"""First weights of models of sequences: names and shapes of the model, and the bounds of torch's own rules."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from private_learning.tasks import load
from private_learning.tasks.sequence_weights import drawn_sequences
from private_learning.tasks.sequences import CodeSequences
from private_learning.training.weights import weights_of

PARAMETERS = {"label": "ill", "length": 10, "embedding": 16, "events.drugs": "code=atc; time=day; codes=A|B|C|D"}


def task_of(**more: Any) -> CodeSequences:
    task = load("sequence", PARAMETERS | more)
    assert isinstance(task, CodeSequences)
    return task


@pytest.mark.parametrize(
    "more",
    [{"hidden": 20, "layers": 2}, {"model": "lstm", "column.age": "18..90"}, {"model": "transformer", "layers": 2}],
    ids=["gru", "lstm", "transformer"],
)
def test_names_shapes_and_types_are_the_model_s(more: dict[str, Any]) -> None:
    task = task_of(**more)
    drawn, made = drawn_sequences(task, np.random.default_rng(1)), weights_of(task.model())
    assert {name: (array.shape, array.dtype) for name, array in drawn.items()} == {
        name: (array.shape, array.dtype) for name, array in made.items()
    }
    assert not drawn["embed.weight"][0].any()


@pytest.mark.parametrize(("kind", "gates"), [("gru", 3), ("lstm", 4)])
def test_recurrent_weights_are_uniform_within_one_over_the_root_of_the_units(kind: str, gates: int) -> None:
    drawn = drawn_sequences(task_of(model=kind, hidden=100), np.random.default_rng(2))
    bound = 1 / math.sqrt(100)
    for name in ("units.weight_ih_l0", "units.weight_hh_l0", "units.bias_ih_l0"):
        assert drawn[name].shape[0] == gates * 100
        assert 0.97 * bound < np.abs(drawn[name]).max() <= bound
        # The variance of a uniform number in ±b is b²/3: of 300 and more within a quarter.
        assert drawn[name].var() == pytest.approx(bound**2 / 3, rel=0.25)


def test_attention_is_drawn_by_glorot_s_rule_and_its_constants_begin_at_zero() -> None:
    drawn = drawn_sequences(task_of(model="transformer", hidden=24), np.random.default_rng(3))
    weight = drawn["units.layers.0.self_attn.in_proj_weight"]
    # 16 numbers in, three maps of 16 out.
    bound = math.sqrt(6 / (16 + 3 * 16))
    assert 0.97 * bound < np.abs(weight).max() <= bound
    for name in ("self_attn.in_proj_bias", "self_attn.out_proj.bias", "norm1.bias", "norm2.bias"):
        assert not drawn[f"units.layers.0.{name}"].any()
    assert (drawn["units.layers.0.norm1.weight"] == 1).all()
