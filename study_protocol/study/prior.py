"""The prior's part of a Bayesian model's gradient: a function of released weights and of public numbers alone.

Both sides add it after the noise, to a mean gradient that was clipped and noised without it. It is post-processing,
costs no privacy and takes no part of a record's clip norm. With fedavg a hospital does so in every local step, with
fedsgd the coordinator before its optimiser.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

STD, PATIENTS = "prior-std", "patients"
SPREAD = "spread"
"""The first part of the name of parameters that are logarithms of a posterior's standard deviations."""


@dataclass(frozen=True)
class Prior:
    """Independent normal weights around 0.

    std       standard deviation of each weight
    patients  over how many the mean of the losses is thought to run. The prior counts as one part in so many
    """

    std: float
    patients: float

    def gradient(self, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
        """Return ∂/∂values KL(q ‖ prior) / patients, of some of the values of a parameter, as float64 of their shape.

        q has independent normal weights with means m and standard deviations e^ρ. So the divergence is Σ [(e^{2ρ} +
        m²)/(2 std²) − ρ] and a constant (Kingma & Welling 2014, appendix B). For a model without ρ this is the gradient
        of the prior's negative logarithm, and training finds the most probable weights.

        ∞ where e^{2ρ} leaves the range of floats.
        """
        exact = values.astype(np.float64)
        with np.errstate(over="ignore"):
            if name.partition(".")[0] == SPREAD:
                return (np.exp(2 * exact) / self.std**2 - 1) / self.patients
            return exact / (self.std**2 * self.patients)


def prior_of(task_parameters: Mapping[str, Any]) -> Prior | None:
    """Return the prior that a task's parameters name, or None unless they have both of `prior-std` and `patients`.

    Raises:
        ValueError: one of them is no positive number.
    """
    if not {STD, PATIENTS} <= set(task_parameters):
        return None
    return Prior(*(_positive(name, task_parameters[name]) for name in (STD, PATIENTS)))


def _positive(name: str, value: Any) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 1e-6 <= number <= 1e12:
        raise ValueError(f"{name} of task_parameters must be a number from 1e-6 to 1e12, got {value!r}")
    return float(number)
