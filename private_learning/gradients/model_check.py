"""Before round 1 a model is tried on generated records: that it keeps records apart, and that book-keeping is right.

Two things are tested, under weights of several scales. A record's output is the same by itself and in batches of
several sizes. The per-record gradients of layer-wise book-keeping and their squared norms equal autograd's, loss by
loss, under the same randomness (so dropout needs no special case). No patient's record is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from private_learning.gradients.clipping import full_precision, stop_if_not_finite
from private_learning.gradients.errors import NonFiniteError, NotLayerwise, UnsupportedLayer
from private_learning.gradients.generated import generator
from private_learning.gradients.inspection import trainable
from private_learning.gradients.layerwise import Layerwise, Signals, checked_losses
from private_learning.gradients.losses import SeparateLoss
from private_learning.gradients.random_draws import call_and_watch, draws
from private_learning.gradients.separate import tensors_in
from private_learning.gradients.state import changed, kept_of_first_call, state_of

RECORDS = 8
_SIZES = (2, 3, 5, 8)
# As many as the widest pass, while they are so many numbers together.
_WIDEST, _MOST_NUMBERS = 160, 1 << 22
# Of random weights: of each output's sum, in deviations of one input. None: the weights as they are.
_SCALES = (1.0, 0.3, None)


class EveryOutput(SeparateLoss):
    """A loss in which every output of a record counts, each differently, for all targets."""

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        total = torch.zeros(())
        for values in tensors_in(outputs):
            if values.is_floating_point():
                flat = values.reshape(len(targets), -1)
                weights = torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype, device=flat.device)
                total = total.to(flat.device) + (weights * flat + flat.square() / 2).sum(1)
        return total


def tolerance(dtype: torch.dtype, device: torch.device) -> float:
    """Return the relative difference that rounding explains.

    Autocast lets autograd round its own gradients to 8 bits.
    """
    if torch.is_autocast_enabled(device.type) or dtype not in (torch.float32, torch.float64):
        return 5e-2
    return 1e-7 if dtype == torch.float64 else 2e-3


@contextmanager
def repeatable(device: torch.device) -> Generator[Callable[[], None]]:
    """Yield a function that rewinds the generators dropout draws from. Their state is restored afterwards."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):  # pyright: ignore[reportUnknownMemberType]
        cpu, cuda = torch.get_rng_state(), [torch.cuda.get_rng_state(d) for d in devices]

        def rewind() -> None:
            torch.set_rng_state(cpu)
            for d, state in zip(devices, cuda, strict=True):
                torch.cuda.set_rng_state(state, d)

        yield rewind


def weights_tried(model: nn.Module) -> Generator[None]:
    """Yield once for each of several weights that the model has then: random ones, and its own again at the end."""
    parameters, draw = trainable(model), generator()
    originals = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    try:
        for scale in _SCALES:
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.copy_(originals[name] if scale is None else _random(originals[name], scale, draw))
            yield
    finally:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(originals[name])


def _random(like: Tensor, scale: float, draw: Any) -> Tensor:
    inputs = like.numel() // like.shape[0] if like.dim() > 1 and like.shape[0] else 4
    return torch.as_tensor(draw.standard_normal(tuple(like.shape)) * scale / math.sqrt(max(1, inputs))).to(like)


def runs(model: nn.Module, inputs: Tensor) -> Exception | None:
    """Return the exception that the model raises on these inputs, or None."""
    try:
        with torch.no_grad():
            model(inputs.clone())
    # A user's code may raise any error for generated records.
    except Exception as error:  # noqa: BLE001
        return error
    return None


@contextmanager
def unchanged_buffers(model: nn.Module) -> Generator[None]:
    """Allow a model to change its buffers within, and restore them afterwards."""
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    try:
        yield
    finally:
        for name, value in model.named_buffers():
            if name in buffers and value.shape == buffers[name].shape:
                value.copy_(buffers[name])


