"""A task's parameters: strict, closed, finite, and every mistake named at once."""

from __future__ import annotations

import pytest
from pydantic import Field, ValidationError

from private_learning.tasks import TaskError
from private_learning.tasks.task import TaskParameters


class Own(TaskParameters):
    width: int = Field(ge=1)
    scale: float = 1.0


def test_what_is_right_is_read_and_stays_as_it_is() -> None:
    read = Own.read("own", {"width": 3})
    assert (read.width, read.scale) == (3, 1.0)
    with pytest.raises(ValidationError, match="frozen"):
        read.width = 4  # type: ignore[misc]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({}, ["width"]),
        ({"width": "3"}, ["width"]),
        ({"width": True}, ["width"]),
        ({"width": 3, "scale": float("nan")}, ["scale"]),
        ({"width": 3, "scale": float("inf")}, ["scale"]),
        ({"width": 0, "depth": 2, "scale": "x"}, ["width", "depth", "scale"]),
    ],
    ids=["missing", "text", "truth value", "nan", "infinity", "three at once"],
)
def test_every_wrong_parameter_is_named_with_its_task(values: dict[str, object], names: list[str]) -> None:
    with pytest.raises(TaskError, match="task own: ") as caught:
        Own.read("own", values)
    assert all(f"{name}: " in str(caught.value) for name in names)
