"""Passes on several devices give the bytes of one. The processor stands in for a device, in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from private_learning.gradients import ClippedSum, DeviceLost, PerRecordGradients, Slots
from private_learning.gradients.devices import FurtherDevices
from private_learning.gradients.layers import cross_entropy
from study_protocol.randomness.source import SeededSource

RECORDS, MOST = 90, 16
X = torch.randn(RECORDS, 3, 8, 8, generator=torch.Generator().manual_seed(1))
Y = torch.arange(RECORDS) % 4


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 4))


class Doubled(nn.Linear):
    """No closed form is known for it."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(2 * input)


def unknown() -> nn.Module:
    return nn.Sequential(nn.Flatten(), Doubled(192, 4))


MODELS = {"layerwise": convolutions, "vmap": unknown}


def made(method: str, further: tuple[str, ...]) -> PerRecordGradients:
    torch.manual_seed(2)
    return PerRecordGradients(MODELS[method](), cross_entropy, micro_batch=MOST, further_devices=further)


@pytest.fixture(scope="module", params=list(MODELS))
def both(request: pytest.FixtureRequest) -> Iterator[tuple[PerRecordGradients, PerRecordGradients]]:
    """Alone, and with two further devices."""
    several = made(request.param, ("cpu", "cpu"))
    yield made(request.param, ()), several
    several._further_devices.close()  # type: ignore[union-attr]


def summed(gradients: PerRecordGradients, **more: Any) -> ClippedSum:
    slots = Slots.random(60.0, SeededSource(3, allow_insecure=True))
    return gradients.clipped_sum(X, Y, clip_norm=0.5, slots=slots, **more)


def equal(one: ClippedSum, other: ClippedSum) -> bool:
    same = (torch.equal(value, other.gradients[name]) for name, value in one.gradients.items())
    return all(same) and torch.equal(one.norms, other.norms) and one.rounding == other.rounding


@pytest.mark.quick("layerwise")
def test_three_processes_give_the_bytes_of_one(both: tuple[PerRecordGradients, PerRecordGradients]) -> None:
    alone, several = both
    found = summed(several)
    assert equal(summed(alone), found)
    assert alone.method == several.method
    # The batch took seven passes, so that every device had some; and it is the sum that autograd finds.
    own = list(alone.model.parameters())
    losses = [cross_entropy(alone.model(X[i : i + 1]), Y[i : i + 1]).sum() for i in range(RECORDS)]
    one = [torch.autograd.grad(loss, own) for loss in losses]
    norms = torch.stack([torch.sqrt(sum((g.double().square().sum() for g in each), torch.zeros(()))) for each in one])
    torch.testing.assert_close(found.norms, norms, rtol=1e-4, atol=0)
    factors = (0.5 / norms).clamp(max=1.0)
    for place, value in enumerate(found.gradients.values()):
        expected = sum((f * g[place] for f, g in zip(factors, one, strict=True)), torch.zeros(()))
        torch.testing.assert_close(value.double(), expected.double(), rtol=1e-3, atol=1e-4)


@pytest.mark.quick("layerwise")
def test_new_weights_a_centre_and_groups_reach_every_device(
    both: tuple[PerRecordGradients, PerRecordGradients],
) -> None:
    alone, several = both
    with torch.no_grad():
        for one, other in zip(alone.model.parameters(), several.model.parameters(), strict=True):
            one.mul_(1.5)
            other.mul_(1.5)
    assert equal(summed(alone), summed(several))
    names = [name for name, _ in alone.model.named_parameters()]
    centre = {name: 0.1 * torch.ones_like(p) for name, p in alone.model.named_parameters()}
    assert equal(summed(alone, centre=centre), summed(several, centre=centre))
    groups = [[name] for name in names]
    assert equal(summed(alone, groups=groups), summed(several, groups=groups))
    slots = Slots(60)
    assert torch.equal(alone.norms(X, Y, slots=slots), several.norms(X, Y, slots=slots))
    with torch.autocast("cpu", torch.bfloat16):
        assert equal(summed(alone), summed(several))


def test_a_record_that_fails_elsewhere_adds_zero_there(both: tuple[PerRecordGradients, PerRecordGradients]) -> None:
    _, several = both
    broken = X.clone()
    # Without slots passes go in order: the second is another device's.
    broken[MOST + 1] = float("nan")
    found = several.clipped_sum(broken, Y, clip_norm=1.0)
    assert torch.isinf(found.norms).nonzero().flatten().tolist() == [MOST + 1]
    whole = several.clipped_sum(X, Y, clip_norm=1.0)
    others = torch.arange(RECORDS) != MOST + 1
    assert torch.equal(found.norms[others], whole.norms[others])
    assert all(bool(torch.isfinite(value).all()) for value in found.gradients.values())


@pytest.mark.slow
@pytest.mark.parametrize("method", MODELS)
def test_a_device_that_is_lost_is_named(method: str) -> None:
    several = made(method, ("cpu",))
    # A process begins with its first task.
    several.clipped_sum(X, Y, clip_norm=1.0)
    pools = several._further_devices._pools  # type: ignore[union-attr]
    (process,) = pools[0]._processes.values()
    os.kill(process.pid or 0, signal.SIGKILL)
    try:
        with pytest.raises(DeviceLost, match="device cpu has ended"):
            several.clipped_sum(X, Y, clip_norm=1.0)
    finally:
        several._further_devices.close()  # type: ignore[union-attr]


def test_a_model_of_a_local_class_cannot_travel() -> None:
    class Local(nn.Linear):
        pass

    with pytest.raises(ValueError, match="define their classes at the top"):
        FurtherDevices(("cpu",), Local(2, 2), cross_entropy)


def test_a_loss_that_cannot_travel_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="can be imported, or name one device"):
        PerRecordGradients(convolutions(), lambda a, b: cross_entropy(a, b), further_devices=("cpu",))


@pytest.mark.slow
def test_processes_end_with_the_one_that_is_killed() -> None:
    """Else they would keep their devices, and what they last computed, for ever."""
    context = torch.multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    parent = context.Process(target=partial(_hold, theirs))
    parent.start()
    child = ours.recv()
    assert parent.pid is not None
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    deadline = time.monotonic() + 30
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _hold(pipe: Any) -> None:
    gradients = made("layerwise", ("cpu",))
    gradients.clipped_sum(X, Y, clip_norm=1.0)
    (process,) = gradients._further_devices._pools[0]._processes.values()  # type: ignore[union-attr]
    pipe.send(process.pid)
    time.sleep(60)


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


def with_frozen_parts() -> nn.Module:
    torch.manual_seed(4)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.BatchNorm1d(6), nn.Linear(6, 4))
    for place in (1, 2):
        model[place].requires_grad_(False)
    model.train()
    # Public statistics in a model that trains.
    model[2].eval()
    return model


@pytest.mark.slow
def test_modes_of_modules_and_frozen_parts_that_change_go_along() -> None:
    alone, several = (
        PerRecordGradients(with_frozen_parts(), cross_entropy, micro_batch=MOST, further_devices=further)
        for further in ((), ("cpu",))
    )
    try:
        assert equal(summed(alone), summed(several))
        for gradients in (alone, several):
            with torch.no_grad():
                gradients.model[1].weight.mul_(2.0)  # type: ignore[operator, index, union-attr]
                gradients.model[2].running_mean.add_(1.0)  # type: ignore[operator, index, union-attr]
        assert equal(summed(alone), summed(several))
    finally:
        several._further_devices.close()  # type: ignore[union-attr]
