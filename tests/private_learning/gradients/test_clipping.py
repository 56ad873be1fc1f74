"""What a clipped sum promises: its sensitivity, its centre, its groups, its empty batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import NonFiniteError, PerRecordGradients, Slots
from private_learning.gradients.layers import cross_entropy, logistic
from study_protocol.study.clip_norm import MIN_CLIP_NORM


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.flatten(1) - targets[:, None]).square().sum(1)


def network(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.GroupNorm(2, 4),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(4 * 16, 8),
        nn.Tanh(),
        nn.Linear(8, 2),
    ).to(dtype)


def length(gradients: Mapping[str, Tensor]) -> float:
    return math.sqrt(sum(float(value.double().square().sum()) for value in gradients.values()))


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one[name].double() - other[name].double() for name in one}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**20),
    batch=st.integers(0, 9),
    clip_norm=st.floats(1e-4, 1e3),
    size=st.sampled_from([1e-6, 1.0, 1e4]),
    method=st.sampled_from(["layerwise", "vmap"]),
    groups=st.booleans(),
    centred=st.booleans(),
)
def test_one_more_record_never_moves_the_sum_by_more_than_the_clip_norm(
    seed: int, batch: int, clip_norm: float, size: float, method: str, groups: bool, centred: bool
) -> None:
    model = network()
    torch.manual_seed(seed)
    inputs, targets = torch.randn(batch + 1, 1, 6, 6) * size, torch.randn(batch + 1) * size
    gradients = PerRecordGradients(model, squared_error, method=method)  # type: ignore[arg-type]
    names = list(dict(model.named_parameters()))
    chosen = [names[:2], names[2:4], names[4:]] if groups else None
    centre = {name: torch.randn_like(p) * clip_norm for name, p in model.named_parameters()} if centred else None
    sums = [
        gradients.clipped_sum(inputs[:n], targets[:n], clip_norm=clip_norm, groups=chosen, centre=centre)
        for n in (batch, batch + 1)
    ]
    # The sums themselves are float32: their rounding, relative to their length, is the coordinator's to see anyway.
    rounding = 2e-6 * length(sums[1].gradients) if batch else 0.0
    assert length(difference(sums[1].gradients, sums[0].gradients)) <= clip_norm + rounding
    assert sums[1].clip_norm == clip_norm


@pytest.mark.quick("vmap-dtype0", "vmap-dtype1")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["layerwise", "vmap"])
def test_a_single_record_is_within_the_clip_norm_as_computed(dtype: torch.dtype, method: str) -> None:
    gradients = PerRecordGradients(network(dtype), squared_error, method=method)  # type: ignore[arg-type]
    torch.manual_seed(1)
    for scale in (1e-3, 1.0, 30.0, 1e5):
        inputs, targets = torch.randn(1, 1, 6, 6, dtype=dtype) * scale, torch.full((1,), scale, dtype=dtype)
        for clip_norm in (1e-3, 1.0, 777.7):
            clipped = gradients.clipped_sum(inputs, targets, clip_norm=clip_norm)
            assert length(clipped.gradients) <= clip_norm
            if float(clipped.norms) > clip_norm:
                assert length(clipped.gradients) >= clip_norm * (1 - 2e-4)


def test_unclipped_records_are_left_alone() -> None:
    model = network(torch.float64)
    inputs, targets = torch.randn(5, 1, 6, 6, dtype=torch.float64), torch.zeros(5, dtype=torch.float64)
    clipped = PerRecordGradients(model, squared_error).clipped_sum(inputs, targets, clip_norm=1e6)
    true = torch.autograd.grad(squared_error(model(inputs), targets).sum(), list(model.parameters()))
    for value, expected in zip(clipped.gradients.values(), true, strict=True):
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("method", ["layerwise", "vmap"])
def test_empty_batch_is_zero_and_has_no_norms(method: str) -> None:
    model = network()
    gradients = PerRecordGradients(model, squared_error, method=method)  # type: ignore[arg-type]
    empty = gradients.clipped_sum(torch.zeros(0, 1, 6, 6), torch.zeros(0), clip_norm=1.0)
    assert {name: value.shape for name, value in empty.gradients.items()} == {
        name: p.shape for name, p in model.named_parameters()
    }
    assert length(empty.gradients) == 0.0
    assert empty.norms.shape == (0,)
    assert gradients.norms(torch.zeros(0, 1, 6, 6), torch.zeros(0)).shape == (0,)


@pytest.mark.parametrize("method", ["layerwise", "vmap"])
def test_centre_clips_the_distance_and_rounds_it_up(method: str) -> None:
    model = network(torch.float64)
    torch.manual_seed(3)
    inputs, targets = torch.randn(6, 1, 6, 6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    rows = []
    for i in range(6):
        loss = squared_error(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(torch.autograd.grad(loss, list(model.parameters())))
    names = list(dict(model.named_parameters()))
    centre = {name: sum(row[k] for row in rows) / 6 for k, name in enumerate(names)}
    apart = [{name: row[k] - centre[name] for k, name in enumerate(names)} for row in rows]
    distances = torch.tensor([length(row) for row in apart], dtype=torch.float64)
    clip_norm = float(distances.median())

    gradients = PerRecordGradients(model, squared_error, method=method, micro_batch=4)  # type: ignore[arg-type]
    clipped = gradients.clipped_sum(inputs, targets, clip_norm=clip_norm, centre=centre)
    torch.testing.assert_close(clipped.norms, distances, rtol=1e-9, atol=0)
    for name in names:
        expected = sum(row[name] * min(1.0, clip_norm / float(d)) for row, d in zip(apart, distances, strict=True))
        torch.testing.assert_close(clipped.gradients[name], expected, rtol=1e-9, atol=1e-10)


def test_a_centre_on_top_of_the_gradient_does_not_hide_its_distance() -> None:
    """‖g − v‖² by the closed form cancels; what is lost to rounding must be added, not dropped."""
    model = nn.Linear(40, 30)
    torch.manual_seed(0)
    inputs, targets = torch.randn(1, 40), torch.randn(1)
    gradient = torch.autograd.grad(squared_error(model(inputs), targets).sum(), list(model.parameters()))
    names = ["weight", "bias"]
    for away in (1e-1, 1e-3, 1e-5):
        centre = {name: g * (1 + away) for name, g in zip(names, gradient, strict=True)}
        true = length({name: g.double() - centre[name].double() for name, g in zip(names, gradient, strict=True)})
        found = PerRecordGradients(model, squared_error).clipped_sum(inputs, targets, clip_norm=1.0, centre=centre)
        assert float(found.norms) >= true * (1 - 1e-5)
        assert length(found.gradients) <= 1.0


def test_groups_are_clipped_apart_and_share_the_clip_norm() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).double()
    torch.manual_seed(0)
    inputs, targets = torch.randn(1, 3, dtype=torch.float64) * 9, torch.randn(1, dtype=torch.float64)
    names = list(dict(model.named_parameters()))
    groups = [names[:2], names[2:]]
    found = PerRecordGradients(model, squared_error).clipped_sum(inputs, targets, clip_norm=0.1, groups=groups)
    for group in groups:
        part = length({name: found.gradients[name] for name in group})
        assert part == pytest.approx(0.1 / math.sqrt(2), rel=1e-9)
        assert part <= 0.1 / math.sqrt(2)


def test_groups_and_centre_are_checked() -> None:
    model = nn.Linear(3, 1)
    gradients = PerRecordGradients(model, squared_error)
    inputs, targets = torch.randn(2, 3), torch.randn(2)
    for groups in ([["weight"]], [["weight", "bias"], ["bias"]], [["weight", "bias"], []], [["weight", "other"]]):
        with pytest.raises(ValueError, match="exactly once"):
            gradients.clipped_sum(inputs, targets, clip_norm=1.0, groups=groups)
    whole = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    with pytest.raises(ValueError, match="every trainable parameter"):
        gradients.clipped_sum(inputs, targets, clip_norm=1.0, centre={"weight": whole["weight"]})
    with pytest.raises(ValueError, match="shape"):
        gradients.clipped_sum(inputs, targets, clip_norm=1.0, centre=whole | {"bias": torch.zeros(7)})
    with pytest.raises(NonFiniteError, match="bias"):
        gradients.clipped_sum(inputs, targets, clip_norm=1.0, centre=whole | {"bias": torch.full((1,), math.nan)})


def test_a_centre_of_a_convolution_whose_gradients_are_too_many_to_keep() -> None:
    torch.manual_seed(5)
    model = nn.Conv2d(40, 70, 5, padding=2)
    inputs, targets = torch.randn(65, 40, 7, 7), torch.randn(65)
    rows = []
    for i in (0, 64):
        loss = squared_error(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        rows.append(dict(zip(["weight", "bias"], torch.autograd.grad(loss, list(model.parameters())), strict=True)))
    # Against the first record's direction: a distance that forgets the inner product comes out too small.
    centre = {name: -g for name, g in rows[0].items()}
    gradients = PerRecordGradients(model, squared_error, micro_batch=65)
    found = gradients.clipped_sum(inputs, targets, clip_norm=1.0, centre=centre)
    for row, distance in zip(rows, found.norms[[0, 64]], strict=True):
        assert float(distance) == pytest.approx(length(difference(row, centre)), rel=1e-4)


def rest(signals: Tensor) -> Tensor:
    """The same with the last one such that all of them cancel but for rounding and 0.01."""
    flat = signals.flatten().clone()
    flat[-1] = float(0.01 - flat[:-1].double().sum())
    return flat.view(signals.shape)


class Signalled(nn.Module):
    """A layer whose output's gradient is `signals`, whatever the record."""

    def __init__(self, layer: nn.Module, signals: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.register_buffer("signals", signals)

    def forward(self, x: Tensor) -> Tensor:
        return (self.layer(x) * self.signals).flatten(1).sum(1)


def lookups() -> tuple[nn.Module, Tensor]:
    signals = rest(torch.randn(2000) * 1e6).unsqueeze(1)
    return Signalled(nn.Embedding(5, 4), signals), torch.zeros(8, 2000, dtype=torch.long)


def often() -> tuple[nn.Module, Tensor]:
    return Signalled(nn.Embedding(5, 4), torch.full((100_000, 1), 0.9)), torch.zeros(4, 100_000, dtype=torch.long)


def bags() -> tuple[nn.Module, Tensor]:
    return Signalled(nn.EmbeddingBag(5, 4, mode="sum"), torch.tensor(0.7)), torch.zeros(4, 100_000, dtype=torch.long)


def convolutions() -> tuple[nn.Module, Tensor]:
    model = Signalled(nn.Conv2d(128, 128, 3, bias=False), rest(torch.randn(18, 18) * 1e5))
    return model, torch.rand(64, 128, 1, 1).expand(64, 128, 20, 20).contiguous()


@pytest.mark.quick("bags", "lookups")
@pytest.mark.parametrize("made", [lookups, often, bags, convolutions], ids=lambda made: made.__name__)
def test_places_that_cancel_or_are_many_stay_within_the_clip_norm(made: Callable[[], tuple[nn.Module, Tensor]]) -> None:
    torch.manual_seed(3)
    model, x = made()
    gradients = PerRecordGradients(model, lambda outputs, _targets: outputs, method="layerwise")
    for i in range(2):
        alone = gradients.clipped_sum(x[i : i + 1], torch.zeros(1), clip_norm=1.0, slots=Slots(len(x)))
        assert length(alone.gradients) <= 1.0


@pytest.mark.parametrize(("places", "size"), [(1, 3e-22), (1, 1e-23), (2, 3e-22)], ids=["one", "smaller", "two"])
def test_squares_below_the_smallest_number_are_not_lost_beside_immense_ones(places: int, size: float) -> None:
    gradients = PerRecordGradients(
        nn.Linear(1, 2000, bias=False), lambda outputs, y: outputs.flatten(1).sum(1) * y, method="layerwise"
    )
    ordinary = torch.ones(2, places, 1).squeeze(1)
    gradients.norms(ordinary, torch.ones(2), slots=Slots(2))
    found = gradients.clipped_sum(ordinary * 1e18, torch.full((2,), size), clip_norm=1e-4, slots=Slots(2))
    assert length(found.gradients) <= 2e-4


@pytest.mark.parametrize("outputs", [1, 4000])
def test_no_gradient_passes_the_least_clip_norm_because_its_squares_vanish(outputs: int) -> None:
    """A chance of 2⁻⁷⁶ in every class, beside inputs of 2³⁹: squares of 2⁻¹⁵² are none in float32."""
    model = nn.Linear(4, outputs)
    gradients = PerRecordGradients(model, logistic if outputs == 1 else cross_entropy)
    with torch.no_grad():
        model.weight.zero_()
        model.weight[-min(outputs, 3999) :, 0] = -52.7 * 2.0**-39
        model.bias.zero_()
    x, y = torch.full((2, 4), 2.0**39), torch.zeros(2, dtype=torch.int64)
    whole = gradients.clipped_sum(x, y, clip_norm=MIN_CLIP_NORM, slots=Slots(2))
    rest = gradients.clipped_sum(x[:1], y[:1], clip_norm=MIN_CLIP_NORM, slots=Slots(2))
    moved = sum(float((whole.gradients[key] - rest.gradients[key]).square().sum()) for key in whole.gradients) ** 0.5
    assert 0 < moved <= whole.norms[-1] <= MIN_CLIP_NORM
    with pytest.raises(ValueError, match="at least"):
        gradients.clipped_sum(x, y, clip_norm=MIN_CLIP_NORM / 1e6, slots=Slots(2))
