"""Modules whose parameters act through several affine maps: attention, recurrent layers.

Such a module runs as a forward of this package in place of its own one. In it every affine map is a layer of known
per-record gradients. Between the maps autograd computes, or a function of the rule.
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
    """x ↦ x Wᵀ + b, with W and b two parameters of a module. To the rest of the code it is a linear layer."""

    def __init__(
        self,
        name: str,
        module: nn.Module,
        names: dict[str, str],
        weight: str,
        bias: str | None = None,
        rows: Mapping[str, slice] | None = None,
    ) -> None:
        """Bind the map to two parameters.

        names: those of the composite. weight, bias: own names there, dotted for a child. rows: of each, where not all.
        """
        self.rows = rows or {}
        self._paths = {"weight": weight, "bias": bias}
        super().__init__(name, module, {key: names[path] for key, path in self._paths.items() if path in names})

    def parameter(self, key: str) -> Any:
        path = self._paths[key]
        parameter = None if path is None else attrgetter(path)(self.module)
        if parameter is None:
            return None
        return parameter.detach()[self.rows.get(key, slice(None))]


class Composite(ABC):
    """One module of several affine maps. Construction raises NotLayerwise for modules outside the rule.

    name, module: as of a Layer. The module's children belong to it and are not examined by themselves.
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
        """Return the own names of all parameters that the rule knows, including those that are None."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Layer]:
        """Return the affine maps, which together hold every trainable parameter."""

    @abstractmethod
    def forward(self, capture: Capture, *args: Any, **kwargs: Any) -> Any:
        """Return the result of module.forward(*args, **kwargs) in its mode, with parameters taken from the parts alone.

        `capture.call(part, x)` runs a part and records its use, with the records along x's first axis.
        `capture.record(part, x)` records a use whose `output_grad` an autograd function of the rule fills in.

        Raises:
            NotLayerwise: arguments outside the rule.
        """
