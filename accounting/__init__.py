"""Privacy accounting for federated learning: Bayesian and classical, every number a certificate.

Names load on first use: importing this package, or `accounting.plan`, loads neither scipy nor dp_accounting.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting.accountants.averaged import AveragedAccountant
    from accounting.accountants.bayesian import BayesianAccountant, Reservation
    from accounting.accountants.bayesian_spec import BayesianSpec, EstimateSpec
    from accounting.accountants.calibration import calibrate_noise, most_steps, prospect, smallest_population
    from accounting.accountants.classical import ClassicalAccountant
    from accounting.accountants.individual import FilterSpec, IndividualFilter
    from accounting.accountants.odometer import Odometer
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

# fmt: off
_HOMES = {
    "accountants.averaged": "AveragedAccountant",
    "accountants.bayesian": "BayesianAccountant Reservation",
    "accountants.bayesian_spec": "BayesianSpec EstimateSpec",
    "accountants.calibration": "calibrate_noise most_steps prospect smallest_population",
    "accountants.classical": "ClassicalAccountant",
    "accountants.individual": "FilterSpec IndividualFilter",
    "accountants.odometer": "Odometer",
        "errors": "AccountingError EstimatorRefused InvalidArgument LimitExceeded MaxStepsExceeded ReservationClosed "
              "Unreachable",
    "estimation.upper_mean": "binary_upper_mean upper_mean",
    "mechanisms.conversion": "attack_success delta_from_moments epsilon_delta_curve epsilon_from_moments group "
                             "largest_moment percentile_delta population_fraction posterior_bounds",
    "mechanisms.divergence": "log_moment replace_one_moment",
    "mechanisms.general": "GaussianPair LaplacePair OutcomePair RandomisedResponse subsampled_moment",
    "units": "Definition Guarantee Level Observer Relation",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

# A type checker reads this list, so it is written out.
__all__ = [
    "AccountingError", "AveragedAccountant", "BayesianAccountant", "BayesianSpec", "ClassicalAccountant", "Definition",
    "EstimateSpec", "EstimatorRefused", "FilterSpec", "GaussianPair", "Guarantee", "IndividualFilter",
    "InvalidArgument", "LaplacePair", "Level", "LimitExceeded", "MaxStepsExceeded", "Observer", "Odometer",
    "OutcomePair", "RandomisedResponse", "Relation", "Reservation", "ReservationClosed", "Unreachable",
    "attack_success", "binary_upper_mean", "calibrate_noise", "delta_from_moments", "epsilon_delta_curve",
    "epsilon_from_moments", "group", "largest_moment", "log_moment", "most_steps", "percentile_delta",
    "population_fraction", "posterior_bounds", "prospect", "replace_one_moment", "smallest_population",
    "subsampled_moment", "upper_mean",
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
