"""Passes of one step on several devices of one machine, with a process for each further device.

Every pass has the same shape, so that passes are shared out one by one. The sum is added in the order of the passes.
While the devices are alike, the choice of the device changes no bit.
"""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from private_learning.gradients.clipping import exact_products
from private_learning.gradients.errors import DeviceLost
from private_learning.gradients.inspection import trainable
from private_learning.gradients.layerwise import Loss
from private_learning.gradients.passes import Engine, PassRequest, PassResult, engine, run

Numbers = NDArray[Any]


class FurtherDevices:
    """A process for each of the devices, which holds a copy of the model and no record.

    The data of a pass travel through a pipe, never over a network or a disk.

    Raises ValueError where model or loss cannot be sent to another process: their classes must be importable.
    """

    def __init__(self, devices: Sequence[str], model: nn.Module, loss: Loss) -> None:
        self._model = model
        try:
            sent = pickle.dumps((copy.deepcopy(model).cpu(), loss))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"the model or its loss cannot be sent to the process of another device ({error}): define their "
                "classes at the top of a module that can be imported, or name one device"
            ) from error
        # Spawned: a fork would inherit a device that is open already.
        context, threads = get_context("spawn"), torch.get_num_threads()
        self._pools = [
            ProcessPoolExecutor(1, mp_context=context, initializer=_start, initargs=(device, sent, threads))
            for device in devices
        ]
        self._names = list(devices)
        self._fresh: set[int] = set()
        # What does not learn changes seldom: told by PyTorch's own count of changes.
        self._sent = [{name: _stand(value) for name, value in _fixed(model).items()} for _ in devices]

    def __len__(self) -> int:
        return len(self._pools)

    def renew(self) -> None:
        """Note that the model's weights have changed: the next pass takes them along."""
        self._fresh.clear()

    def submit(
        self,
        place: int,
        method: tuple[str, bool | None],
        x: Tensor,
        y: Tensor,
        free: Tensor | None,
        request: PassRequest,
    ) -> PendingPass:
        """Begin a pass on the device at `place`.

        method: its name, and how the loss is run, as in `passes.engine`.
        """
        weights = None
        if place not in self._fresh:
            weights = {name: _numbers(value) for name, value in self._changed(place).items()}
            self._fresh.add(place)
        kind = x.device.type if x.device.type != "cpu" else next(self._model.parameters()).device.type
        task = _Task(
            method,
            weights,
            (_numbers(x), _numbers(y)),
            None if free is None else _numbers(free),
            request.to(torch.device("cpu")),
            torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None,
            [module.training for module in self._model.modules()],
        )
        try:
            return PendingPass(self._names[place], self._pools[place].submit(_pass, task))
        except BrokenProcessPool as error:
            raise DeviceLost(self._names[place]) from error

    def _changed(self, place: int) -> dict[str, Tensor]:
        """Return name -> trainable parameter, and each fixed tensor that the device at `place` has in another state."""
        fixed = _fixed(self._model)
        stand = {name: _stand(value) for name, value in fixed.items()}
        before, self._sent[place] = self._sent[place], stand
        changed_fixed = {name: value for name, value in fixed.items() if stand[name] != before.get(name)}
        return {**trainable(self._model), **changed_fixed}

    def close(self) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, repr=False)
class PendingPass:
    """A pass that was submitted."""

    device: str
    future: Future[tuple[Numbers, dict[str, Numbers]]]

    def wait(self, device: torch.device) -> PassResult:
        """Return the result of the pass, on `device`.

        Raises:
            DeviceLost: the process has ended.
            torch.OutOfMemoryError: the memory does not suffice.
        """
        try:
            norms, summed = self.future.result()
        except BrokenProcessPool as error:
            raise DeviceLost(self.device) from error
        return PassResult(
            torch.as_tensor(norms).to(device),
            {name: torch.as_tensor(value).to(device) for name, value in summed.items()},
        )


@dataclass(frozen=True, repr=False)
class _Task:
    """One pass for another device.

    weights: name of a parameter or buffer -> array. None where all are those of the pass before.
    training: of each module by itself. A batch normalisation in eval mode may lie in a model that trains.
    """

    method: tuple[str, bool | None]
    weights: Mapping[str, Numbers] | None
    records: tuple[Numbers, Numbers]
    free: Numbers | None
    request: PassRequest
    autocast: torch.dtype | None
    training: Sequence[bool]


class _DeviceWorker:
    """State that the process of a further device keeps between passes."""

    def __init__(self, device: str, sent: bytes) -> None:
        model, self.loss = pickle.loads(sent)  # noqa: S301 (from the process that started this one)
        self.model: nn.Module = model.to(device)
        self.device = torch.device(device)
        self._engines: dict[tuple[str, bool | None], Engine] = {}

    def engine(self, task: _Task) -> Engine:
        for module, training in zip(self.model.modules(), task.training, strict=True):
            module.training = training
        if task.weights is not None:
            tensors = {**trainable(self.model), **_fixed(self.model)}
            with torch.no_grad():
                for name, value in task.weights.items():
                    tensors[name].copy_(torch.as_tensor(value))
        if task.method not in self._engines:
            self._engines[task.method] = engine(*task.method, self.model, self.loss)
        return self._engines[task.method]


_workers: list[_DeviceWorker] = []


def _start(device: str, sent: bytes, threads: int) -> None:
    # As many as in the first process: with others a product's order of summation would be another.
    torch.set_num_threads(threads)
    # A process that was killed gives no notice: without this, its children would keep their devices for ever.
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _workers.append(_DeviceWorker(device, sent))


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
    os._exit(1)


def _pass(task: _Task) -> tuple[Numbers, dict[str, Numbers]]:
    (worker,) = _workers

    def records() -> tuple[Tensor, Tensor]:
        # Copies: a model may change what it is given.
        x, y = (torch.tensor(values, device=worker.device) for values in task.records)
        return x, y

    free = None if task.free is None else torch.as_tensor(task.free).to(worker.device)

    def only(factors: Tensor) -> Tensor:
        return factors if free is None else factors.masked_fill(free, 0.0)

    kind, lower = worker.device.type, task.autocast
    with exact_products(worker.device), nullcontext() if lower is None else torch.autocast(kind, lower):
        result = run(worker.engine(task), *records(), only, task.request.to(worker.device), records)
    return _numbers(result.norms), {name: _numbers(value) for name, value in result.sum.items()}


def _fixed(model: nn.Module) -> dict[str, Tensor]:
    """Name -> frozen parameter or buffer."""
    frozen = {name: p for name, p in model.named_parameters() if not p.requires_grad}
    return {**frozen, **dict(model.named_buffers())}


def _stand(value: Tensor) -> tuple[int, int]:
    return value.data_ptr(), value._version


def _numbers(values: Tensor) -> Numbers:
    # Arrays, and not tensors: those would go through shared memory, of which containers have little.
    return np.asarray(values.detach().cpu().numpy(), order="C")
