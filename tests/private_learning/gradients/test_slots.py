"""In one slot a record has one gradient, bit by bit, whoever is in the others; and places have the law that is said."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.stats import poisson
from torch import Tensor, nn

from private_learning import tasks
from private_learning.gradients import PerRecordGradients
from private_learning.gradients.model import MAX_PASS_RECORDS, MIN_PASS_RECORDS
from private_learning.gradients.slots import Pass, Slots, in_order, slots_for
from private_learning.tasks.adapters import adapt
from study_protocol.randomness.source import SeededSource
from tests.private_learning.gradients.references import squared_error
from tests.private_learning.gradients.test_attention import Attends, Encoder
from tests.private_learning.gradients.test_embedding_bag import Bagged
from tests.private_learning.gradients.test_layers import fixed
from tests.private_learning.gradients.test_terms import Cell, Language

FALSE_ALARM = 1e-6
TABLE = {"label": "ill", "column.age": "0..100", "column.rate": "0..10"}
INPUTS = {name: text for name, text in TABLE.items() if name != "label"}
NUMBER = TABLE | {"low": 0.0, "high": 9.0, "loss": "huber", "delta": 1.0}
LABELS = INPUTS | {"labels": "a|b|c"}
TIMES = INPUTS | {"time": "days", "event": "died", "cuts": "30|90|365"}
IMAGES = {"height": 12, "width": 12, "channels": 1, "filters": 8, "hidden": 16, "classes": 3, "low": 0.0, "high": 1.0}
SHAPE = {"height": 8, "width": 9, "filters": 4, "groups": 2}
# Task -> parameters, and the shape of one record's targets.
CONVOLUTIONAL: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "resnet": (SHAPE | {"classes": 3, "stages": 2}, ()),
    "multi-label-images": (SHAPE | {"labels": "a|b|c", "stages": 2}, (3,)),
    "segmentation": (SHAPE | {"classes": 3, "depth": 1, "dice": 1.0}, (8, 9)),
    "signal-cnn": (
        {"channels": 2, "length": 40, "classes": 3, "range": "-1..1", "filters": 4, "groups": 2, "layers": 2},
        (),
    ),
}


def _relu(record: Tensor) -> nn.Module:
    """Weights as somebody chooses them who means harm: this record, by itself, has every unit exactly at zero."""
    first = nn.Linear(96, 128)
    with torch.no_grad():
        first.bias.zero_()
        first.bias.copy_(-first(record[None])[0])
    return nn.Sequential(first, nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 3))


def _labels(generator: torch.Generator) -> Tensor:
    """Some are not known."""
    labels = torch.randint(0, 2, (200, 3), generator=generator).float()
    labels[::3, 1] = math.nan
    return labels


def _times(generator: torch.Generator) -> Tensor:
    return torch.stack([torch.rand(200, generator=generator), torch.rand(200, generator=generator).round()], dim=1)


def models() -> dict[str, tuple[nn.Module, Any, Tensor, Tensor]]:
    """Name -> model, loss, inputs, targets: those that the tasks have, one of ReLU units, one for each other rule."""
    generator, found = torch.Generator().manual_seed(1), {}
    for name, parameters, shape in (
        ("logistic-regression", TABLE, (2,)),
        ("mlp", TABLE | {"hidden": 16}, (2,)),
        ("cnn", IMAGES, (1, 12, 12)),
        ("last-layer", {"features": 96, "classes": 3, "bound": 10.0}, (96,)),
    ):
        task = tasks.load(name, parameters)
        torch.manual_seed(2)
        inputs = torch.randn(200, *shape, generator=generator)
        classes = 2 if len(shape) == 1 and shape[0] == 2 else 3
        found[name] = (task.model().eval(), task.loss, inputs, torch.randint(0, classes, (200,), generator=generator))
    for name, parameters, targets in (
        ("regression", NUMBER, torch.rand(200, generator=generator) * 2 - 1),
        ("multi-label", LABELS, _labels(generator)),
        ("discrete-survival", TIMES | {"layers": 1, "hidden": 8}, _times(generator)),
        ("piecewise-exponential", TIMES, _times(generator)),
    ):
        task = tasks.load(name, parameters)
        inputs = torch.randn(200, 2, generator=generator)
        found[name] = (task.model().eval(), task.loss, inputs, targets)
    for name, (parameters, shape) in CONVOLUTIONAL.items():
        task: Any = tasks.load(name, parameters)
        inputs = torch.randn(200, *task.shape, generator=generator)
        targets = _labels(generator) if shape == (3,) else torch.randint(0, 3, (200, *shape), generator=generator)
        found[name] = (task.model().eval(), task.loss, inputs, targets)
    torch.manual_seed(3)
    cross = nn.CrossEntropyLoss(reduction="none")
    inputs = torch.randn(200, 96, generator=generator)
    images = tasks.load("cnn", IMAGES)
    adapted = images.model()
    adapt(adapted, 2, "7")
    for p in adapted.parameters():
        # Adapters whose second matrix is not zero, as after a round.
        nn.init.normal_(p, std=0.2)
    pictures, labels = found["cnn"][2:]
    found["adapters"] = (adapted.eval(), images.loss, pictures, labels)
    found["relu"] = (_relu(inputs[0]), cross, inputs, torch.randint(0, 3, (200,), generator=generator))
    tokens, numbers = torch.randint(0, 7, (200, 9), generator=generator), torch.randn(200, generator=generator)
    found["cell in a loop"] = (Cell(5, 9), squared_error, torch.randn(200, 6, 5, generator=generator), numbers)
    found["tied table"] = (Language(7, 16, 0, "other padding"), squared_error, tokens, numbers)
    found["lookups of one table"] = (Language(7, 16, 0, "twice"), squared_error, tokens, numbers)
    found["encoder, padded"] = (Encoder().eval(), squared_error, tokens, numbers)
    found["encoder, frozen"] = (Encoder().eval(), squared_error, tokens, numbers)
    cast("Any", found["encoder, frozen"][0]).encoder.requires_grad_(False)
    for mode in ("mean", "max"):
        found[f"bag, {mode}"] = (Bagged(mode, 0), squared_error, tokens.clamp(max=5), numbers)
    planes = torch.randn(200, 4, 6, 6, generator=generator)
    model = nn.Sequential(nn.Conv2d(4, 4, 3), fixed(nn.BatchNorm2d(4)), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    found["batch norm, fixed"] = (model, cross, planes, torch.randint(0, 3, (200,), generator=generator))
    for of, masks in (("memory", "causal"), ("itself and memory", "padding, by head")):
        found[f"attention to {of}"] = (Attends(of=of, masks=masks, heads=4), squared_error, tokens, numbers)
    return found


MODELS = models()


class At(Slots):
    """Slots whose places are prescribed: record i of the batch lies in places[i]."""

    def __init__(self, capacity: int, places: list[int]) -> None:
        super().__init__(capacity)
        object.__setattr__(self, "places", places)

    def passes(self, records: int, max_records: int) -> Iterator[Pass]:
        homes = np.full(self.capacity, records)
        homes[self.places] = np.arange(records)  # type: ignore[attr-defined]
        free = homes == records
        yield Pass(*(torch.as_tensor(array) for array in (np.where(free, 0, homes), homes, free)))


def alone(name: str, method: Any, companions: list[int], slot: int, capacity: int) -> tuple[dict[str, Tensor], float]:
    """(clipped gradient, norm) of record 0 in `slot`, beside others whose factors are 0 (norm 10⁶⁰ to clip norm 1).

    The others' own gradients are kept out of the sum by their factor alone, which is what free slots rely on, too.
    """
    model, loss, inputs, targets = MODELS[name]
    gradients = PerRecordGradients(model, loss, method=method)
    free = [place for place in range(capacity) if place != slot]
    rows = torch.tensor([0, *companions])
    seen: dict[str, Tensor] = {}
    # The method is confirmed before its results are changed.
    gradients.norms(inputs[rows], targets[rows], slots=At(capacity, [slot, *free[: len(companions)]]))
    before = gradients._engine.run

    def only_the_first(x: Tensor, y: Tensor) -> Any:
        done = before(x, y)
        whole = done.add_weighted

        def weighted(factors: dict[str, Tensor], into: dict[str, Tensor], **more: Any) -> None:
            whole({n: torch.where(torch.arange(len(f)) == slot, f, 0.0) for n, f in factors.items()}, into, **more)

        done.add_weighted = weighted
        return done

    gradients._engine.run = only_the_first  # type: ignore[method-assign]
    places = At(capacity, [slot, *free[: len(companions)]])
    found = gradients.clipped_sum(inputs[rows], targets[rows], clip_norm=1.0, slots=places)
    seen |= found.gradients
    return seen, float(found.norms[0])


@pytest.mark.quick("logistic-regression-vmap", "mlp-vmap")
@pytest.mark.parametrize("method", ["layerwise", "vmap"])
@pytest.mark.parametrize("name", MODELS)
def test_a_record_has_one_gradient_in_a_slot_whoever_is_beside_it(name: str, method: Any) -> None:
    capacity, draw = 40, np.random.default_rng(4)
    for slot in (0, 7, 39):
        first, norm = alone(name, method, [], slot, capacity)
        assert any(bool(value.any()) for value in first.values())
        for count in (1, 5, 38, 39):
            others = [int(i) for i in draw.choice(np.arange(1, 200), count, replace=False)]
            again, same = alone(name, method, others, slot, capacity)
            assert same == norm
            for parameter, value in first.items():
                assert torch.equal(value, again[parameter]), (parameter, count)


def test_without_slots_the_shape_of_a_batch_shows_in_a_record_s_gradient() -> None:
    """What slots are for: one record by itself and beside five others, under weights chosen to tell these apart."""
    model, loss, inputs, targets = MODELS["relu"]
    gradients = PerRecordGradients(model, loss, method="layerwise")
    alone, beside = (float(gradients.norms(inputs[:n], targets[:n])[0]) for n in (1, 6))
    assert abs(alone - beside) > 1e-3 * alone
    held = Slots(8)
    alone, beside = (float(gradients.norms(inputs[:n], targets[:n], slots=held)[0]) for n in (1, 6))
    assert alone == beside


@pytest.mark.quick("0-layerwise", "0-vmap", "1-vmap", "20-vmap", "33-vmap")
@pytest.mark.parametrize("method", ["layerwise", "vmap"])
@pytest.mark.parametrize("count", [0, 1, 20, 33, 150])
def test_slots_change_nothing_but_rounding(method: Any, count: int) -> None:
    model, loss, inputs, targets = MODELS["cnn"]
    gradients = PerRecordGradients(model, loss, method=method)
    plain = gradients.clipped_sum(inputs[:count], targets[:count], clip_norm=0.3)
    slots = Slots.random(24.0, SeededSource(5, allow_insecure=True))
    placed = gradients.clipped_sum(inputs[:count], targets[:count], clip_norm=0.3, slots=slots)
    torch.testing.assert_close(placed.norms, plain.norms, rtol=1e-5, atol=0.0)
    for name, value in plain.gradients.items():
        torch.testing.assert_close(placed.gradients[name].float(), value, rtol=2e-4, atol=2e-6)
    assert (plain.rounding, placed.rounding > 0) == (0.0, True)


def test_one_record_more_moves_the_sum_by_no_more_than_is_said() -> None:
    """Every record of a batch left out in turn, the others in their slots: at most clip norm and rounding."""
    for name, method in itertools.product(("relu", "cnn", "last-layer"), ("layerwise", "vmap")):
        model, loss, inputs, targets = MODELS[name]
        gradients = PerRecordGradients(model, loss, method=method)  # type: ignore[arg-type]
        whole = gradients.clipped_sum(inputs[:30], targets[:30], clip_norm=0.05, slots=At(40, list(range(30))))
        for gone in (0, 13, 29):
            rest = [i for i in range(30) if i != gone]
            less = gradients.clipped_sum(inputs[rest], targets[rest], clip_norm=0.05, slots=At(40, rest))
            moved = math.sqrt(
                sum(float((whole.gradients[n].double() - less.gradients[n]).square().sum()) for n in whole.gradients)
            )
            assert moved <= 0.05 + whole.rounding
            assert whole.rounding < 0.05 * 2e-3


def test_places_are_every_choice_alike_and_whoever_is_left_out_changes_nobody_else_s() -> None:
    """Three records in four slots: 24 places alike; any two of them have the law of two alone."""
    source, seen = SeededSource(6, allow_insecure=True), Counter[tuple[int, ...]]()
    draws = 24_000
    for _ in range(draws):
        (only,) = Slots(4, lambda n: source.words(n, np.uint64)).passes(3, 8)
        assert only.homes is not None
        place = {int(record): slot for slot, record in enumerate(only.homes)}
        seen[tuple(place[record] for record in range(3))] += 1
    assert len(seen) == 24
    chi = sum((count - draws / 24) ** 2 / (draws / 24) for count in seen.values())
    # 23 degrees of freedom: above 75 with probability 2·10⁻⁷.
    assert chi < 75
    pairs = Counter((a, b) for (a, b, _), count in seen.items() for _ in range(count))
    assert len(pairs) == 12
    assert sum((count - draws / 12) ** 2 / (draws / 12) for count in pairs.values()) < 55


@pytest.mark.parametrize(
    ("records", "capacity", "most"), [(1, 1, 1), (5, 8, 3), (8, 8, 8), (9, 8, 8), (50, 20, 7), (3, 200, 64)]
)
def test_every_record_runs_once_in_passes_of_one_shape(records: int, capacity: int, most: int) -> None:
    source, widths, ran = SeededSource(7, allow_insecure=True), set(), []
    for here in Slots(capacity, lambda n: source.words(n, np.uint64)).passes(records, most):
        assert isinstance(here.rows, Tensor)
        assert here.homes is not None
        assert here.free is not None
        widths.add(len(here.rows))
        ran += here.rows[~here.free].tolist()
        assert torch.equal(here.homes, torch.where(here.free, records, here.rows))
        assert set(here.rows[here.free].tolist()) <= set(ran)
    assert sorted(ran) == list(range(records))
    assert len(widths) == 1
    assert widths.pop() <= most
    assert sorted(row for here in in_order(records, most) for row in range(records)[here.rows]) == list(range(records))  # type: ignore[index]


def test_room_costs_little_and_most_batches_fit() -> None:
    for expected in (16.0, 64.0, 256.0, 600.0):
        room = slots_for(expected)
        assert room / expected <= 1 + 2 / math.sqrt(expected) + 1 / expected
        # One batch in 40 takes a further pass, and no more.
        assert poisson.sf(room, expected) <= 1 / 40
    assert slots_for(0.01) == 1
    assert MIN_PASS_RECORDS <= MAX_PASS_RECORDS