def refuse_fitting(
    model: nn.Module, accepted: list[Tensor], trial_inputs: Callable[[nn.Module], Iterator[Tensor]]
) -> None:
    """Put the inputs that are tried on the model into `accepted`.

    Raises UnsupportedLayer: it keeps a part of the first records that it is called with.
    """

    def call_with_accepted(module: nn.Module) -> None:
        module((accepted[-1] if len(accepted) > 1 else accepted[0].flip(0)[: len(accepted[0]) // 2]).clone())

    place_of_cache = kept_of_first_call(model, lambda module: accepted.extend(trial_inputs(module)), call_with_accepted)
    if place_of_cache is not None:
        raise UnsupportedLayer(
            f"the model keeps something of the records that it is called with first: {place_of_cache!r}. Take such "
            "numbers from the study's parameters, where they are public"
        )


def refuse_memory(model: nn.Module, first: Tensor, second: Tensor) -> None:
    """Raise UnsupportedLayer where a call changes a buffer or an attribute.

    first, second: inputs of one shape. The first call may fill a cache.
    """
    with torch.no_grad(), repeatable(first.device):
        model(first.clone())
        names, before = [name for name, _ in model.named_buffers()], state_of(model)
        model(second.clone())
        place = changed(before, state_of(model))
    if place in names:
        raise UnsupportedLayer(f"buffer {place!r} stores statistics of the data: use a layer without running state")
    if place is not None:
        raise UnsupportedLayer(
            f"the model remembers earlier calls: {place!r} changed when it was called, and so one record can reach "
            "another: keep no state from one call to the next"
        )


def widened(inputs: Tensor) -> Tensor:
    """Return as many records as a pass may have, by repetition, or those given where they are large."""
    width = max(len(inputs), min(_WIDEST, _MOST_NUMBERS // max(1, inputs[0].numel())))
    return torch.cat([inputs] * -(-width // len(inputs)))[:width]


def refuse_mixing(model: nn.Module, inputs: Tensor) -> None:
    """Raise UnsupportedLayer where a record's output changes with the other records of its batch.

    inputs: (records, ...), generated. Outputs that are not finite give no evidence, and pass.
    """
    with torch.no_grad(), repeatable(inputs.device) as rewind, full_precision(inputs.device):
        whole, random = call_and_watch(lambda: tensors_in(model(inputs.clone())), inputs.device)
        if random and not model.training:
            raise UnsupportedLayer(
                "the model draws random numbers in evaluation mode, in which a study computes: a record's gradient "
                "would be another one each time that it is computed. Let it draw in training mode alone, as nn.Dropout "
                "does"
            )
        if not all(bool(torch.isfinite(value).all()) for value in whole):
            return
        is_mixing = _by_exchange(model, inputs, rewind) if random else _by_size(model, inputs)
    if is_mixing:
        raise UnsupportedLayer(
            "a record's output changes with the other records of its batch: use layers that treat records separately "
            "(GroupNorm, LayerNorm or InstanceNorm instead of batch statistics)"
        )


def _by_size(model: nn.Module, inputs: Tensor) -> bool:
    """Does a record by itself have another output than in a batch? Raises UnsupportedLayer: none has one by itself."""
    rows: dict[int, list[Tensor]] = {}
    failed: Exception | None = None
    for row in range(min(RECORDS, len(inputs))):
        try:
            rows[row] = tensors_in(model(inputs[row : row + 1].clone()))
        # A user's code may raise any error for a generated record.
        except Exception as error:  # noqa: BLE001
            failed = error
    if not rows:
        raise UnsupportedLayer(
            f"the model runs on a batch and not on one record by itself ({type(failed).__name__}: {failed}). It must "
            "treat every record separately. Where it is a matter of shapes, write squeeze(-1) in place of squeeze()"
        ) from failed
    return any(_differs(rows, tensors_in(model(inputs[:size].clone())), size) for size in {*_SIZES, len(inputs)})


def _differs(rows: Mapping[int, list[Tensor]], together: list[Tensor], size: int) -> bool:
    """rows: record -> its outputs by itself. together: those of a batch of the first `size`."""
    present = [row for row in rows if row < size]
    for place, value in enumerate(together) if present else ():
        separate = torch.cat([rows[row][place] for row in present])
        if len(value) != size or separate.shape[1:] != value.shape[1:] or len(separate) != len(present):
            return True
        if not _close(separate, value[present]):
            return True
    return False


def _by_exchange(model: nn.Module, inputs: Tensor, rewind: Callable[[], None]) -> bool:
    """Return whether a record has another output beside others, under the same random numbers.

    Where the generators stand elsewhere afterwards, records had other numbers, and no comparison is possible. Such a
    model has no closed form (`private_learning.gradients.packing`, `reads`).
    """
    exchanged = inputs.clone()
    exchanged[1::2] = inputs[0]
    rewind()
    before, generator_states = tensors_in(model(inputs.clone())), draws(inputs.device)
    rewind()
    after = tensors_in(model(exchanged))
    if draws(inputs.device) != generator_states:
        return False
    pairs = zip(before, after, strict=True)
    return any(not _close(original[::2], swapped[::2]) for original, swapped in pairs if len(original) == len(inputs))


def _close(expected: Tensor, actual: Tensor) -> bool:
    if not expected.is_floating_point():
        return torch.equal(expected, actual)
    share = tolerance(expected.dtype, expected.device)
    expected, actual = (value.double().reshape(len(value), -1) for value in (expected, actual))
    sizes = expected.abs().amax(1, keepdim=True) if expected.numel() else expected
    return bool(((expected - actual).abs() <= share * (sizes + 1e-3)).all())


def verify(engine: Layerwise, inputs: Tensor, targets: Tensor) -> int:
    """Return the numbers held per record.

    Raises NotLayerwise when a gradient differs from autograd's on two or three records.
    """
    try:
        if torch.is_autocast_enabled(inputs.device.type):
            # A trial run. Its correctness shows where 8 bits do not hide it.
            engine.run(inputs[:2].clone(), targets[:2].clone())
        with full_precision(inputs.device):
            # Two sizes: an axis that happens to have one of them is not taken for the records'.
            return max(compare(engine, inputs[:count], targets[:count]) for count in (2, 3))
    except NonFiniteError:
        return 0
    except RuntimeError as error:
        raise NotLayerwise(f"layer-wise book-keeping failed: {error}") from error


def compare(engine: Layerwise, x: Tensor, y: Tensor) -> int:
    """Return the numbers held per record, once every record's gradient has been found right."""
    with repeatable(x.device) as rewind:
        done = engine.run(x.clone(), y.clone())
        rewind()
        with torch.enable_grad():
            losses = checked_losses(engine.loss, x, engine.model(x.clone()), y.clone())
        stop_if_not_finite({"the loss": losses})
    for i in range(len(x)):
        compare_record(engine, done, losses[i], i)
    return done.footprint


def _length(value: Tensor) -> float:
    return float(cast(Tensor, value.norm()))  # pyright: ignore[reportUnknownMemberType]


def compare_record(engine: Layerwise, done: Signals, loss: Tensor, i: int) -> None:
    """Raise NotLayerwise where record i's gradients or norms are not those of autograd for its own loss."""
    parameters: Mapping[str, nn.Parameter] = engine.parameters
    # Torch's annotation leaves out the None of an unused parameter.
    grads = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
    true = cast("tuple[Tensor | None, ...]", grads)
    size = math.sqrt(sum(_length(grad) ** 2 for grad in true if grad is not None))
    selection = torch.zeros(done.batch, dtype=next(iter(parameters.values())).dtype, device=loss.device)
    selection[i] = 1.0
    ours: dict[str, Tensor] = {}
    done.add_weighted(dict.fromkeys(parameters, selection), ours)
    for (name, parameter), grad in zip(parameters.items(), true, strict=True):
        grad_norm = 0.0 if grad is None else _length(grad)
        square = float(done.squares[name][i])
        zero = torch.zeros((), dtype=parameter.dtype, device=parameter.device)
        expected = zero if grad is None else grad
        # In place: on a large layer every copy counts.
        difference = ours.pop(name).sub_(expected) if name in ours else expected
        distance, share = _length(difference), tolerance(parameter.dtype, loss.device)
        # Some gradients are zero but for rounding, such as a bias before a normalisation. Squares are compared as
        # squares: where they cancel, the root of what rounding leaves is far larger than it.
        right = distance <= share * (grad_norm + 1e-3 * size) + 1e-30
        # Two that overflowed are equal.
        expected_square, floor = grad_norm * grad_norm, 1e-3 * size
        squares_agree = square == expected_square or (
            abs(square - expected_square) <= 2 * share * (expected_square + floor * floor) + 1e-60
        )
        if not (right and squares_agree):
            raise NotLayerwise(f"the closed form for {name!r} disagrees with autograd on this model")
