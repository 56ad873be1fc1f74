"""What has no closed form is found out and done another way, or refused; never silently wrong."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from private_learning.gradients import PerRecordGradients, Slots, UnsupportedLayer
from private_learning.gradients.generated import ExampleMakers


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    flat = outputs.flatten(1)
    return (torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype) * (flat - targets[:, None]) ** 2).sum(1)


class WithLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)


class UsesWeightElsewhere(WithLinear):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + functional.linear(torch.sin(x), self.layer.weight)


class PenalisesWeight(WithLinear):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.layer.bias.exp()


class TurnsAxes(WithLinear):
    """With five records of five rows nothing but the comparison with autograd can tell the axes apart."""

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1)).transpose(0, 1)


class TurnsRecords(WithLinear):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flip(0)).flip(0)


class OwnParameter(WithLinear):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class ScaledLinear(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 3 * super().forward(input)


class SubclassInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = ScaledLinear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class MaskedGradient(WithLinear):
    def __init__(self) -> None:
        super().__init__()
        self.layer.weight.register_hook(lambda grad: grad * 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class OwnGru(nn.GRU):
    """Whatever a subclass may compute."""


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = OwnGru(5, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


def reparametrised() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 5)), nn.Tanh())


def patched() -> nn.Module:
    model = WithLinear()
    plain = model.layer.forward
    model.layer.forward = lambda x: 2 * plain(x)
    return nn.Sequential(model.layer)


@pytest.mark.parametrize(
    ("make", "method"),
    [
        (UsesWeightElsewhere, "vmap"),
        (PenalisesWeight, "vmap"),
        (TurnsAxes, "vmap"),
        (TurnsRecords, "vmap"),
        (OwnParameter, "vmap"),
        (SubclassInside, "vmap"),
        (MaskedGradient, "vmap"),
        (reparametrised, "vmap"),
        (patched, "vmap"),
        (lambda: nn.Sequential(nn.Linear(5, 5), nn.PReLU()), "vmap"),
        (lambda: nn.Sequential(nn.Conv1d(5, 4, 2), nn.ConvTranspose1d(4, 3, 2)), "vmap"),
        (lambda: nn.Sequential(nn.Bilinear(5, 5, 3)), "vmap"),
        (Recurrent, "one by one"),
    ],
)
def test_models_without_closed_form(make: object, method: str) -> None:
    torch.manual_seed(0)
    model = make().double()  # type: ignore[operator]
    if isinstance(model[0] if isinstance(model, nn.Sequential) else None, nn.Bilinear):
        bilinear = model[0]
        model.forward = lambda x: bilinear(x, torch.cos(x))
    inputs, targets = torch.randn(5, 5, 5, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    gradients = PerRecordGradients(model, squared_error)
    found = gradients.clipped_sum(inputs, targets, clip_norm=1e9)
    assert gradients.method == method, gradients.reason
    assert gradients.reason
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = [
        torch.autograd.grad(squared_error(model(inputs[i : i + 1]), targets[i : i + 1]).sum(), parameters)
        for i in range(5)
    ]
    if isinstance(model, MaskedGradient):
        # torch.func differentiates the function and does not see tensor hooks.
        rows = [(weight * 2, bias) for weight, bias in rows]
    true = torch.stack([torch.cat([g.flatten() for g in row]).norm() for row in rows])
    torch.testing.assert_close(found.norms, true, rtol=1e-9, atol=0)
    for (name, total), *each in zip(found.gradients.items(), *rows, strict=True):
        torch.testing.assert_close(total, sum(each), rtol=1e-9, atol=1e-12, msg=name)


def test_a_parameter_that_reaches_the_loss_elsewhere_on_a_later_batch_only() -> None:
    class Moody(WithLinear):
        forked = False

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            return y * self.layer.bias if self.forked else y

    torch.manual_seed(0)
    model = Moody().double()
    inputs, targets = torch.randn(3, 5, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    gradients = PerRecordGradients(model, squared_error)
    gradients.norms(inputs, targets)
    assert gradients.method == "layerwise"
    model.forked = True
    # Whoever came in this batch would have decided the method for all, or ended the round.
    found = gradients.clipped_sum(inputs, targets, clip_norm=1e9)
    assert (found.failed, gradients.method) == (3, "layerwise")
    assert not any(value.any() for value in found.gradients.values())


def test_asking_for_layerwise_refuses_instead_of_falling_back() -> None:
    with pytest.raises(UnsupportedLayer, match="PReLU"):
        PerRecordGradients(nn.Sequential(nn.Linear(2, 2), nn.PReLU()), squared_error, method="layerwise")
    late = PerRecordGradients(UsesWeightElsewhere(), squared_error, method="layerwise")
    with pytest.raises(UnsupportedLayer, match="outside of its layer"):
        late.norms(torch.randn(3, 5), torch.randn(3))


@pytest.mark.parametrize(
    ("model", "advice"),
    [
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4)), "GroupNorm"),
        (nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4, track_running_stats=False).eval()), "GroupNorm"),
        (nn.Sequential(nn.Linear(5, 4), nn.SyncBatchNorm(4)), "GroupNorm"),
        (nn.Sequential(nn.Conv1d(5, 4, 1), nn.InstanceNorm1d(4, track_running_stats=True)), "track_running_stats"),
        (nn.Embedding(4, 4, max_norm=1.0), "max_norm"),
        (nn.Embedding(4, 4, scale_grad_by_freq=True), "scale_grad_by_freq"),
    ],
)
def test_layers_that_mix_records_are_refused_with_advice(model: nn.Module, advice: str) -> None:
    with pytest.raises(UnsupportedLayer, match=advice):
        PerRecordGradients(model, squared_error)


def test_public_batch_norm_in_eval_mode_is_fine_until_it_trains() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    model[1].requires_grad_(False)
    gradients = PerRecordGradients(model, squared_error)
    gradients.norms(torch.randn(3, 5), torch.randn(3))
    assert gradients.method == "layerwise"
    model.train()
    with pytest.raises(UnsupportedLayer, match="mixes the records"):
        gradients.norms(torch.randn(3, 5), torch.randn(3))


class SubtractsBatchMean(WithLinear):
    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x - x.mean(0))


class CountsRecords(WithLinear):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.detach().sum(0)
        return self.layer(x)


def test_mixing_that_no_layer_type_reveals_is_found() -> None:
    inputs, targets = torch.randn(4, 5), torch.randn(4)
    with pytest.raises(UnsupportedLayer, match="other records"):
        PerRecordGradients(SubtractsBatchMean(), squared_error).norms(inputs, targets)
    counting = CountsRecords()
    with pytest.raises(UnsupportedLayer, match="'seen'"):
        PerRecordGradients(counting, squared_error).norms(inputs, targets)
    assert not counting.seen.any()


def test_a_loss_that_compares_records_is_found() -> None:
    def centred(outputs: Tensor, targets: Tensor) -> Tensor:
        return squared_error(outputs - outputs.mean(0), targets)

    with pytest.raises(UnsupportedLayer, match="other records"):
        PerRecordGradients(nn.Linear(5, 2), centred).norms(torch.randn(4, 5), torch.randn(4))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_parameters_below_float32_are_refused_with_advice(dtype: torch.dtype) -> None:
    with pytest.raises(UnsupportedLayer, match=r"model\.float\(\)"):
        PerRecordGradients(nn.Linear(5, 2).to(dtype), squared_error)


class Picky(WithLinear):
    """Takes nothing but what its task knows."""

    def forward(self, x: Tensor) -> Tensor:
        if bool((x < 100).any()):
            raise ValueError("below 100")
        return self.layer(x)


def test_a_model_that_takes_no_generated_inputs_is_refused_by_the_name_of_the_hook() -> None:
    inputs, targets = torch.full((4, 5), 120.0), torch.ones(4)
    with pytest.raises(UnsupportedLayer, match="example_inputs"):
        PerRecordGradients(Picky(), squared_error).norms(inputs, targets)
    known = ExampleMakers(inputs=lambda count, draw: torch.as_tensor(draw.uniform(100, 200, (count, 5))).float())
    gradients = PerRecordGradients(Picky(), squared_error, examples=known)
    gradients.norms(inputs, targets)
    assert gradients.method == "one by one"


def test_nothing_is_decided_by_the_records_that_are_given() -> None:
    """Crafted records, constant ones and ordinary ones: one method, one size of passes, for the same shapes."""
    seen = set()
    for inputs in (torch.zeros(4, 5), torch.full((4, 5), 1e3), torch.randn(4, 5)):
        torch.manual_seed(0)
        gradients = PerRecordGradients(WithTanh(), squared_error)
        gradients.norms(inputs, torch.ones(4))
        seen.add((gradients.method, gradients.reason, gradients.micro_batch))
    assert len(seen) == 1


class WithTanh(WithLinear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)) * self.layer.bias


def test_bad_arguments_are_named() -> None:
    gradients = PerRecordGradients(nn.Linear(5, 2), squared_error)
    inputs, targets = torch.randn(4, 5), torch.randn(4)
    with pytest.raises(ValueError, match="reduction='none'"):
        PerRecordGradients(nn.Linear(5, 2), lambda o, t: squared_error(o, t).mean()).norms(inputs, targets)
    with pytest.raises(ValueError, match="one row per record"):
        gradients.norms(inputs, targets[:3])
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="clip_norm"):
            gradients.clipped_sum(inputs, targets, clip_norm=bad)
    with pytest.raises(ValueError, match="method"):
        PerRecordGradients(nn.Linear(5, 2), squared_error, method="fast")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="micro_batch"):
        PerRecordGradients(nn.Linear(5, 2), squared_error, micro_batch=0)
    with pytest.raises(ValueError, match="no trainable"):
        PerRecordGradients(nn.Linear(5, 2).requires_grad_(False), squared_error)
    with pytest.raises(ValueError, match="one floating type"):
        PerRecordGradients(nn.Sequential(nn.Linear(5, 2), nn.Linear(2, 2).double()), squared_error)


@pytest.mark.quick("auto-nan", "vmap-inf")
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["auto", "vmap"])
def test_a_record_with_values_that_are_not_finite_adds_zero(bad: float, method: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(5, 2)
    inputs, targets = torch.randn(4, 5), torch.randn(4)
    gradients = PerRecordGradients(model, squared_error, method=method)  # type: ignore[arg-type]
    gradients.norms(inputs, targets)
    poisoned = inputs.clone()
    poisoned[2, 1] = bad
    others = [0, 1, 3]
    slots = Slots(8)
    found = gradients.clipped_sum(poisoned, targets, clip_norm=1.0, slots=slots)
    expected = gradients.clipped_sum(inputs[others], targets[others], clip_norm=1.0, slots=slots)
    assert (found.failed, float(found.norms[2])) == (1, math.inf)
    assert torch.equal(found.norms[others], expected.norms)
    for name, value in found.gradients.items():
        torch.testing.assert_close(value, expected.gradients[name])
    every = gradients.clipped_sum(inputs, targets * bad, clip_norm=1.0)
    assert every.failed == 4
    assert all(not value.any() for value in every.gradients.values())
    with torch.no_grad():
        model.weight[0, 0] = bad
    assert gradients.clipped_sum(inputs, targets, clip_norm=1.0).failed == 4


def test_a_non_finite_gradient_behind_a_finite_loss_is_found() -> None:
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    root = PerRecordGradients(model, lambda o, t: o.abs().sqrt().sum(1) + 0 * t)
    inputs = torch.ones(3, 1, dtype=torch.float64)
    assert root.norms(inputs, torch.zeros(3, dtype=torch.float64)).tolist() == [math.inf] * 3


class Unlisted(nn.Module):
    """(batch, 4, 5) to (batch, 4, 5) by a layer that has no closed form, with options that hypothesis draws."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.layer: nn.Module = {
            "PReLU": lambda: nn.PReLU(4),
            "RMSNorm": lambda: nn.RMSNorm(5),
            "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 4, 3, padding=1),
            "Conv3d": lambda: nn.Conv3d(1, 1, (1, 3, 3), padding=(0, 1, 1)),
            "Bilinear": lambda: nn.Bilinear(5, 5, 5),
            "MultiheadAttention": lambda: nn.MultiheadAttention(5, 1, batch_first=True),
            "subclass of Linear": lambda: ScaledLinear(5, 5),
            "orthogonal weight": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(5, 5)),
            "own parameter": lambda: OwnParameter(),
        }[kind]()

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "Conv3d":
            return self.layer(x[:, None, None])[:, 0, 0]
        if self.kind == "Bilinear":
            return self.layer(x, torch.cos(x))
        if self.kind == "MultiheadAttention":
            return self.layer(x, x, x, need_weights=False)[0]
        return self.layer(x)


