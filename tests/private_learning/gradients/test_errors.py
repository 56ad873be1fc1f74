"""What stops a private step says where, and each has its own kind."""

from __future__ import annotations

import pickle

from private_learning.gradients.errors import NonFiniteError, NotLayerwise, UnsupportedLayer


def test_a_place_is_named_and_nothing_is_released() -> None:
    error = NonFiniteError("the loss")
    assert error.where == "the loss"
    assert "the loss contains NaN or infinity" in str(error)
    assert "the step was stopped before any release" in str(error)


def test_a_fallback_is_not_mistaken_for_a_refusal() -> None:
    assert not issubclass(NotLayerwise, UnsupportedLayer | NonFiniteError)
    assert issubclass(UnsupportedLayer, TypeError)
    assert issubclass(NonFiniteError, ArithmeticError)
    assert str(pickle.loads(pickle.dumps(NotLayerwise("why")))) == "why"
