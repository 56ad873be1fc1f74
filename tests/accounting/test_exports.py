"""The names others rely on: a change here is a change of the public interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import accounting

PINNED = """
AccountingError AveragedAccountant BayesianAccountant BayesianPlan BayesianSpec ClassicalAccountant ComposedEvent
Definition DiscreteGaussianEvent DiscreteLaplaceEvent EstimateSpec EstimatorRefused Event FilterSpec FinitePair
Forecast GaussianEvent GaussianFilterSpec GaussianPair Guarantee HistogramRelease IndividualFilter InvalidArgument
LaplaceEvent LaplacePair Level LimitExceeded LimitForecast LimitPlan MaxStepsExceeded NothingEvent Observer Odometer
OutcomePair PairEvent Plan PlanError PoissonSampledEvent PrivacyProfile RandomisedResponse Relation ReleasedEvents
Reservation ReservationClosed SelfComposedEvent SignalToNoise Unreachable ZCDPEvent attack_success best_orders
binary_upper_mean budget_events calibrate_noise delta_from_moments epsilon_delta_curve epsilon_from_moments
fit_distance forecast from_dp_accounting gaussian_delta group largest_moment least_epsilon least_noise ledger_events
log_moment most_rounds most_steps mu_from_epsilon percentile_delta population_fraction posterior_bounds prospect
replace_one_moment signal_to_noise smallest_population subsampled_moment tightest to_dp_accounting upper_mean
"""


def test_exports_are_pinned() -> None:
    assert sorted(accounting.__all__) == sorted(PINNED.split())
    assert all(hasattr(accounting, name) for name in PINNED.split())


def test_importing_it_loads_no_web_and_no_torch() -> None:
    script = "import sys, accounting; print([m for m in ('torch', 'httpx', 'pydantic', 'fastapi') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["accounting", "accounting.plan.plan", "accounting.plan.report"])
def test_the_plan_and_the_bare_package_load_no_numerical_library(name: str) -> None:
    heavy = ("scipy", "dp_accounting", "mpmath", "torch")
    script = f"import sys, {name}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_refused_and_every_name_is_offered() -> None:
    assert dir(accounting) == sorted(accounting.__all__)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = accounting.no_such_thing
