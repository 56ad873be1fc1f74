"""The one import for whoever uses Wardround. Names load on first use: importing the package imports nothing heavy.

    from wardround import Hospital, TableFormat, load_records

    hospital = Hospital.open("/srv/wardround")
    records = load_records("records.csv", TableFormat(separator="semicolon", decimal="comma"), patient_column="id")
    outcome = hospital.join("sepsis", "logistic-regression", records)

Taking part (a hospital's data scientist; extra `client`)
    Hospital enrols, joins, leaves; join gives an Outcome and calls back with a RoundEvent after every round.
    propose_format says how text tables seem to be written (Proposal, ColumnForms), TableFormat declares it.
    load_records reads a path by its name, or a data frame; read_csv, read_parquet, read_npz, read_idx, read_images,
    read_heart_disease, read_histories, list_dicom, list_nifti and list_table one kind of file or folder; records_of
    takes what is in memory. They give Records (Examples, a Table, Histories, a LazyTable, or LazyExamples, whose inputs
    a Reader reads when they are needed; or one's own), or raise DataError; one_per_patient says which rows are refused.
    load_task builds a task by its name, task_names lists them; Task and Classification are what one's own derives from,
    TaskDataset what it gives, TaskError what it raises. ProgramFile is a backbone that is a program.

Using a model (whoever predicts; extra `client`)
    load_model reads what `wardround study model` wrote and gives a ReleasedModel: called with a data frame it gives
    probabilities; `.module` is the torch model, `.metadata` what the file says of itself.

Guarding a hospital (IT, privacy officer; extra `client`)
    SitePolicy is what the hospital never agrees to; examine makes the findings (Finding) of `wardround doctor`.
    Errors are drawn as a tree in client_sdk.errors: WardroundError is the base of ApiError, ConfigurationError,
    ConnectionFailed, NotTrusted, Refused and TrainingStopped; Refused and NotTrusted carry a stable `code`.

Leading a study (a principal investigator; extra `client`)
    Client and AsyncClient speak to the coordinator at a Connection, with an OperatorKey. StudyCreate names a study and
    its StudySettings; read_study_settings reads them from TOML or JSON; InvitationCreate invites a hospital.
    plan_of makes the Plan of StudySettings (of LimitPlan, BayesianPlan, HistogramRelease; PlanError says why none can
    be); forecast tells how the study will go (Forecast, LimitForecast), least_noise, most_rounds, least_epsilon and
    best_orders give the plan with other numbers, signal_to_noise (SignalToNoise) what the noise leaves of a hospital.
    calibrate_noise, most_steps, prospect and smallest_population choose single numbers; Unreachable says that none is
    enough. All before anybody trains, from public numbers alone.
    average_models makes the mean of released models, which costs no privacy.

Asking about patients (a statistician; extras `operator` and `frames`)
    Client.ask asks all hospitals a question, from a dictionary, a file or a QueryDocument, and gives an Answered: its
    tables as pandas data frames, its signature verified. QueryFailed says why a query came to nothing, QueryNotAnswered
    that nobody has answered it yet.

Accounting and private training (researchers; accounting needs no extra, gradients and noise need `client`)
    ClassicalAccountant, BayesianAccountant, AveragedAccountant, IndividualFilter, Odometer and Reservation compose
    steps into a Guarantee: at a Level, by a Definition, in a Relation, against an Observer; BayesianSpec, EstimateSpec
    and FilterSpec are what they fix before the first step. ClassicalAccountant composes any Event: GaussianEvent,
    DiscreteGaussianEvent, LaplaceEvent, PairEvent and NothingEvent, by themselves or in a PoissonSampledEvent,
    SelfComposedEvent or ComposedEvent. log_moment,
    replace_one_moment and subsampled_moment (of a GaussianPair, LaplacePair, OutcomePair or RandomisedResponse) are
    what one step costs; upper_mean and binary_upper_mean bound a population by a sample; epsilon_from_moments,
    delta_from_moments, epsilon_delta_curve, largest_moment, group, percentile_delta, population_fraction,
    posterior_bounds and attack_success read the sums. An AccountingError is one of EstimatorRefused, InvalidArgument,
    LimitExceeded, MaxStepsExceeded, ReservationClosed.
    PerRecordGradients gives a ClippedSum, poisson_batch draws the batch, Slots are the places its records run in,
    add_noise makes a NoisySum; SecureSource is the randomness of service, SecureRandomness and SeededRandomness address
    it by party, round, step and Purpose. NonFiniteError and UnsupportedLayer are what a model may be refused with.
    fit_posterior fits a logistic regression without noise (PosteriorFit), draw_posterior gives a PosteriorPlan's draws
    from around it, posterior_probabilities predicts with them; fit_distance bounds one record's part in such a fit by
    gradient_norms.

Everything else in `accounting`, `client_sdk` and `server` may change without notice.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

import accounting

# Read, not written a second time: type checkers and this file cannot differ.
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_ONE_BY_ONE = [line for line in _STUB.body if isinstance(line, ast.ImportFrom) and line.module != "accounting"]
# Name -> the module it stands in and its name there, as the type stub says. What has another name there begins with _.
_HOME = {name: ("accounting", name) for name in dir(accounting)} | {
    (alias.asname or alias.name).lstrip("_"): (str(line.module), alias.name)
    for line in _ONE_BY_ONE
    for alias in line.names
}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOME[name]
    try:
        found = getattr(import_module(module), there)
    except ModuleNotFoundError as error:
        from wardround.cli.main import extra_of

        # Not a part that an extra would install: the error is what it is.
        if (extra := extra_of(error)) is None:
            raise
        text = f"wardround.{name} needs {error.name}: pip install 'wardround[{extra}]'"
        raise ModuleNotFoundError(text, name=error.name) from error
    # Found here next time, without coming through `__getattr__`.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
