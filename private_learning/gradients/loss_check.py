"""Before round 1 a loss of a user's own is compared with itself: batches against single rows, on generated records.

By construction (`private_learning.gradients.separate`) such a loss sees one record at a time, so that no mistake in it
can move another record's gradient. This comparison finds the mistake and says so.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from private_learning.gradients.errors import UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers, Shapes, max_records, outputs_like, targets_of
from private_learning.gradients.losses import is_built_in
from private_learning.gradients.random_draws import call_and_watch
from private_learning.gradients.separate import Loss, NotOneNumber, Separated, each_tensor, of_rows, tensors_in
from private_learning.gradients.state import changed, kept_of_first_call, state_of

# Records of a comparison, and the batches that are made of the first of them.
_RECORDS, _SIZES, _OFTEN, _LARGE_BATCH = 8, (2, 3, 5), 6, 130
_CURE = (
    "The loss must be a function of one output and one target: take pos_weight, class weights, counts or "
    "means from the study's parameters, where they are public, and not from the batch"
)


@dataclass(frozen=True, repr=False)
class _Trial:
    """kind: what the targets are. outputs, targets: of as many records, on the processor."""

    kind: str
    outputs: Any
    targets: Tensor

    def first(self, count: int) -> _Trial:
        """The first records of it."""
        return _Trial(self.kind, each_tensor(lambda value: value[:count], self.outputs), self.targets[:count])


@dataclass(frozen=True, repr=False)
class _Values:
    """Losses and the gradients of a sum of them in the outputs, each with the records along the first axis."""

    losses: Tensor
    gradients: Sequence[Tensor]

    @property
    def finite(self) -> bool:
        return all(bool(torch.isfinite(value).all()) for value in (self.losses, *self.gradients))


def usable_targets(loss: Loss, outputs: Any, shapes: Shapes, examples: ExampleMakers) -> list[Tensor]:
    """Return (records, ...) targets of the kinds for which the loss of these outputs is finite.

    outputs: of the model, on the processor, with the records along the first axis.
    """
    count = len(tensors_in(outputs)[0])
    kinds = targets_of(shapes, count, _classes(outputs), examples)
    separate = loss if is_built_in(loss) else Separated(_on_processor(loss))
    values = ((targets, _values(separate, _Trial("", outputs, targets))) for _, targets in kinds)
    return [targets for targets, trial_values in values if trial_values is not None and trial_values.finite]


def refuse_coupled(loss: Loss, outputs: Any, shapes: Shapes, examples: ExampleMakers) -> str | None:
    """Compare the loss of batches with that of single rows, in values and in gradients.

    outputs: as of `usable_targets`. Other outputs are made like them.
    Returns None, or the reason why no comparison was possible.

    Raises:
        UnsupportedLayer: the loss looks at other records, remembers earlier calls, draws random numbers, or cannot be
            computed for one record by itself.
        NotOneNumber: the loss of one record is not one number.
    """
    written, axes = of_rows(loss)
    if is_built_in(written):
        return None
    for _ in range(axes):
        outputs = each_tensor(lambda value: value.flatten(0, 1), outputs)
    host_loss = _on_processor(written)
    row_size = sum(value[0].numel() for value in tensors_in(outputs))
    count = max_records(row_size, _RECORDS)
    trials = list(_trials(outputs, count, shapes, examples, axes))
    _refuse_memory(host_loss, trials)
    separate, compared = Separated(host_loss), False
    for place, trial in enumerate(trials):
        # All of it every time, and its first records now and then.
        sizes = [size for size in _SIZES if size < count] if place % _OFTEN == 0 else []
        compared |= _compare(host_loss, separate, trial, [*sizes, count])
    if not compared:
        return (
            "the loss takes none of the generated targets, so that it was not compared with itself, and runs on single "
            "records. Say in the task's example_targets what targets look like"
        )
    large_batch = max_records(row_size, _LARGE_BATCH)
    for trial in islice(_trials(outputs, large_batch, shapes, examples, axes), 0, None, 5):
        _compare(host_loss, separate, trial, [large_batch])
    return None


def _trials(outputs: Any, count: int, shapes: Shapes, examples: ExampleMakers, axes: int) -> Iterator[_Trial]:
    """Outputs and targets of every kind with every other."""
    repeated = each_tensor(
        lambda value: value.repeat(-(-count // len(value)), *(1,) * (value.dim() - 1))[:count], outputs
    )
    kinds = (
        list(outputs_like(repeated)) if isinstance(repeated, Tensor) and repeated.is_floating_point() else [repeated]
    )
    for kind, targets in targets_of(shapes, count, _classes(outputs), examples, axes):
        yield from (_Trial(kind, values, targets) for values in kinds)


def _classes(outputs: Any) -> int:
    """How many numbers a class can have: the width of the outputs, or two where it is 1."""
    first = tensors_in(outputs)[0]
    return max(2, first.shape[1] if first.dim() > 1 else 2)


def _on_processor(loss: Loss) -> Loss:
    if not isinstance(loss, nn.Module):
        return loss
    values = (*loss.parameters(), *loss.buffers())
    return copy.deepcopy(loss).cpu() if any(value.device.type != "cpu" for value in values) else loss


def _refuse_memory(loss: Loss, trials: Sequence[_Trial]) -> None:
    """Raise UnsupportedLayer where a call draws random numbers or changes what the loss can reach."""
    usable: list[_Trial] = []
    place_of_cache = kept_of_first_call(
        loss,
        lambda loss_copy: usable.extend(_usable(loss_copy, trials)),
        # Other records, and of fewer kinds.
        lambda loss_copy: [_values(loss_copy, trial) for trial in reversed(trials[: len(trials) // 2])],
    )
    if place_of_cache is not None:
        raise UnsupportedLayer(
            f"the loss keeps something of the records that it is called with first: {place_of_cache!r}. {_CURE}"
        )
    usable = usable or _usable(loss, [trial.first(1) for trial in trials])
    # A first call may fill a cache by shapes, which was done above. Later calls may not change any state.
    before = state_of(loss)
    _, random = call_and_watch(lambda: [_values(loss, trial) for trial in usable])
    if random:
        raise UnsupportedLayer(
            "the loss draws random numbers: a record's gradient would be another one each time that it is computed. "
            "Leave dropout, mixing and noise out of the loss"
        )
    place = changed(before, state_of(loss))
    if place is not None:
        raise UnsupportedLayer(
            f"the loss remembers earlier calls: {place!r} changed when it was called, and so a record's loss can "
            f"depend on other records. {_CURE}"
        )


def _usable(loss: Loss, trials: Sequence[_Trial]) -> list[_Trial]:
    return [trial for trial in trials if _values(loss, trial) is not None]


def _compare(loss: Loss, separate: Separated, trial: _Trial, sizes: Sequence[int]) -> bool:
    """Return whether both could be computed. Raises as `refuse_coupled`."""
    single = _values(separate, trial)
    if single is None or not single.finite:
        together = _values(loss, trial)
        if together is not None and together.finite:
            raise UnsupportedLayer(
                f"the loss cannot be computed for one record by itself, only for a batch ({trial.kind}). {_CURE}. "
                "If only the shapes differ, write squeeze(-1) instead of squeeze()"
            )
        return False
    compared = False
    for size in sizes:
        together = _values(loss, trial.first(size))
        if together is None:
            continue
        compared = True
        if not _agree(single, together, size):
            raise UnsupportedLayer(
                f"a record's loss changes with the other records of its batch ({trial.kind}, {size} records). {_CURE}"
            )
    return compared


def _values(loss: Loss, trial: _Trial) -> _Values | None:
    """Return losses and gradients, or None where the loss raises.

    Raises NotOneNumber where it is called with single rows and gives another shape.
    """
    leaves = each_tensor(
        lambda value: value.detach().clone().requires_grad_() if value.is_floating_point() else value, trial.outputs
    )
    inputs = [value for value in tensors_in(leaves) if value.requires_grad]
    try:
        with torch.enable_grad():
            # Copies: a loss may change what it is given in place.
            losses = loss(each_tensor(lambda value: value.clone(), leaves), trial.targets.clone())
            if losses.shape != trial.targets.shape[:1]:
                return None
            if not losses.requires_grad:
                return _Values(losses.detach(), [torch.zeros_like(value) for value in inputs])
            # Each record with a weight of its own: in a plain sum, what records do to each other may cancel.
            weights = 1 + 0.1 * torch.arange(len(losses), dtype=losses.dtype)
            total = (weights * losses).sum()
            gradients = torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True)
    except NotOneNumber:
        raise
    # A user's code may raise any error for generated records.
    except Exception:  # noqa: BLE001
        return None
    return _Values(losses.detach(), gradients)


def _agree(single: _Values, together: _Values, size: int) -> bool:
    pairs = zip((single.losses, *single.gradients), (together.losses, *together.gradients), strict=True)
    return all(_close(expected[:size], actual) for expected, actual in pairs)


def _close(expected: Tensor, actual: Tensor) -> bool:
    """Return whether the values agree up to another order of summation."""
    share = {torch.float64: 1e-9, torch.float32: 1e-4}.get(expected.dtype, 5e-2)
    expected, actual = (value.double().reshape(len(value), -1) for value in (expected, actual))
    sizes = expected.abs().amax(1, keepdim=True) if expected.numel() else expected
    return bool(((expected - actual).abs() <= share * (sizes + 0.1)).all())
