"""Modules whose parameters act through several affine maps: attention, recurrent layers.

Such a module runs as a forward of our own, called in place of its own one, in which every affine map is a layer of
known per-record gradients. What lies between the maps is autograd's, or a function of the rule's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from torch import nn

from private_learning.gradients.capture import Capture
from private_learning.gradients.layers import Layer, LinearLayer


class Affine(LinearLayer):
    """x ↦ x Wᵀ + b, with W and b two parameters of a module; to the rest of the code a linear layer."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        names: dict[str, str],
        weight: str,
        bias: str | None = None,
        rows: Mapping[str, slice] | None = None,
    ) -> None:
        """names: the composite's. weight, bias: own names there, dotted ones those of a child. rows: of which it is."""
        self.rows = rows or {}
        self._where = {"weight": weight, "bias": bias}
        super().__init__(name, module, {key: names[path] for key, path in self._where.items() if path in names})

    def own(self, key: str) -> Any:
        path = self._where[key]
        parameter = None if path is None else attrgetter(path)(self.module)
        if parameter is None:
            return None
        return parameter.detach()[self.rows.get(key, slice(None))]


class Composite(ABC):
    """One module of several affine maps. Construction raises NotLayerwise for what the rule does not describe.

    name, module: as of a Layer. The module's children belong to it and are not looked at by themselves.
    names: own parameter name (dotted for a child's) -> name in the model, trainable ones only.
    packs: whether it takes packed sequences. Then its forward is called even where all its parameters are frozen.
    """

    packs = False

    def __init__(self, name: str, module: nn.Module, names: dict[str, str]) -> None:
        self.name = name
        self.module: Any = module
        self.names = names

    @staticmethod
    @abstractmethod
    def expected(module: Any) -> set[str]:
        """Own names of all parameters that the rule knows, those that are None included."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Layer]:
        """The affine maps; together they hold every trainable parameter."""

    @abstractmethod
    def forward(self, capture: Capture, *args: Any, **kwargs: Any) -> Any:
        """What module.forward(*args, **kwargs) gives, in its mode, its parameters taken from the parts alone.

        In it `capture.call(part, x)` runs a part and records its use, with the records along x's first axis; or
        `capture.record(part, x)` records one whose `output_grad` an autograd function of the rule fills in. Raises
        NotLayerwise for arguments that the rule does not describe.
        """
