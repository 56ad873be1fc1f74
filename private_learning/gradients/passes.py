"""One pass of a step: its request and its result. The same on every device.

A record whose gradient cannot be computed, or is not finite, adds zero and has norm ∞. It is left out by selection, as
a product of zero and ∞ is NaN. Its slot holds a copy of another record, as a free slot does. No other record's numbers
change, because a slot's results depend on the content of the slot alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from private_learning.gradients.clipping import add_all, clip_factors, full_precision, total_norms
from private_learning.gradients.layerwise import Layerwise, Loss, Signals
from private_learning.gradients.per_record import Gradients, PerRecord
from private_learning.gradients.separate import settled

Engine = Layerwise | PerRecord
Factors = Callable[[Tensor], Tensor]


@dataclass(frozen=True, repr=False)
class PassRequest:
    """A request for norms alone, or for the clipped sum as well.

    clip_norm  None for norms alone
    groups     parameters that are clipped separately, or None for all together
    centre     parameter name -> tensor that is taken off every gradient
    """

    clip_norm: float | None = None
    groups: Sequence[Sequence[str]] | None = None
    centre: Mapping[str, Tensor] | None = None

    def to(self, device: torch.device) -> PassRequest:
        """Return the same request on another device."""
        if self.centre is None:
            return self
        return PassRequest(self.clip_norm, self.groups, {name: value.to(device) for name, value in self.centre.items()})


@dataclass(frozen=True, repr=False)
class PassResult:
    """The result of a pass.

    norms  (width,) float64 of the records in its slots, before clipping. ∞ for a record that has no gradient.
    sum    parameter name -> Σ of the clipped gradients of taken slots. Empty where norms alone were requested, and
           where no record has a gradient.
    """

    norms: Tensor
    sum: dict[str, Tensor]


def run(
    engine: Engine,
    x: Tensor,
    y: Tensor,
    only: Factors,
    request: PassRequest,
    reread: Callable[[], tuple[Tensor, Tensor]],
) -> PassResult:
    """Return the result of one pass over records on the model's device.

    only    factors -> factors, 0 for slots that are free
    reread  returns the same records, as they were before the model was called

    Raises torch.OutOfMemoryError: the memory does not suffice for a pass, whose shape is public.
    """
    with torch.no_grad():
        try:
            return _together(engine, x, y, only, request, reread)
        except torch.OutOfMemoryError:
            raise
        # A user's code may raise anything for one record, which must not stop the others.
        except Exception:  # noqa: BLE001
            return _each_by_itself(engine, *reread(), only, request)


def _together(
    engine: Engine,
    x: Tensor,
    y: Tensor,
    only: Factors,
    request: PassRequest,
    reread: Callable[[], tuple[Tensor, Tensor]],
) -> PassResult:
    """Run all slots in one pass, and again without the records that have no finite gradient, if there are any."""
    failed: Tensor | None = None
    turn = 0
    while True:
        done, norms, fails = measured(engine, x, y, request)
        if fails is None:
            break
        more = fails if failed is None else failed | fails
        # Kernels round by place: a copy may fail where the record itself does not. Then the next record is copied.
        turn = turn + 1 if failed is not None and torch.equal(more, failed) else 0
        failed = more
        if bool(failed.all()):
            return PassResult(torch.full_like(norms, torch.inf), {})
        if turn == int((~failed).sum()):
            return _each_by_itself(engine, *reread(), only, request)
        x, y = (_copied(of, failed, turn) for of in reread())
    if failed is None:
        return PassResult(norms, _summed(engine, done, norms, only, request))
    excluded = failed

    def rest(factors: Tensor) -> Tensor:
        return only(factors).masked_fill(excluded, 0.0)

    return PassResult(norms.masked_fill(excluded, torch.inf), _summed(engine, done, norms, rest, request))


def _copied(values: Tensor, failed: Tensor, turn: int) -> Tensor:
    """Return the values with a copy of one sound record in place of those that have failed.

    turn: number of the sound record, from 0.
    """
    places, excluded = torch.arange(len(values), device=values.device), failed.to(values.device)
    return values[torch.where(excluded, places[~excluded][turn], places)]


def _each_by_itself(engine: Engine, x: Tensor, y: Tensor, only: Factors, request: PassRequest) -> PassResult:
    """Run every record in a pass of its own, of the same shape, so that a failure follows from that record alone."""
    norms = torch.full((len(x),), torch.inf, dtype=torch.float64, device=x.device)
    total: dict[str, Tensor] = {}
    is_taken = only(torch.ones_like(norms)) > 0
    for slot in range(len(x)):
        if not is_taken[slot]:
            continue
        row = slice(slot, slot + 1)
        x_copies, y_copies = (of[row].expand_as(of).clone() for of in (x, y))
        other_slots = torch.ones_like(norms, dtype=torch.bool)
        other_slots[slot] = False
        try:
            done, pass_norms, fails = measured(engine, x_copies, y_copies, request)
            if fails is not None:
                continue
            part = _summed(
                engine,
                done,
                pass_norms,
                lambda factors, excluded=other_slots: factors.masked_fill(excluded, 0.0),
                request,
            )
        # As above: this record is the one that is to blame.
        except Exception:  # noqa: BLE001, S112
            continue
        norms[slot] = pass_norms[slot]
        add_all(total, part)
    return PassResult(norms, total)


def measured(
    engine: Engine, x: Tensor, y: Tensor, request: PassRequest
) -> tuple[Signals | Gradients, Tensor, Tensor | None]:
    """Return gradients, their (width,) norms, and (width,) booleans where gradient or loss is not finite.

    The booleans are None where all are finite.
    """
    done = engine.run(x, y)
    with full_precision(x.device):
        if request.centre is not None:
            done.shift(request.centre)
        norms = total_norms(done.squares)
        # Finite sums have finite terms: two numbers to look at.
        if math.isfinite(float(norms.sum()) + float(done.finite.sum())):
            return done, norms, None
        sound = torch.isfinite(norms) & torch.isfinite(done.finite.reshape(len(norms), -1)).all(1)
        return done, norms, None if bool(sound.all()) else ~sound


def _summed(
    engine: Engine, done: Signals | Gradients, norms: Tensor, only: Factors, request: PassRequest
) -> dict[str, Tensor]:
    part: dict[str, Tensor] = {}
    if request.clip_norm is None:
        return part
    with full_precision(norms.device):
        dtype = next(iter(engine.parameters.values())).dtype
        factors = clip_factors(done.squares, norms, request.groups, request.clip_norm, dtype)
        done.add_weighted({name: only(value) for name, value in factors.items()}, part, release=True)
    return part


def engine(method: str, loss_together: bool | None, model: nn.Module, loss: Loss) -> Engine:
    """Return the engine of a method that is chosen already. Arguments as of `GradientChoice`."""
    pass_engine = (
        Layerwise(model, loss) if method == "layerwise" else PerRecord(model, loss, vectorised=method == "vmap")
    )
    if loss_together is not None:
        settled(pass_engine.loss, loss_together)
    return pass_engine
