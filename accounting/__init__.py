"""Privacy accounting for federated learning: Bayesian and classical, every number a certificate.

Names load on first use: importing this package, or `accounting.plan`, loads neither scipy nor dp_accounting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting.accountants.averaged import AveragedAccountant
    from accounting.accountants.bayesian import BayesianAccountant
    from accounting.accountants.calibration import calibrate_noise, most_steps, prospect, smallest_population
    from accounting.accountants.classical import ClassicalAccountant
    from accounting.accountants.individual import IndividualFilter
    from accounting.accountants.odometer import Odometer
    from accounting.accountants.reservation import Reservation
    from accounting.errors import (
        AccountingError,
        EstimatorRefused,
        InvalidArgument,
        LimitExceeded,
        MaxStepsExceeded,
        ReservationClosed,
        Unreachable,
    )
    from accounting.estimation.upper_mean import binary_upper_mean, upper_mean
    from accounting.mechanisms.conversion import (
        attack_success,
        delta_from_moments,
        epsilon_delta_curve,
        epsilon_from_moments,
        group,
        largest_moment,
        percentile_delta,
        population_fraction,
        posterior_bounds,
    )
    from accounting.mechanisms.divergence import log_moment, replace_one_moment
    from accounting.mechanisms.general import (
        GaussianPair,
        LaplacePair,
        OutcomePair,
        RandomisedResponse,
        subsampled_moment,
    )
    from accounting.units import Definition, Guarantee, Level, Observer, Relation

_HOME = {
    "AccountingError": "errors",
    "AveragedAccountant": "accountants.averaged",
    "BayesianAccountant": "accountants.bayesian",
    "ClassicalAccountant": "accountants.classical",
    "Definition": "units",
    "EstimatorRefused": "errors",
    "GaussianPair": "mechanisms.general",
    "Guarantee": "units",
    "IndividualFilter": "accountants.individual",
    "InvalidArgument": "errors",
    "LaplacePair": "mechanisms.general",
    "Level": "units",
    "LimitExceeded": "errors",
    "MaxStepsExceeded": "errors",
    "Observer": "units",
    "Odometer": "accountants.odometer",
    "OutcomePair": "mechanisms.general",
    "RandomisedResponse": "mechanisms.general",
    "Relation": "units",
    "Reservation": "accountants.reservation",
    "ReservationClosed": "errors",
    "Unreachable": "errors",
    "attack_success": "mechanisms.conversion",
    "binary_upper_mean": "estimation.upper_mean",
    "calibrate_noise": "accountants.calibration",
    "delta_from_moments": "mechanisms.conversion",
    "epsilon_delta_curve": "mechanisms.conversion",
    "epsilon_from_moments": "mechanisms.conversion",
    "group": "mechanisms.conversion",
    "largest_moment": "mechanisms.conversion",
    "log_moment": "mechanisms.divergence",
    "most_steps": "accountants.calibration",
    "percentile_delta": "mechanisms.conversion",
    "population_fraction": "mechanisms.conversion",
    "posterior_bounds": "mechanisms.conversion",
    "prospect": "accountants.calibration",
    "replace_one_moment": "mechanisms.divergence",
    "smallest_population": "accountants.calibration",
    "subsampled_moment": "mechanisms.general",
    "upper_mean": "estimation.upper_mean",
}

__all__ = [
    "AccountingError",
    "AveragedAccountant",
    "BayesianAccountant",
    "ClassicalAccountant",
    "Definition",
    "EstimatorRefused",
    "GaussianPair",
    "Guarantee",
    "IndividualFilter",
    "InvalidArgument",
    "LaplacePair",
    "Level",
    "LimitExceeded",
    "MaxStepsExceeded",
    "Observer",
    "Odometer",
    "OutcomePair",
    "RandomisedResponse",
    "Relation",
    "Reservation",
    "ReservationClosed",
    "Unreachable",
    "attack_success",
    "binary_upper_mean",
    "calibrate_noise",
    "delta_from_moments",
    "epsilon_delta_curve",
    "epsilon_from_moments",
    "group",
    "largest_moment",
    "log_moment",
    "most_steps",
    "percentile_delta",
    "population_fraction",
    "posterior_bounds",
    "prospect",
    "replace_one_moment",
    "smallest_population",
    "subsampled_moment",
    "upper_mean",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
