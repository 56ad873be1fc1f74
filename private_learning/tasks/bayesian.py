"""Bayesian logistic regression: weights are normal variables, and a prediction says how sure it is.

It is variational inference (Blei, Kucukelbir & McAuliffe 2017) with q(w) = Π N(μ_j, e^{2ρ_j}). The trained parameters
are (μ, ρ). Under q the score x·w of a record is normal with mean x·μ and variance Σ x_j² e^{2ρ_j}. Every expectation
here is therefore an integral over one line, which Gauss and Hermite's rule takes at fixed nodes. No number is drawn,
and no record's loss depends on another or on a seed, as it would with weights drawn from q.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import DataError
from private_learning.tasks.columns import categories_of
from private_learning.tasks.tables import COLUMNS, TableClassifier, TableParameters
from private_learning.tasks.weights import zeros
from study_protocol.wire.tensors import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

# x² p(1 − p) of a typical record and input on [−1, 1], as far as is known before the study.
_TYPICAL_INFORMATION = 0.05


class BayesianParameters(TableParameters):
    """Those of a table, and the prior."""

    classes: int = Field(default=2, ge=2, le=2, description="how many values the label has: 0 and 1")
    # Neither has a default: the coordinator adds the prior from the study's parameters alone.
    patients: int = Field(
        ge=1, le=1_000_000_000, description="patients of all hospitals together, a public guess: what the prior weighs"
    )
    prior_std: float = Field(
        alias="prior-std", gt=0, description="standard deviation of each weight before any record is seen. 2.5 is usual"
    )

    @model_validator(mode="after")
    def _two_words(self) -> Self:
        if self.label_values is not None and len(categories_of(self.label_values)) != 2:
            raise ValueError("label-values must be two words: the model is of two classes")
        return self


class BayesianLogisticRegression(TableClassifier[BayesianParameters]):
    """Two classes. The prior's part of the gradient is added after the noise: `study_protocol.study.prior`."""

    name, kind = "bayesian-logistic-regression", BayesianParameters

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.start_log_std = start_log_std(self.parameters.prior_std, self.parameters.patients)

    def model(self) -> nn.Module:
        from private_learning.tasks.bayesian_model import NormalScore

        return NormalScore(self.features, self.start_log_std)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        shape = (1, self.features + 1)
        return zeros({"mean.weight": shape}) | {"spread.weight": np.full(shape, self.start_log_std, np.float32)}

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {
            "label": "ill",
            "label-values": "no|yes",
            "patients": 2400,
            "prior-std": 2.5,
            **COLUMNS,
        }

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:
        from private_learning.tasks.bayesian_model import ExpectedLoss

        return ExpectedLoss()

    def predictions(self, outputs: Tensor) -> Tensor:
        """(n, 2) probabilities averaged over the posterior, in the precision of the outputs."""
        import torch

        from private_learning.tasks.bayesian_model import quadrature

        scores, weights = quadrature(outputs)
        return torch.stack([torch.sigmoid(-scores) @ weights, torch.sigmoid(scores) @ weights], dim=1)

    def intervals(self, outputs: Tensor, level: float) -> Tensor:
        """(n, 2): between what the posterior holds the probability of class 1 to be, at `level`."""
        import torch

        half = NormalDist().inv_cdf((1 + level) / 2) * outputs[:, 1].clamp_min(0).sqrt()
        return torch.sigmoid(torch.stack([outputs[:, 0] - half, outputs[:, 0] + half], dim=1))

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        import torch

        if len(targets) == 0 or not torch.isfinite(outputs).all():
            raise DataError("metrics need at least one record and finite outputs")
        probabilities = self.predictions(outputs.double())
        likelihoods = probabilities.gather(1, targets.view(-1, 1)).clamp_min(np.finfo(np.float64).tiny)
        right = (outputs[:, 0] > 0).long() == targets
        return {"accuracy": right.double().mean().item(), "log_loss": float(-likelihoods.log().mean())}


def start_log_std(prior_std: float, patients: int) -> float:
    """ρ before the first round: what the posterior's would be if every patient told _TYPICAL_INFORMATION."""
    return -0.5 * math.log(prior_std**-2 + _TYPICAL_INFORMATION * patients)
