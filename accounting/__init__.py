"""Privacy accounting for federated learning: Bayesian and classical, every number a certificate."""

from __future__ import annotations

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
from accounting.mechanisms.general import GaussianPair, LaplacePair, OutcomePair, RandomisedResponse, subsampled_moment
from accounting.units import Definition, Guarantee, Level, Observer, Relation

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
