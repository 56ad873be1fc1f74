"""The choice of a method: JSON and back, and shapes in words."""

from __future__ import annotations

import json

import pytest
import torch

from private_learning.gradients.choice import GradientChoice, shapes_in_words
from private_learning.gradients.generated import Shapes


@pytest.mark.parametrize("together", [None, True, False])
def test_a_choice_survives_json(together: bool | None) -> None:
    choice = GradientChoice("vmap", 64, together, "(3,) torch.float32 -> () torch.int64", "Conv4d is not known")
    assert GradientChoice.from_dict(json.loads(json.dumps(choice.to_dict()))) == choice


def test_what_is_no_choice_is_refused() -> None:
    body = GradientChoice("vmap", 64, None, "", "").to_dict()
    for wrong in (body | {"colour": 1}, {name: value for name, value in body.items() if name != "method"}):
        with pytest.raises(TypeError):
            GradientChoice.from_dict(wrong)


def test_shapes_read_as_people_write_them() -> None:
    image = Shapes(torch.Size([3, 32, 32]), torch.float32, torch.Size([]), torch.int64)
    assert shapes_in_words(image) == "(3, 32, 32) torch.float32 -> () torch.int64"
    row = Shapes(torch.Size([5]), torch.float64, torch.Size([2]), torch.float32)
    assert shapes_in_words(row) == "(5,) torch.float64 -> (2,) torch.float32"
