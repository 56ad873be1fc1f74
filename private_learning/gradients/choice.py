"""The method by which a study's gradients are computed: chosen before round 1, and the same in every round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from private_learning.gradients.generated import Shapes


@dataclass(frozen=True)
class GradientChoice:
    """The result of the trial on generated records. It is public: no record has a part in it.

    method       "layerwise", "vmap" or "one by one"
    micro_batch  records of one pass
    loss_together  whether a loss of a user's own runs on all rows of a pass at once, each by itself (torch.func.vmap).
                 None for a built-in loss.
    shapes       of one record's inputs and targets, and their types
    reason       of the method, for people
    """

    method: str
    micro_batch: int
    loss_together: bool | None
    shapes: str
    reason: str

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Self:
        """Return the choice that `to_dict` described."""
        return cls(**body)

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return asdict(self)


def shapes_in_words(shapes: Shapes) -> str:
    """Return shapes and types of one record, such as "(3, 32, 32) torch.float32 -> () torch.int64"."""
    inputs, targets = tuple(shapes.inputs), tuple(shapes.targets)
    return f"{inputs} {shapes.inputs_dtype} -> {targets} {shapes.targets_dtype}"
