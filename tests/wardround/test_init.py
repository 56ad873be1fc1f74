"""The names that users import: a change here is a change of the public interface."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import wardround

PINNED = """
AccountingError Answered ApiError AsyncClient AveragedAccountant BayesianAccountant BayesianPlan BayesianSpec
ClassicalAccountant Classification Client ClippedSum ColumnForms ComposedEvent ConfigurationError Connection
ConnectionFailed DataError Definition DiscreteGaussianEvent EstimateSpec EstimatorRefused Event Examples FilterSpec
Finding Forecast GaussianEvent GaussianPair Guarantee HistogramRelease Histories Hospital IndividualFilter
InvalidArgument InvitationCreate LaplaceEvent LaplacePair LazyExamples LazyTable Level LimitExceeded LimitForecast
LimitPlan MaxStepsExceeded NoisySum NonFiniteError NotTrusted NothingEvent Observer Odometer OperatorKey Outcome
OutcomePair PairEvent PerRecordGradients Plan PlanError PoissonSampledEvent PosteriorFit PosteriorPlan ProgramFile
Proposal Purpose QueryDocument QueryFailed QueryNotAnswered RandomisedResponse Reader Records Refused Relation
ReleasedModel Reservation ReservationClosed RoundEvent SecureRandomness SecureSource SeededRandomness
SelfComposedEvent SignalToNoise SitePolicy Slots StudyCreate StudySettings Table TableFormat Task TaskDataset
TaskError TrainingStopped Unreachable UnsupportedLayer WardroundError add_noise attack_success average_models
best_orders binary_upper_mean calibrate_noise delta_from_moments draw_posterior epsilon_delta_curve
epsilon_from_moments examine fit_distance fit_posterior forecast gradient_norms group largest_moment least_epsilon
least_noise list_dicom list_nifti list_table load_model load_records load_task log_moment most_rounds most_steps
one_per_patient percentile_delta plan_of poisson_batch population_fraction posterior_bounds posterior_probabilities
propose_format prospect read_csv read_heart_disease read_histories read_idx read_images read_npz read_parquet
read_study_settings records_of replace_one_moment signal_to_noise smallest_population subsampled_moment task_names
upper_mean
"""
OTHER_NAMES = {
    "load_records": "load",
    "load_task": "load",
    "task_names": "names",
    "read_study_settings": "read_settings",
}


def _run(program: str) -> str:
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_exports_are_pinned() -> None:
    assert wardround.__all__ == sorted(PINNED.split()) == dir(wardround)


@pytest.mark.parametrize("name", wardround.__all__)
def test_every_export_is_there_under_its_name(name: str) -> None:
    found = getattr(wardround, name)
    assert getattr(found, "__name__", name) == OTHER_NAMES.get(name, name)
    assert getattr(wardround, name) is found


def test_a_name_that_is_not_exported_is_not_there() -> None:
    assert not hasattr(wardround, "hospital_that_is_not_there")
    assert not hasattr(wardround, "participation")


def test_the_docstring_tells_every_name() -> None:
    assert wardround.__doc__ is not None
    assert set(wardround.__all__) <= set(re.findall(r"\w+", wardround.__doc__))


def test_importing_it_loads_no_code_of_ours_and_no_library_of_weight() -> None:
    program = "import sys; before = set(sys.modules); import wardround; print(sorted(set(sys.modules) - before))"
    loaded = _run(program)
    assert "'wardround'" in loaded
    assert not re.search(r"accounting\.|client_sdk|server|numpy|torch|pydantic|scipy", loaded), loaded


def test_errors_can_be_caught_without_loading_torch() -> None:
    assert _run("import sys; from wardround import Refused, SitePolicy; print('torch' in sys.modules)") == "False"


def test_a_missing_part_is_named_with_its_extra() -> None:
    program = """
import sys
sys.modules["torch"] = None
import wardround
try:
    wardround.PerRecordGradients
except ModuleNotFoundError as error:
    print(error, error.name)
"""
    assert _run(program) == "wardround.PerRecordGradients needs torch: pip install 'wardround[client]' torch"
