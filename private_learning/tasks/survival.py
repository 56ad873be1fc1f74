"""Time until an event, for some only known to be longer: survival models whose likelihood is a sum over patients.

Time is cut into public intervals, up to the last cut. The discrete-time model says how likely the event is in each
interval. The piecewise-exponential model says how many events there are in a day of each. Cox's partial likelihood is
none of them: it sets every patient against all who are still at risk, so that one patient's gradient depends on the
others.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from pydantic import Field, model_validator

from private_learning.records import Records, WrongRows
from private_learning.tasks.columns import Columns, NumberColumn, categories_of, indices_of, missing_rows, numbers_in
from private_learning.tasks.losses import numbers_of
from private_learning.tasks.tables import COLUMNS, LayersParameters, TableTask, network
from private_learning.tasks.task import ColumnText, InputUse, TaskParameters, require_metrics
from private_learning.tasks.weights import network_weights

if TYPE_CHECKING:
    from torch import Tensor, nn

Array = np.ndarray[Any, np.dtype[Any]]
MOST_CUTS = 1000


class TimeParameters(TaskParameters):
    """Times, events and cuts. Beside these: column.<name>."""

    time: ColumnText = Field(description="column of the time until the event, or until the end of follow-up")
    event: ColumnText = Field(description="column that says whether it was the event")
    event_values: str | None = Field(
        default=None,
        alias="event-values",
        description="values of that column for censored and for the event, with a bar between. Default: 0 and 1",
    )
    cuts: str = Field(
        min_length=1,
        description="ends of the intervals of time: rising numbers with bars between. Later times are not used",
    )
    proportional: bool = Field(
        default=True, description="an input has one weight for all intervals. false: one for each interval"
    )

    @model_validator(mode="after")
    def _sound(self) -> Self:
        ends = (0.0, *self.ends)
        if not 2 <= len(ends) <= MOST_CUTS + 1 or any(b <= a for a, b in pairwise(ends)):
            raise ValueError(f"cuts must be up to {MOST_CUTS} rising numbers above 0 between bars, such as 30|90|365")
        if len(self.outcomes) != 2:
            raise ValueError("event-values must be two different words between bars, such as alive|dead")
        if self.time == self.event:
            raise ValueError("time and event must be different columns")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        return self.time, self.event

    @property
    def outcomes(self) -> tuple[str, ...]:
        return categories_of(self.event_values or "0|1")

    @property
    def ends(self) -> tuple[float, ...]:
        return numbers_of(self.cuts)


class SurvivalParameters(LayersParameters, TimeParameters):
    """Those of times, and the shape of the model."""


class SurvivalTask(TableTask[SurvivalParameters]):
    """One output for each interval. Targets are (n, 2): time as a share of the last cut, and 1 for an event.

    A time beyond the last cut is the last cut without an event: later time is not used.
    """

    kind = SurvivalParameters
    predicts = "survival probabilities"

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__(parameters)
        self.ends = self.parameters.ends
        self.cuts = tuple(end / self.ends[-1] for end in self.ends)

    @property
    @abstractmethod
    def start(self) -> float:
        """Every interval's constant in a new model: with it half of all patients are free of the event at the end."""

    @property
    @abstractmethod
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,) minus log likelihoods, with known gradient."""

    @property
    def widths(self) -> list[int]:
        """Inputs, units of each hidden layer, and what comes before the intervals' constants."""
        last = 1 if self.parameters.proportional else len(self.cuts)
        return [self.features, *[self.parameters.hidden] * self.parameters.layers, last]

    def model(self) -> nn.Module:
        from torch import nn

        model = network(self.widths)
        layers = list(model.children()) or [model]
        last: Any = layers[-1]
        if not self.parameters.proportional:
            nn.init.constant_(last.bias, self.start)
            return model
        # One score, and a constant for each interval that is added to it: the weights of 1 are never trained.
        last.bias = None
        constants = nn.Linear(1, len(self.cuts))
        nn.init.ones_(constants.weight).requires_grad_(False)
        nn.init.constant_(constants.bias, self.start)
        return nn.Sequential(*layers, constants)

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array]:
        """Return the weights of the network, but for the constants of the intervals."""
        weights, hidden = network_weights(self.widths, random), self.parameters.layers
        constants = np.full(len(self.cuts), self.start, np.float32)
        if not self.parameters.proportional:
            return weights | {f"{2 * hidden}.bias" if hidden else "bias": constants}
        last = f"{2 * hidden}"
        score = weights.pop(f"{last}.weight" if hidden else "weight")
        del weights[f"{last}.bias" if hidden else "bias"]
        return weights | {f"{last}.weight": score, f"{2 * hidden + 1}.bias": constants}

    @classmethod
    def example(cls) -> dict[str, Any]:
        return {"time": "days", "event": "died", "cuts": "30|90|180|365", **COLUMNS}

    def synthetic_targets(self, scores: Array, draw: np.random.Generator) -> dict[str, Any]:
        deaths = draw.exponential(self.ends[-1] * np.exp(-scores[:, 0]))
        exits = draw.uniform(0, 2 * self.ends[-1], len(scores))
        return {self.parameters.time: np.minimum(deaths, exits), self.parameters.event: (deaths <= exits).astype(int)}

    def targets_of(self, columns: Columns) -> Tensor:
        import torch

        p = self.parameters
        times = numbers_in(p.time, columns[p.time])
        if (times < 0).any():
            raise WrongRows(f"time column {p.time}: {int(np.sum(times < 0))} times are below 0", times < 0)
        places, absent = indices_of(columns[p.event], p.outcomes, f"event column {p.event}", "event-values")
        if absent.any():
            raise missing_rows(f"event column {p.event}", absent)
        event = (places == 1) & (times <= self.ends[-1])
        return torch.as_tensor(np.stack([np.minimum(times / self.ends[-1], 1.0), event], axis=1)).float()

    def prediction_names(self, count: int) -> tuple[str, ...]:
        return tuple(f"survival_{end:g}" for end in self.ends)

    def target_counts(self, targets: Tensor) -> dict[str, int]:
        event, end = targets[:, 1] == 1, targets[:, 0] >= 1
        return {
            "event": int(event.sum()),
            "censored before the last cut": int((~event & ~end).sum()),
            "no event until the last cut": int((~event & end).sum()),
        }

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        time = NumberColumn(self.parameters.time, 0.0, self.ends[-1], None)
        return time.use(self._table(data).columns[time.name]), *super().inspect(data)

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """concordance: Harrell's C of 1 − survival at the last cut. log_likelihood: mean over the records. brier: of
        that survival, censoring weighed out. The first and the last are left out where the records cannot say them.
        """
        from private_learning.tasks.ranking import brier_at_end, concordance

        require_metrics(outputs, targets)
        survival = self.predictions(outputs.double())[:, -1].numpy()
        time, event = targets[:, 0].double().numpy(), (targets[:, 1] == 1).numpy()
        metrics = {
            "concordance": concordance(-survival, time, event),
            "log_likelihood": -self.loss(outputs.double(), targets).mean().item(),
            "brier": brier_at_end(survival, time, event, 1.0),
        }
        return {name: value for name, value in metrics.items() if value is not None}


