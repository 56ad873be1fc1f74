"""The faster product is the same product: compared with double precision, on both sides of the threshold."""

from __future__ import annotations

import pytest
import torch

from private_learning.gradients import clipping
from private_learning.gradients.clipping import product


@pytest.mark.parametrize("rows", [1, 7, 600])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_matrix_product(rows: int, with_bias: bool, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(rows)
    x, y = (torch.randn(n, 64, generator=random, dtype=dtype) for n in (rows, 80))
    bias = torch.randn(80, generator=random, dtype=dtype) if with_bias else None
    expected = x.double() @ y.double().T + (0 if bias is None else bias.double())
    found = product(x, y, bias)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 if dtype == torch.float32 else 1e-12)


def test_transposed_and_strided_matrices_are_read_as_they_are() -> None:
    random = torch.Generator().manual_seed(1)
    x, y = torch.randn(300, 512, generator=random).T, torch.randn(40, 600, generator=random)[:, ::2]
    assert x.numel() * len(y) >= clipping._WORTHWHILE
    torch.testing.assert_close(product(x, y), x @ y.T, rtol=1e-4, atol=1e-4)


def test_without_the_other_back_end_the_result_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = torch.ones(2048, 32), torch.ones(64, 32)
    found = product(x, y)
    monkeypatch.setattr(clipping, "_operation", lambda: None)
    assert torch.equal(product(x, y), found)


def test_under_autocast_torch_decides() -> None:
    x, y = torch.randn(2048, 32), torch.randn(64, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert product(x, y).dtype == torch.bfloat16
