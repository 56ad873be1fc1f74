"""Parameters of losses of classifiers: weights of classes, and the focal loss."""

from __future__ import annotations

import pytest

from private_learning.tasks.losses import LARGEST_WEIGHT, ClassLossParameters, numbers_of
from private_learning.tasks.task import TaskError


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("1|2.5|1e3", (1.0, 2.5, 1000.0)), ("7", (7.0,)), ("1||2", ()), ("1|x", ()), ("1|nan", ()), ("inf|1", ())],
)
def test_numbers_stand_between_bars_or_there_are_none(text: str, numbers: tuple[float, ...]) -> None:
    assert numbers_of(text) == numbers


def test_the_cross_entropy_has_no_gamma_and_the_focal_loss_its_own() -> None:
    assert ClassLossParameters.read("mlp", {}).loss_settings("mlp", 3) == (0.0, ())
    assert ClassLossParameters.read("mlp", {"loss": "focal"}).loss_settings("mlp", 3) == (2.0, ())
    focal = ClassLossParameters.read("mlp", {"loss": "focal", "gamma": 1.5, "class-weights": "1|2|5"})
    assert focal.loss_settings("mlp", 3) == (1.5, (1.0, 2.0, 5.0))


@pytest.mark.parametrize("values", [{"gamma": 2.0}, {"loss": "hinge"}, {"loss": "focal", "gamma": 0.5}])
def test_a_loss_that_is_none_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(TaskError, match=r"gamma|loss"):
        ClassLossParameters.read("mlp", values)


@pytest.mark.parametrize("text", ["1|2", "1|2|3|4", "1|2|0", "1|2|-1", f"1|2|{2 * LARGEST_WEIGHT}", "1|2|x"])
def test_weights_are_one_positive_number_for_each_class(text: str) -> None:
    parameters = ClassLossParameters.read("mlp", {"class-weights": text})
    with pytest.raises(TaskError, match=r"task mlp: class-weights must be 3 numbers .*: 1\|1\|1"):
        parameters.loss_settings("mlp", 3)
