"""The errors as they are drawn."""

from __future__ import annotations

from accounting import errors


def test_every_error_is_drawn_in_the_tree() -> None:
    assert errors.__doc__ is not None
    defined = [name for name, value in vars(errors).items() if isinstance(value, type)]
    assert all(name in errors.__doc__ for name in defined)
    assert all(issubclass(getattr(errors, name), errors.AccountingError) for name in defined)
