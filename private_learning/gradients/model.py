"""Per-record gradients of a model: choose a method, split the batch into passes, add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, Protocol, cast

import torch
from torch import Tensor, nn

from private_learning.gradients.choice import GradientChoice, shapes_in_words
from private_learning.gradients.clipping import ClippedSum, add_all, checked_clip_norm, checked_groups, exact_products
from private_learning.gradients.confirmation import Confirmed, TrialViews, confirmed
from private_learning.gradients.devices import FurtherDevices
from private_learning.gradients.errors import NonFiniteError, NotLayerwise, UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers, Shapes
from private_learning.gradients.inspection import checked_parameters, refuse_cross_record, risky_layers
from private_learning.gradients.layerwise import Layerwise
from private_learning.gradients.passes import Engine, PassRequest, PassResult, engine, run
from private_learning.gradients.per_record import PerRecord
from private_learning.gradients.separate import settled
from private_learning.gradients.slots import Indexed, Pass, Slots, foretold, in_order

Method = Literal["auto", "layerwise", "vmap"]
# Numbers to hold in one pass, between the least and the most records: enough to pay for the calls, few enough for the
# processor's cache and for a memory that does not grow with the batch.
PASS_NUMBERS, HELD_GRADIENTS, MIN_PASS_RECORDS, MAX_PASS_RECORDS = 1 << 21, 1 << 24, 64, 128

_CHANGED = (
    "the study began with gradients by the method {0!r}, which no longer works: {1}. Use the versions of "
    "PyTorch and of the task with which the study began"
)


class PassViews(TrialViews, Protocol):
    """The tensors that a model receives in place of the records of a pass."""

    def of(self, x: Tensor, y: Tensor, first: int) -> tuple[Tensor, Tensor]:
        """Return (width, ...) and as many targets, of the records in the slots from `first`, each slot by itself."""
        ...


class PerRecordGradients:
    """Per-record gradient norms and clipped sums of a model by layer-wise book-keeping.

    model: any module. Its trainable parameters must share one floating type and device. Its train/eval mode is used
        as it stands at each call.
    loss: loss(outputs, targets) -> (batch,) losses, each a function of one output and one target. Unless it is built
        in, it is run on single records, so that no loss ever sees two.
    method: "auto" takes book-keeping where it is exact and falls back to torch.func per-record gradients elsewhere.
        "layerwise" raises UnsupportedLayer instead of falling back. "vmap" always computes per-record gradients.
    micro_batch: records per pass. Memory is proportional to it and not to the batch. By default 64 to 128, by how much
        the layers hold per record. There are fewer where whole per-record gradients are needed.
    further_devices: of torch, like the model's own. Passes run on all of them at once, each in a process of its own.
    examples: generators of inputs and targets, for the generated records below.

    method, reason (attributes): the method in use ("layerwise", "vmap" or "one by one") and the reason for it.
    `confirm`, or the first call with each shape, type and mode, decides it on generated records. The decision follows
    from shapes and types alone, with a fixed seed, and never from a record that is given.

    Guarantees:

    - Every record's contribution to a clipped sum has L2 norm ≤ clip_norm after rounding.
    - A record whose gradient cannot be computed, or is not finite, adds zero and changes no other's.
    - An empty batch gives zeros.

    Raises UnsupportedLayer when records reach each other in the model or the loss (BatchNorm in training, batch
    statistics, running state), or when parameters are below float32.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Tensor, Tensor], Tensor],
        *,
        method: Method = "auto",
        micro_batch: int | None = None,
        further_devices: Sequence[str] = (),
        examples: ExampleMakers | None = None,
    ) -> None:
        if method not in ("auto", "layerwise", "vmap"):
            raise ValueError(f"method must be 'auto', 'layerwise' or 'vmap', got {method!r}")
        if micro_batch is not None and micro_batch < 1:
            raise ValueError(f"micro_batch must be at least 1, got {micro_batch}")
        self.model, self.loss = model, loss
        self.micro_batch = MIN_PASS_RECORDS if micro_batch is None else micro_batch
        self._sized = micro_batch is None
        self.method: str = method
        self.reason = "asked for"
        self._requested_method, self._examples = method, examples or ExampleMakers()
        self._fixed, self._loss_together = False, None
        self._verified: dict[object, Confirmed] = {}
        self._risky = risky_layers(model)
        refuse_cross_record(self._risky)
        self._parameters = checked_parameters(model)
        self._dtype = next(iter(self._parameters.values())).dtype
        self._engine: Engine = self._new_engine()
        self._further_devices = FurtherDevices(further_devices, model, loss) if further_devices else None

    def _new_engine(self) -> Engine:
        if self._requested_method == "vmap":
            self._size_for_gradients()
            return PerRecord(self.model, self.loss)
        try:
            engine = Layerwise(self.model, self.loss)
        except NotLayerwise as error:
            return self._fallen_back(error)
        self.method, self.reason = "layerwise", "every trainable layer has a closed form"
        return engine

    def _fallen_back(self, cause: Exception, *, vectorised: bool = True) -> PerRecord:
        if self._fixed:
            raise UnsupportedLayer(_CHANGED.format(self.method, cause)) from cause
        if self._requested_method == "layerwise":
            raise UnsupportedLayer(f"{cause}. Use method='auto' or 'vmap'") from cause
        self.method, self.reason = ("vmap" if vectorised else "one by one"), str(cause)
        self._size_for_gradients()
        return PerRecord(self.model, self.loss, vectorised=vectorised)

    def _size_for_gradients(self) -> None:
        if self._sized:
            numbers = sum(p.numel() for p in self._parameters.values())
            self.micro_batch = min(MIN_PASS_RECORDS, max(1, HELD_GRADIENTS // numbers))

    def _size_for_layers(self, numbers_held: int) -> None:
        if self._sized and not self._fixed:
            records = PASS_NUMBERS // max(numbers_held, 1)
            self.micro_batch = min(MAX_PASS_RECORDS, max(MIN_PASS_RECORDS, records))

    def norms(
        self, inputs: Tensor | Indexed, targets: Tensor, *, slots: Slots | None = None, views: PassViews | None = None
    ) -> Tensor:
        """Return (batch,) float64 L2 norms of the per-record gradients over all trainable parameters.

        A record without a gradient has norm ∞.

        inputs, targets: first axis the records, on any device. Inputs may be read pass by pass. slots, views: as of
        `clipped_sum`.

        Raises UnsupportedLayer, DeviceLost, ValueError.
        """
        norms, _ = self._run(inputs, targets, slots, PassRequest(), views)
        return norms

    def clipped_sum(
        self,
        inputs: Tensor | Indexed,
        targets: Tensor,
        *,
        clip_norm: float,
        centre: Mapping[str, Tensor] | None = None,
        groups: Sequence[Sequence[str]] | None = None,
        slots: Slots | None = None,
        views: PassViews | None = None,
    ) -> ClippedSum:
        """Return Σ_i clip(g_i − centre) over the batch, with its sensitivity and the unclipped norms.

        clip_norm: > 0, finite. It is the sum's L2 sensitivity under add/remove.
        centre: parameter name -> tensor, public or already released (never computed from this batch).
        groups: lists of parameter names, clipped separately to clip_norm / √(number of groups).
        slots: where the records run. With slots no record's gradient depends on the other records, and `rounding` of
            the result bounds the effect of the order of summation. Without slots, shapes follow the size of the batch,
            and one record more may move the others' gradients in their last digits.
        views: the tensors that the model receives for the records, pass by pass. By default the records themselves.

        Raises NonFiniteError (the centre), UnsupportedLayer, DeviceLost, ValueError.
        """
        bound = checked_clip_norm(clip_norm)
        name_groups = None if groups is None else checked_groups(groups, list(self._parameters))
        shift = None if centre is None else checked_centre(centre, self._parameters)
        norms, total = self._run(inputs, targets, slots, PassRequest(bound, name_groups, shift), views)
        summed = {
            name: total[name] if name in total else p.detach().new_zeros(p.shape)
            for name, p in self._parameters.items()
        }
        if slots is None:
            return ClippedSum({name: value.to(self._dtype) for name, value in summed.items()}, norms, bound)
        # Sums of several passes stay in float64, where the noise's integers take them from.
        return ClippedSum(summed, norms, bound, self.rounding(bound, slots.capacity, shift))

    def rounding(self, clip_norm: float, capacity: int, centre: Mapping[str, Tensor] | None = None) -> float:
        """Return how much farther than clip_norm two sums over slots may lie apart by float addition: an L2 norm.

        The bound is public: it depends on shapes, the clip norm and a released centre. Two batches that differ in one
        record differ in one pass, and every other slot is the same. In that pass at most m vectors of norm at most C
        are added, in an order that is the kernel's. Each of fewer than m additions rounds a partial sum of k vectors,
        of norm at most k·C, by u of itself (Higham 2002, section 4.2). That comes to at most m(m + 1)/2 · u·C on either
        side. Passes are added in float64.
        """
        width = min(capacity, self._widest(MAX_PASS_RECORDS if self._sized else self.micro_batch))
        shift = 0.0 if centre is None else math.sqrt(sum(float(v.double().square().sum()) for v in centre.values()))
        if not math.isfinite(shift):
            raise NonFiniteError("the centre")
        # One term more for the factor, one for the centre's own. float64 has 2⁻⁵³ for each of the passes.
        return (clip_norm + 2 * shift) * (self._unit * (width + 2) * (width + 3) + 2.0**-40)

    def spared(self, clip_norm: float) -> float:
        """Return the share of `rounding` that its own proof does not need, for further operations on the sum.

        For a pass of m places the proof needs m(m + 1)/2 − 1 terms for the additions, m for the factors and m for the
        centre. The bound has (m + 2)(m + 3)/2: four more, on either side. Half of that is left for terms of second
        order.
        """
        return 4 * self._unit * clip_norm

    @property
    def _device(self) -> torch.device:
        return next(iter(self._parameters.values())).device

    @property
    def _unit(self) -> float:
        """Return the unit of rounding in the parameters' precision."""
        return 2.0**-24 if self._dtype == torch.float32 else 2.0**-53

    def _widest(self, max_records: int) -> int:
        """Return the slots in one pass: a quarter more than records, so that little room makes no second pass."""
        return max_records * 5 // 4 if self._sized else max_records

    def _run(
        self,
        inputs: Tensor | Indexed,
        targets: Tensor,
        slots: Slots | None,
        request: PassRequest,
        views: PassViews | None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return (batch,) norms and the sum, pass by pass, in their order."""
        if len(inputs) != len(targets):
            raise ValueError(f"inputs and targets must have one row per record, got {len(inputs)} and {len(targets)}")
        device, total = self._device, dict[str, Tensor]()
        norms = torch.zeros(len(inputs) + 1, dtype=torch.float64, device=device)
        if not len(inputs):
            return norms[:0], total
        with exact_products(device):
            self._confirm(Shapes.of(inputs, targets), views)
            # By now it is known how many records one pass may hold.
            count, max_records = len(inputs), self.micro_batch
            passes = in_order(count, max_records) if slots is None else slots.passes(count, self._widest(max_records))
            for current, result in self._results(foretold(passes, inputs), inputs, targets, request, views):
                current.to(device).put(result.norms, norms)
                add_all(total, result.sum)
        return norms[:-1], total

    def _results(
        self,
        passes: Iterator[Pass],
        inputs: Tensor | Indexed,
        targets: Tensor,
        request: PassRequest,
        views: PassViews | None,
    ) -> Iterator[tuple[Pass, PassResult]]:
        """Yield every pass with its result, as many at once as there are devices."""
        further_devices, device = self._further_devices, self._device
        if further_devices is not None:
            further_devices.renew()
        while at_once := list(islice(passes, 1 if further_devices is None else 1 + len(further_devices))):
            # The records may lie elsewhere: only those of a pass come to its device.
            batches = [(current, *_batch_of(current, inputs, targets, views)) for current in at_once]
            answers = [
                cast(FurtherDevices, further_devices).submit(
                    place, (self.method, self._loss_together), x, y, current.free, request
                )
                for place, (current, x, y) in enumerate(batches[1:])
            ]
            (current, x, y), *remote = batches
            yield current, self._local_result(current.to(device), x, y, request, inputs, targets, views)
            for (place, *_), answer in zip(remote, answers, strict=True):
                yield place, answer.wait(device)

    def _local_result(
        self,
        current: Pass,
        x: Tensor,
        y: Tensor,
        request: PassRequest,
        inputs: Tensor | Indexed,
        targets: Tensor,
        views: PassViews | None,
    ) -> PassResult:
        """Return the result of one pass on the model's own device."""
        device = self._device
        # Views are drawn once and files are read once. Records in memory are taken again if they are needed again.
        copies = None if views is None and isinstance(inputs, Tensor) else (x.clone(), y.clone())

        def reread() -> tuple[Tensor, Tensor]:
            before = _batch_of(current, inputs, targets, None) if copies is None else copies
            return before[0].to(device, copy=True), before[1].to(device, copy=True)

        return run(self._engine, x.to(device), y.to(device), current.only_taken, request, reread)

    def confirm(
        self, shapes: Shapes, *, views: TrialViews | None = None, choice: GradientChoice | None = None
    ) -> GradientChoice:
        """Choose the method for records of these shapes and types, on generated records.

        views: as of `clipped_sum`. choice: the earlier choice, which remains in force.

        Raises UnsupportedLayer (also where the earlier choice no longer works), ValueError.
        """
        if choice is not None:
            self._take(choice, shapes)
        with exact_products(self._device):
            self._confirm(shapes, views)
        return GradientChoice(self.method, self.micro_batch, self._loss_together, shapes_in_words(shapes), self.reason)

    def _take(self, choice: GradientChoice, shapes: Shapes) -> None:
        """Take an earlier choice over, to be confirmed and never to be left."""
        if choice.shapes != shapes_in_words(shapes):
            raise UnsupportedLayer(
                f"the study began with records of shapes {choice.shapes}, and these are {shapes_in_words(shapes)}: "
                "take part with the task and the settings that it began with"
            )
        try:
            self._engine = engine(choice.method, choice.loss_together, self.model, self.loss)
        except NotLayerwise as error:
            raise UnsupportedLayer(_CHANGED.format(choice.method, error)) from error
        self.method, self.reason, self.micro_batch = choice.method, choice.reason, choice.micro_batch
        self._loss_together, self._fixed = choice.loss_together, True

    def _confirm(self, shapes: Shapes, views: TrialViews | None) -> None:
        # Every time: the mode is the caller's to change between calls.
        if self._risky:
            refuse_cross_record(self._risky)
        # Another shape or mode may take another way through the model.
        key = shapes, views is not None, self.model.training
        if (self.method, *key) in self._verified:
            return
        confirmation = confirmed(self.model, self.loss, shapes, self._examples, views, self._device)
        if confirmation.remark is not None and confirmation.remark not in self.reason:
            self.reason = f"{self.reason}. {confirmation.remark}"
        self._choose(confirmation)
        self._loss_together = settled(self._engine.loss)
        # Under the method in use by now: it may have fallen back.
        self._verified[self.method, *key] = confirmation

    def generated(self, shapes: Shapes, views: TrialViews | None) -> tuple[Tensor, Tensor] | None:
        """Return generated records as the model receives them, or None where no generated target fits."""
        confirmation = self._verified[self.method, shapes, views is not None, self.model.training]
        return (confirmation.inputs[0], confirmation.targets[0]) if confirmation.targets else None

    def _choose(self, confirmation: Confirmed) -> None:
        """Fall back where the method in use does not do for the generated records."""
        if isinstance(self._engine, Layerwise):
            try:
                self._size_for_layers(confirmation.verify(self._engine))
            except NotLayerwise as error:
                self._engine = self._fallen_back(error)
        if isinstance(self._engine, PerRecord) and self._engine.vectorised:
            try:
                confirmation.run(self._engine)
            # What a loss raises under vmap may have any type.
            except Exception as error:
                if self._requested_method == "vmap":
                    raise
                # What a reader can change is the first reason.
                cause = NotLayerwise(f"{self.reason}, and torch.func cannot vectorise the model: {error}")
                self._engine = self._fallen_back(cause, vectorised=False)
        if isinstance(self._engine, PerRecord) and not self._engine.vectorised:
            try:
                confirmation.run(self._engine)
            # A round counts a record that fails as zero: a model that fails for all of them has to be found out now.
            except Exception as error:
                raise UnsupportedLayer(
                    f"the gradient of a generated record cannot be computed ({type(error).__name__}: {error}). "
                    "Where it is a matter of the record, say in the task's example_inputs and example_targets what "
                    "they look like"
                ) from error


def _batch_of(
    current: Pass, inputs: Tensor | Indexed, targets: Tensor, views: PassViews | None
) -> tuple[Tensor, Tensor]:
    x, y = (current.to(of.device).of(of) for of in (inputs, targets))
    return (x, y) if views is None else views.of(x, y, current.first)


def checked_centre(centre: Mapping[str, Tensor], parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """The centre in the parameters' type and place. Raises ValueError for names or shapes, NonFiniteError."""
    if set(centre) != set(parameters):
        raise ValueError(f"centre must name every trainable parameter: {sorted(parameters)}, got {sorted(centre)}")
    for name, value in centre.items():
        if value.shape != parameters[name].shape:
            raise ValueError(f"centre[{name!r}] must have shape {tuple(parameters[name].shape)}")
        if not bool(torch.isfinite(value).all()):
            raise NonFiniteError(f"centre[{name!r}]")
    return {name: centre[name].detach().to(p) for name, p in parameters.items()}
