"""Trial of a model and a loss on generated records before round 1.

It finds out whether they keep records apart, and which records the methods can be tried on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from private_learning.gradients.errors import NotLayerwise, UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers, Make, Shapes, generator, inputs_of, targets_of
from private_learning.gradients.layerwise import Layerwise
from private_learning.gradients.loss_check import refuse_coupled, usable_targets
from private_learning.gradients.model_check import (
    RECORDS,
    EveryOutput,
    refuse_fitting,
    refuse_memory,
    refuse_mixing,
    repeatable,
    runs,
    unchanged_buffers,
    verify,
    weights_tried,
    widened,
)
from private_learning.gradients.passes import PassRequest, measured
from private_learning.gradients.per_record import PerRecord
from private_learning.gradients.reads import follows_values, gradients_follow_values
from private_learning.gradients.separate import Loss, each_tensor, tensors_in


class TrialViews(Protocol):
    """The tensors that a model receives in place of records."""

    def trial_views(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return (width, ...) and as many targets, of a few records."""
        ...


@dataclass(frozen=True, repr=False)
class Confirmed:
    """Generated records that the model and the loss take.

    inputs, targets: of several kinds, (records, ...). There may be no targets.
    remark: the part that could not be tried, or None.
    """

    model: nn.Module
    inputs: list[Tensor]
    targets: list[Tensor]
    remark: str | None

    def verify(self, engine: Layerwise) -> int:
        """Return how many numbers book-keeping holds per record. Raises NotLayerwise where it is not exact."""
        if follows_values(self.model, self.inputs[0]):
            raise NotLayerwise(
                "the model turns values of records into Python numbers or shapes, so that one record could decide the "
                "way of all"
            )
        every, numbers = Layerwise(self.model, EveryOutput()), 0
        none = torch.zeros(RECORDS, device=self.inputs[0].device)
        with closing(weights_tried(self.model)) as trials:
            for place, _ in enumerate(trials):
                numbers = max(numbers, verify(every, self.inputs[min(place, len(self.inputs) - 1)], none))
                # Once with the loss itself: it comes in through the outputs alone.
                for y in self.targets[: 1 if place == 0 else 0]:
                    numbers = max(numbers, verify(engine, self.inputs[0], y))
        with repeatable(none.device):
            follows = gradients_follow_values(every, self.inputs[0][:RECORDS], none)
        if follows:
            raise NotLayerwise(
                "the model's gradients follow from values of all records together, as that of torch.prod does, which "
                "looks for zeros: one record could decide the way of all"
            )
        return numbers

    def run(self, engine: PerRecord) -> None:
        """Raise what per-record gradients of two records raise."""
        per_record = PerRecord(self.model, engine.loss if self.targets else EveryOutput(), vectorised=engine.vectorised)
        y = self.targets[0] if self.targets else torch.zeros(RECORDS, device=self.inputs[0].device)
        x, y = self.inputs[0][:2].clone(), y[:2].clone()
        with repeatable(y.device), torch.no_grad():
            if per_record.vectorised:
                # Norms as well: what fails in a round counts as zero, and would not be noticed.
                measured(per_record, x, y, PassRequest())
            else:
                per_record.of_one(x[:1], y[:1])


def confirmed(
    model: nn.Module,
    loss: Loss,
    shapes: Shapes,
    examples: ExampleMakers,
    views: TrialViews | None,
    device: torch.device,
) -> Confirmed:
    """Try model and loss on generated records.

    Raises UnsupportedLayer: they let records reach each other, or the model takes no generated record.
    """
    with torch.no_grad(), repeatable(device), unchanged_buffers(model):
        inputs: list[Tensor] = []
        refuse_fitting(model, inputs, lambda module: _inputs(module, shapes, examples, views, device))
        shapes = _shapes_of_views(shapes, views)
        refuse_memory(model, inputs[0], inputs[-1] if len(inputs) > 1 else inputs[0].flip(0))
        finite = [outputs for outputs in _outputs(model, inputs) if _is_finite(outputs)]
        if not finite:
            return Confirmed(model, inputs, [], "the model's outputs of generated records are not finite")
        remark = refuse_coupled(loss, finite[0], shapes, examples)
        targets = [values.to(device) for values in usable_targets(loss, finite[0], shapes, examples)]
        if not targets and remark is None:
            _fail(loss, finite[0], shapes, examples)
    return Confirmed(model, inputs, targets, remark)


