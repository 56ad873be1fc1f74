"""Errors that stop a private step before anything is released."""

from __future__ import annotations


class UnsupportedLayer(TypeError):
    """A layer lets one record's gradient depend on another record, or stores raw statistics of the data."""


class NonFiniteError(ArithmeticError):
    """NaN or infinity in the quantity that `where` names. Clipping and release have not happened."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} contains NaN or infinity: the step was stopped before any release")
        self.where = where

    def __reduce__(self) -> tuple[type[NonFiniteError], tuple[str]]:
        # Raised in another process, it is made again of this and not of its text.
        return type(self), (self.where,)


class DeviceLost(RuntimeError):
    """The process of a further device has ended, or could not begin. The step released no result."""

    def __init__(self, device: str) -> None:
        super().__init__(
            f"the process that computed on device {device} has ended: was it killed, or out of memory? The step "
            "released no result. Start again, and name fewer devices if it happens again"
        )


class NotLayerwise(Exception):
    """Layer-wise book-keeping does not describe this model: the caller falls back to per-record gradients."""
