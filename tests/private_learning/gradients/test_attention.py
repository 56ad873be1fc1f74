"""Attention and transformers layer by layer, against one backward per record; masks, shared weights, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from private_learning.gradients import PerRecordGradients, UnsupportedLayer, terms
from private_learning.gradients.attention import AttentionRule
from private_learning.gradients.errors import NotLayerwise
from private_learning.gradients.inspection import known_layers
from private_learning.gradients.layerwise import Layerwise
from tests.private_learning.gradients.references import assert_exact, squared_error


class Attends(nn.Module):
    """Tokens to positions, attention of the kind asked for, and a last layer; the weights count, too, where asked for.

    of: what it attends to. masks: which there are. Records may lie along the second axis inside.
    """

    def __init__(self, *, of: str, masks: str, heads: int = 2, weights: bool = False, average: bool = True,
                 first: bool = True, bias: bool = True, other_widths: bool = False) -> None:  # fmt: skip
        super().__init__()
        width = 2 * heads
        self.table, self.memory = nn.Embedding(7, width), nn.Embedding(7, 3 if other_widths else width)
        more: dict[str, Any] = {"kdim": 3, "vdim": 3} if other_widths else {}
        self.attention = nn.MultiheadAttention(width, heads, batch_first=first, bias=bias, **more)
        self.head, self.heads, self.first = nn.Linear(width, 2), heads, first
        self.of, self.masks, self.weights, self.average = of, masks, weights, average

    def options(self, x: Tensor) -> dict[str, Any]:
        length, out = x.shape[1], dict[str, Any](need_weights=self.weights, average_attn_weights=self.average)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        if "padding" in self.masks:
            padded = x == 0
            padded[:, 0] = False
            out["key_padding_mask"] = padded
        if "causal" in self.masks:
            out |= {"attn_mask": later, "is_causal": True}
        if "added" in self.masks:
            out["attn_mask"] = torch.zeros(length, length, dtype=torch.float64).masked_fill(later, -2.0)
            if "key_padding_mask" in out:
                out["key_padding_mask"] = -1.5 * out["key_padding_mask"].double()
        if "by head" in self.masks:
            out["attn_mask"] = later.expand(len(x) * self.heads, length, length)
        return out

    def attended(self, found: Tensor, memory: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        if self.of == "itself":
            return self.attention(found, found, found, **options)
        if self.of == "memory":
            return self.attention(found, memory, memory, **options)
        if self.of == "itself and memory":
            once, weights = self.attention(found, found, found, **options)
            return self.attention(once, memory, memory, **options)[0], weights
        return self.attention(found, memory, memory.flip(0 if not self.first else 1), **options)

    def forward(self, x: Tensor) -> Tensor:
        found, memory = self.table(x), self.memory(x.flip(1))
        if not self.first:
            found, memory = found.transpose(0, 1), memory.transpose(0, 1)
        out, weights = self.attended(found, memory, self.options(x))
        out = self.head(out if self.first else out.transpose(0, 1)).flatten(1)
        return out if weights is None else torch.cat([out, weights.flatten(1).square()], 1)


def tokens(*shape: int) -> Tensor:
    return torch.randint(7, shape, generator=torch.Generator().manual_seed(len(shape) + shape[-1]))


def targets(count: int) -> Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


MASKS = ["none", "padding", "causal", "causal, padding", "added", "added, padding", "by head", "by head, padding"]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.sampled_from(["itself", "memory", "itself and memory", "three"]),
       st.sampled_from(MASKS), st.integers(1, 3), *[st.booleans()] * 5)  # fmt: skip
def test_attention_of_every_kind(
    batch: int, length: int, of: str, masks: str, heads: int, weights: bool, average: bool, first: bool, bias: bool,
    other_widths: bool,
) -> None:  # fmt: skip
    torch.manual_seed(batch + 10 * length)
    wide = other_widths and of in ("memory", "three")
    model = Attends(of=of, masks=masks, heads=heads, weights=weights, average=average, first=first, bias=bias,
                    other_widths=wide).double()  # fmt: skip
    assert_exact(model, tokens(batch, length), targets(batch))


class Encoder(nn.Module):
    """A transformer over tokens, padding hidden; in eval mode unless a test says otherwise."""

    def __init__(self, *, before: bool = False, masked: bool = True, nested: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8, padding_idx=0)
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=True, norm_first=before, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=nested and not before)
        self.head, self.masked = nn.Linear(8, 2), masked

    def forward(self, x: Tensor) -> Tensor:
        hidden = (x == 0) & (torch.arange(x.shape[1]) > 0)
        found = self.encoder(self.table(x), src_key_padding_mask=hidden if self.masked else None)
        return self.head(found.masked_fill(hidden.unsqueeze(2), 0.0).sum(1))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.map = nn.Embedding(7, 4), nn.Linear(4, 7)
        self.both = nn.Transformer(4, 2, 1, 1, 6, batch_first=True)
        self.map.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64)
        found = self.both(self.table(x), self.table(x.flip(1)), tgt_mask=causal, tgt_is_causal=True)
        return self.map(found)


@pytest.mark.quick("padded-norm before", "whole-norm before")
@pytest.mark.parametrize("before", [False, True], ids=["norm after", "norm before"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
def test_transformer_encoders(before: bool, masked: bool) -> None:
    torch.manual_seed(0)
    assert_exact(Encoder(before=before, masked=masked).double().eval(), tokens(5, 6), targets(5))


def test_a_whole_transformer_with_a_tied_table() -> None:
    torch.manual_seed(0)
    assert_exact(Decoder().double().eval(), tokens(4, 5), targets(4))


def test_dropout_in_training_mode_is_that_of_the_module() -> None:
    torch.manual_seed(0)
    for model in (Encoder().double().train(), Attends(of="itself", masks="none", weights=True).double()):
        if isinstance(model, Attends):
            model.attention.dropout = 0.4
        gradients = PerRecordGradients(model, squared_error, method="layerwise")
        # The comparison before the first step runs both under one state of the generators.
        assert gradients.norms(tokens(4, 5), targets(4)).min() > 0


@pytest.mark.slow
def test_two_modules_of_one_weight_and_frozen_parts() -> None:
    torch.manual_seed(0)

    class Twins(Attends):
        def __init__(self) -> None:
            super().__init__(of="itself", masks="padding")
            self.other = nn.MultiheadAttention(4, 2, batch_first=True)
            self.other.in_proj_weight = self.attention.in_proj_weight

        def attended(self, found: Tensor, memory: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
            once, _ = super().attended(found, memory, options)
            return self.other(once, memory, memory, **options)

    assert_exact(Twins().double(), tokens(4, 5), targets(4))
    for frozen in ("in_proj_weight", "in_proj_bias", "out_proj.weight"):
        model = Attends(of="memory", masks="none").double()
        model.attention.get_parameter(frozen).requires_grad_(False)
        assert_exact(model, tokens(4, 5), targets(4))


def test_one_module_called_in_two_ways_by_whole_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(terms, "KEEP", 100)
    assert_exact(Attends(of="itself and memory", masks="none").double(), tokens(5, 4), targets(5))


def test_a_record_whose_every_position_is_hidden_counts_as_zero_and_moves_no_other() -> None:
    torch.manual_seed(0)

    class Hidden(Attends):
        def options(self, x: Tensor) -> dict[str, Any]:
            return super().options(x) | {"key_padding_mask": (x == x[:, :1]).all(1, keepdim=True).expand(x.shape)}

    gradients = PerRecordGradients(Hidden(of="itself", masks="none", weights=True).double(), squared_error)
    x, y = tokens(4, 5), targets(4)
    x[3] = x[3, 0]
    norms = gradients.norms(x, y)
    assert torch.isinf(norms).tolist() == [False] * 3 + [True]
    torch.testing.assert_close(norms[:3], gradients.norms(x[:3], y[:3]), rtol=1e-9, atol=0)
    found, rest = (gradients.clipped_sum(x[:count], y[:count], clip_norm=1.0) for count in (4, 3))
    assert (found.failed, rest.failed) == (1, 0)
    torch.testing.assert_close(found.gradients, rest.gradients, rtol=1e-9, atol=1e-12)


def changed(model: Attends, how: str) -> Attends:
    attention = model.attention
    if how == "a layer in place of the last projection":
        attention.out_proj = nn.Linear(4, 4)  # type: ignore[assignment]
    elif how == "patched":
        attention.forward = nn.Identity().forward  # type: ignore[method-assign]
    elif how == "weight norm":
        nn.utils.parametrizations.weight_norm(attention, "in_proj_weight")
    elif how == "another parameter":
        attention.more = nn.Parameter(torch.zeros(1))
    elif how == "subclass":
        attention.__class__ = type("Own", (nn.MultiheadAttention,), {})
    else:
        model.attention = nn.MultiheadAttention(4, 2, batch_first=True, **{how: True})  # type: ignore[arg-type]
    return model


@pytest.mark.parametrize(
    "how",
    ["a layer in place of the last projection", "patched", "weight norm", "another parameter", "subclass",
     "add_bias_kv", "add_zero_attn"],
)  # fmt: skip
def test_what_has_been_changed_is_not_taken(how: str) -> None:
    with pytest.raises(NotLayerwise, match=r"attention|one of its|MultiheadAttention"):
        known_layers(changed(Attends(of="itself", masks="none"), how))


def test_a_weight_used_beside_its_module_and_an_input_changed_afterwards_are_found_out() -> None:
    class Beside(Attends):
        def attended(self, found: Tensor, memory: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
            out, _ = super().attended(found, memory, options)
            return out * self.attention.out_proj.bias.exp(), None

    class Changed(Attends):
        def attended(self, found: Tensor, memory: Tensor, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
            found = torch.tanh(found)
            out, _ = super().attended(found, memory, options)
            with torch.no_grad():
                found += 1
            return out, None

    torch.manual_seed(0)
    for kind, why in ((Beside, "used outside"), (Changed, "changed in place|modified by an inplace")):
        model = kind(of="itself", masks="none").double()
        with pytest.raises(UnsupportedLayer, match=why):
            PerRecordGradients(model, squared_error, method="layerwise").norms(tokens(4, 5), targets(4))


def test_single_sequences_without_a_batch_are_not_taken() -> None:
    model = nn.MultiheadAttention(4, 2).double()
    with pytest.raises(NotLayerwise, match="records, positions, features"):
        Layerwise(_First(model), squared_error).run(torch.randn(4, 4, dtype=torch.float64), targets(4))


class _First(nn.Module):
    def __init__(self, attention: nn.MultiheadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


def test_the_fused_way_is_off_during_the_step_and_on_again_afterwards() -> None:
    backends: Any = torch.backends.mha
    seen: list[bool] = []
    # Of the whole process: another test's thread may have left it off.
    backends.set_fastpath_enabled(True)

    torch.manual_seed(0)
    model = Encoder().double().eval()
    model.encoder.requires_grad_(False)
    model.register_forward_hook(lambda *_: seen.append(backends.get_fastpath_enabled()))
    PerRecordGradients(model, squared_error, method="layerwise").norms(tokens(4, 6), targets(4))
    assert set(seen) == {False}
    assert backends.get_fastpath_enabled()


@pytest.mark.parametrize("widths", [{}, {"kdim": 3, "vdim": 5}], ids=["one width", "other widths"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_maps_hold_every_parameter_and_no_other(bias: bool, widths: dict[str, int]) -> None:
    module = nn.MultiheadAttention(4, 2, bias=bias, **widths)
    names = {name: f"model.{name}" for name, _ in module.named_parameters()}
    rule = AttentionRule("attention", module, names)
    assert {name for part in rule.parts for name in part.names.values()} == set(names.values())
    assert set(names) <= AttentionRule.expected(module)


@pytest.mark.parametrize("option", [{"add_bias_kv": True}, {"add_zero_attn": True}])
def test_a_position_that_the_module_adds_is_not_taken(option: dict[str, bool]) -> None:
    with pytest.raises(NotLayerwise, match="adds a position"):
        AttentionRule("attention", nn.MultiheadAttention(4, 2, **option), {})