def _outputs(model: nn.Module, inputs: Sequence[Tensor]) -> list[Any]:
    outputs: list[Any] = []
    with closing(weights_tried(model)) as trials:
        for place, _ in enumerate(trials):
            for x in [*inputs, widened(inputs[0])] if place == 0 else inputs[:1]:
                refuse_mixing(model, x)
            outputs.append(each_tensor(_on_processor, model(inputs[0].clone())))
    return outputs


def _is_finite(outputs: Any) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in tensors_in(outputs))


def _fail(loss: Loss, outputs: Any, shapes: Shapes, examples: ExampleMakers) -> None:
    """Raise ValueError with what a built-in loss says of these outputs."""
    _, targets = next(targets_of(shapes, RECORDS, 2, examples))
    try:
        loss(outputs, targets)
    except (RuntimeError, IndexError, TypeError) as error:
        raise ValueError(f"the loss does not fit the model's outputs and the targets: {error}") from error


def _on_processor(value: Tensor) -> Tensor:
    # As wide as parameters are: bfloat16 would hide what is compared.
    return value.cpu() if value.dtype == torch.float64 or not value.is_floating_point() else value.float().cpu()


def _shapes_of_views(shapes: Shapes, views: TrialViews | None) -> Shapes:
    """Return the shapes that model and loss receive."""
    return shapes if views is None else Shapes.of(*views.trial_views(*_nobody(shapes)))


def _nobody(shapes: Shapes) -> tuple[Tensor, Tensor]:
    """Return (records, ...) inputs and targets of zeros."""
    x = torch.zeros((RECORDS, *shapes.inputs), dtype=shapes.inputs_dtype)
    return x, torch.zeros((RECORDS, *shapes.targets), dtype=shapes.targets_dtype)


def _inputs(
    model: nn.Module, shapes: Shapes, examples: ExampleMakers, views: TrialViews | None, device: torch.device
) -> Iterator[Tensor]:
    """Yield (records, ...) inputs of every kind that the model takes. Raises UnsupportedLayer where it takes none."""
    failed, accepted = None, 0
    task_inputs = [] if examples.inputs is None else _of_task(examples.inputs, shapes)
    for kind in task_inputs or inputs_of(shapes, RECORDS, model):
        x = (kind if views is None else views.trial_views(kind, _nobody(shapes)[1])[0]).to(device)
        error = runs(model, x)
        if error is None:
            accepted += 1
            yield x
        failed = failed or error
    if not accepted:
        source = "the task's example_inputs" if task_inputs else "any of several kinds of generated inputs"
        raise UnsupportedLayer(
            f"the model cannot be tried before the first round: it does not take {source} of shape "
            f"{tuple(shapes.inputs)} ({type(failed).__name__}: {failed}). Say in the task's example_inputs what inputs "
            "look like"
        ) from failed


def _of_task(make: Make, shapes: Shapes) -> list[Tensor]:
    """Return example inputs of the task, or none where records come in another shape, as views do.

    Raises UnsupportedLayer: the task's own code fails.
    """
    draw = generator()
    try:
        samples = [make(RECORDS, draw) for _ in range(2)]
    except Exception as error:
        raise UnsupportedLayer(
            f"the task's example_inputs could not be made: {type(error).__name__}: {error}"
        ) from error
    return [each.to(shapes.inputs_dtype) for each in samples if each.shape == (RECORDS, *shapes.inputs)]
