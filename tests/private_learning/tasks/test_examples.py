"""Example parameters: every built-in task has some, and takes them."""

from __future__ import annotations

import pytest

from private_learning.tasks import load
from private_learning.tasks.examples import EXAMPLES
from private_learning.tasks.registry import BUILT_IN
from tests.factories.made_up import made_up


def test_every_built_in_task_has_an_example_and_no_other_task() -> None:
    assert set(EXAMPLES) == set(BUILT_IN)


@pytest.mark.parametrize("name", EXAMPLES)
def test_records_made_for_the_example_go_through_its_model_and_loss(name: str) -> None:
    task = load(name, EXAMPLES[name])
    data = task.dataset(made_up(task, 6))
    losses = task.loss(task.model().eval()(data.inputs), data.targets)
    assert losses.shape == (6,)
    assert bool(losses.isfinite().all())
