"""A call that draws random numbers is told from one beside which another thread draws."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from private_learning.gradients.random_draws import call_and_watch

X = torch.linspace(-1, 1, 12).view(3, 4)
ATTENTION = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).eval()


@pytest.mark.parametrize(
    ("call", "draws"),
    [
        (lambda: nn.functional.dropout(X, 0.5, training=True), True),
        (lambda: X + torch.randn(3, 4), True),
        (lambda: X[torch.randperm(3)], True),
        (lambda: X + np.random.default_rng().normal(), False),
        (lambda: X + np.random.normal(), True),
        (lambda: X + random.random(), True),
        (lambda: nn.functional.dropout(X, 0.5, training=False), False),
        (lambda: ATTENTION(X.unsqueeze(0)), False),
        (lambda: X.softmax(1), False),
    ],
    ids=["dropout", "noise", "permutation", "own generator", "numpy", "python", "no dropout", "attention", "nothing"],
)
def test_a_call_that_moves_a_generator_draws(call: Callable[[], torch.Tensor], draws: bool) -> None:
    returned, found = call_and_watch(call)
    assert returned.shape[-2:] == (3, 4)
    assert found == draws


def test_what_another_thread_draws_is_not_the_call_s() -> None:
    """The other thread draws within every call, so that the generator has always moved afterwards."""

    def call() -> torch.Tensor:
        other = threading.Thread(target=torch.rand, args=(4,))
        other.start()
        other.join()
        return X * 2

    assert not call_and_watch(call)[1]
