"""The names others rely on: a change here is a change of the public interface."""

from __future__ import annotations

import subprocess
import sys

import pytest

import accounting

PINNED = """
AccountingError AveragedAccountant BayesianAccountant BayesianSpec ClassicalAccountant ComposedEvent Definition
DiscreteGaussianEvent EstimateSpec EstimatorRefused Event FilterSpec GaussianEvent GaussianPair Guarantee
IndividualFilter InvalidArgument LaplaceEvent LaplacePair Level LimitExceeded MaxStepsExceeded NothingEvent Observer
Odometer OutcomePair PairEvent PoissonSampledEvent RandomisedResponse Relation Reservation ReservationClosed
SelfComposedEvent Unreachable
attack_success binary_upper_mean calibrate_noise delta_from_moments epsilon_delta_curve epsilon_from_moments group
largest_moment log_moment most_steps percentile_delta population_fraction posterior_bounds prospect replace_one_moment
smallest_population subsampled_moment upper_mean
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
