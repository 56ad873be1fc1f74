"""What stops a private step before anything is released."""

from __future__ import annotations


class UnsupportedLayer(TypeError):
    """A layer lets one record's gradient depend on another record, or stores raw statistics of the data."""


class NonFiniteError(ArithmeticError):
    """NaN or infinity was met; `where` names the place. Nothing was clipped, nothing may be released."""

    def __init__(self, where: str) -> None:
        super().__init__(f"{where} contains NaN or infinity; the step was stopped and nothing was released")
        self.where = where


class NotLayerwise(Exception):
    """Layer-wise book-keeping does not describe this model: the caller falls back to per-record gradients."""
