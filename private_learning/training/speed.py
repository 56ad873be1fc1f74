"""How much longer a model takes whose gradients are found record by record, measured where it will be trained."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from private_learning.gradients import PerRecordGradients
from private_learning.gradients.confirmation import TrialViews
from private_learning.gradients.generated import Shapes
from private_learning.gradients.inspection import gradients_of, trainable

# Records that it is measured on: a multiple of those that are generated.
MEASURED = 32
_REPETITIONS = 3


@dataclass(frozen=True)
class SlowPath:
    """The reason why there is no closed form, and the time of clipped gradients in times of plain ones."""

    reason: str
    factor: float

    def __str__(self) -> str:
        return (
            f"gradients of this model are found record by record ({self.reason}): measured here, a step takes "
            f"{self.factor:.1f} times as long as without privacy"
        )


def slow_path(gradients: PerRecordGradients, shapes: Shapes, views: TrialViews | None = None) -> SlowPath | None:
    """Return the measured slowness, without reading a record.

    None where layer-wise book-keeping is used, and where no generated target fits the loss.

    shapes, views: as of `PerRecordGradients.confirm`

    Raises:
        UnsupportedLayer, ValueError: as in training.
    """
    gradients.confirm(shapes, views=views)
    generated = gradients.generated(shapes, views)
    if gradients.method == "layerwise" or generated is None:
        return None
    inputs, targets = (values.repeat(MEASURED // len(values), *(1,) * (values.dim() - 1)) for values in generated)

    def plain() -> None:
        with torch.enable_grad():
            gradients_of(
                gradients.loss(gradients.model(inputs.clone()), targets.clone()).sum(), trainable(gradients.model)
            )

    slow, fast = _seconds(lambda: gradients.norms(inputs, targets)), _seconds(plain)
    return SlowPath(gradients.reason, slow / fast)


def _seconds(work: Callable[[], object]) -> float:
    """Return the least time of a few runs after a first one: other work of the machine only adds."""
    work()
    seconds: list[float] = []
    for _ in range(_REPETITIONS):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)