class DiscreteTime(SurvivalTask):
    """Logistic hazards: with `proportional` the odds of an event in every interval are multiplied alike."""

    name = "discrete-survival"
    initial_weights = SurvivalTask.initial_weights

    @property
    def start(self) -> float:
        # (1 − h)^intervals = 1/2.
        chance = 1 - 0.5 ** (1 / len(self.cuts))
        return math.log(chance / (1 - chance))

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        from private_learning.gradients.losses import DiscreteHazard

        return DiscreteHazard(self.cuts)

    def predictions(self, outputs: Tensor) -> Tensor:
        """(n, intervals) probabilities to be free of the event at each cut, in the precision of the outputs."""
        from torch.nn import functional

        return (-functional.softplus(outputs).cumsum(1)).exp()


class PiecewiseConstant(SurvivalTask):
    """Constant hazards in each interval: with `proportional` they are multiplied alike, as in Cox's model."""

    name = "piecewise-exponential"
    initial_weights = SurvivalTask.initial_weights

    @property
    def start(self) -> float:
        return math.log(math.log(2))

    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        from private_learning.gradients.losses import PiecewiseExponential

        return PiecewiseExponential(self.cuts)

    def predictions(self, outputs: Tensor) -> Tensor:
        """(n, intervals) probabilities to be free of the event at each cut, in the precision of the outputs."""
        lengths = outputs.new_tensor([b - a for a, b in pairwise((0.0, *self.cuts))])
        return (-(outputs.exp() * lengths).cumsum(1)).exp()