class Wrapped(nn.Module):
    """An unlisted layer between listed ones; the linear layers may share a weight, parameters may be frozen."""

    def __init__(self, kind: str, tied: bool, frozen: set[int]) -> None:
        super().__init__()
        self.before, self.middle, self.after = nn.Linear(5, 5), Unlisted(kind), nn.Linear(5, 5)
        if tied:
            self.after.weight = self.before.weight
        parameters = list(self.parameters())
        for k in frozen:
            parameters[k % (len(parameters) - 1)].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.tanh(self.middle(torch.tanh(self.before(x)))))


UNLISTED = (
    "PReLU", "RMSNorm", "ConvTranspose1d", "Conv3d", "Bilinear", "MultiheadAttention", "subclass of Linear",
    "orthogonal weight", "own parameter",
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(UNLISTED),
    tied=st.booleans(),
    frozen=st.sets(st.integers(0, 9), max_size=4),
    batch=st.integers(1, 6),
    seed=st.integers(0, 2**20),
)
def test_unlisted_layers_are_never_silently_wrong(
    kind: str, tied: bool, frozen: set[int], batch: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = Wrapped(kind, tied, frozen).double()
    inputs, targets = torch.randn(batch, 4, 5, dtype=torch.float64), torch.randn(batch, dtype=torch.float64)
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows = []
    for i in range(batch):
        loss = squared_error(model(inputs[i : i + 1]), targets[i : i + 1]).sum()
        found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
        rows.append([torch.zeros_like(p) if g is None else g for p, g in zip(parameters.values(), found, strict=True)])
    true = torch.stack([torch.cat([g.flatten() for g in row]).norm() for row in rows])
    clip_norm = float(true.median())

    clipped = PerRecordGradients(model, squared_error, micro_batch=4).clipped_sum(inputs, targets, clip_norm=clip_norm)
    torch.testing.assert_close(clipped.norms, true, rtol=1e-9, atol=0)
    assert list(clipped.gradients) == list(parameters)
    for k, value in enumerate(clipped.gradients.values()):
        expected = sum(row[k] * min(1.0, clip_norm / float(size)) for row, size in zip(rows, true, strict=True))
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-10 * clip_norm * batch)
