"""The one import for whoever uses Wardround. Names load on first use: importing the package imports nothing heavy.

    from wardround import Hospital, load_records

    hospital = Hospital.open("/srv/wardround")
    outcome = hospital.join("sepsis", "logistic-regression", load_records("records.csv", patient_column="id"))

Taking part (a hospital's data scientist; extra `client`)
    Hospital enrols, joins, leaves; join gives an Outcome and calls back with a RoundEvent after every round.
    load_records reads a path by its name; read_csv, read_parquet, read_npz, read_idx, read_images and
    read_heart_disease one kind of file; records_of takes what is in memory. They give Records (Examples or a Table, or
    one's own), or raise DataError; one_per_patient says which rows are refused.
    load_task builds a task by its name, task_names lists them; Task and Classification are what one's own derives from,
    TaskDataset what it gives, TaskError what it raises.

Guarding a hospital (IT, privacy officer; extra `client`)
    SitePolicy is what the hospital never agrees to; examine makes the findings (Finding) of `wardround doctor`.
    Errors are drawn as a tree in client_sdk.errors: WardroundError is the base of ApiError, ConfigurationError,
    ConnectionFailed, NotTrusted, Refused and TrainingStopped; Refused and NotTrusted carry a stable `code`.

Leading a study (a principal investigator; extra `client`)
    Client and AsyncClient speak to the coordinator at a Connection, with an OperatorKey. StudyCreate names a study and
    its StudySettings; read_study_settings reads them from TOML or JSON; InvitationCreate invites a hospital.
    calibrate_noise, most_steps, prospect and smallest_population choose numbers before anybody trains, from public
    numbers alone; Unreachable says that none is enough.

Accounting and private training (researchers; accounting needs no extra, gradients and noise need `client`)
    ClassicalAccountant, BayesianAccountant, AveragedAccountant, IndividualFilter, Odometer and Reservation compose
    steps into a Guarantee: at a Level, by a Definition, in a Relation, against an Observer. log_moment,
    replace_one_moment and subsampled_moment (of a GaussianPair, LaplacePair, OutcomePair or RandomisedResponse) are
    what one step costs; upper_mean and binary_upper_mean bound a population by a sample; epsilon_from_moments,
    delta_from_moments, epsilon_delta_curve, largest_moment, group, percentile_delta, population_fraction,
    posterior_bounds and attack_success read the sums. An AccountingError is one of EstimatorRefused, InvalidArgument,
    LimitExceeded, MaxStepsExceeded, ReservationClosed.
    PerRecordGradients gives a ClippedSum, poisson_batch draws the batch, add_noise makes a NoisySum; SecureSource is
    the randomness of service, SecureRandomness and SeededRandomness address it by party, round, step and Purpose.
    NonFiniteError and UnsupportedLayer are what a model may be refused with.

Everything else in `accounting`, `client_sdk` and `server` may change without notice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accounting import (
        AccountingError,
        AveragedAccountant,
        BayesianAccountant,
        ClassicalAccountant,
        Definition,
        EstimatorRefused,
        GaussianPair,
        Guarantee,
        IndividualFilter,
        InvalidArgument,
        LaplacePair,
        Level,
        LimitExceeded,
        MaxStepsExceeded,
        Observer,
        Odometer,
        OutcomePair,
        RandomisedResponse,
        Relation,
        Reservation,
        ReservationClosed,
        Unreachable,
        attack_success,
        binary_upper_mean,
        calibrate_noise,
        delta_from_moments,
        epsilon_delta_curve,
        epsilon_from_moments,
        group,
        largest_moment,
        log_moment,
        most_steps,
        percentile_delta,
        population_fraction,
        posterior_bounds,
        prospect,
        replace_one_moment,
        smallest_population,
        subsampled_moment,
        upper_mean,
    )
    from client_sdk.api.client import AsyncClient, Client, OperatorKey
    from client_sdk.api.config import Connection
    from client_sdk.commands.study import read_settings as read_study_settings
    from client_sdk.data import (
        DataError,
        Examples,
        Records,
        Table,
        one_per_patient,
        read_csv,
        read_heart_disease,
        read_idx,
        read_images,
        read_npz,
        read_parquet,
        records_of,
    )
    from client_sdk.data import load as load_records
    from client_sdk.errors import (
        ApiError,
        ConfigurationError,
        ConnectionFailed,
        NotTrusted,
        Refused,
        TrainingStopped,
        WardroundError,
    )
    from client_sdk.gradients import ClippedSum, NonFiniteError, PerRecordGradients, UnsupportedLayer
    from client_sdk.guard.policy import SitePolicy
    from client_sdk.protocol.randomness.source import Purpose, SecureRandomness, SecureSource, SeededRandomness
    from client_sdk.protocol.study.messages import InvitationCreate, StudyCreate
    from client_sdk.protocol.study.settings import StudySettings
    from client_sdk.study.diagnostics import Finding, examine
    from client_sdk.study.events import RoundEvent
    from client_sdk.study.hospital import Hospital
    from client_sdk.study.participation import Outcome
    from client_sdk.tasks import Classification, Task, TaskDataset, TaskError
    from client_sdk.tasks import load as load_task
    from client_sdk.tasks import names as task_names
    from client_sdk.training.noise import NoisySum, add_noise
    from client_sdk.training.private import poisson_batch

# Module -> what stands in it; `there=here` where it has another name here.
_NAMES_IN = {
    "accounting": (
        "AccountingError AveragedAccountant BayesianAccountant ClassicalAccountant Definition EstimatorRefused "
        "GaussianPair Guarantee IndividualFilter InvalidArgument LaplacePair Level LimitExceeded MaxStepsExceeded "
        "Observer Odometer OutcomePair RandomisedResponse Relation Reservation ReservationClosed Unreachable "
        "attack_success binary_upper_mean calibrate_noise delta_from_moments epsilon_delta_curve epsilon_from_moments "
        "group largest_moment log_moment most_steps percentile_delta population_fraction posterior_bounds prospect "
        "replace_one_moment smallest_population subsampled_moment upper_mean"
    ),
    "client_sdk.api.client": "AsyncClient Client OperatorKey",
    "client_sdk.api.config": "Connection",
    "client_sdk.commands.study": "read_settings=read_study_settings",
    "client_sdk.data": (
        "DataError Examples Records Table load=load_records one_per_patient read_csv read_heart_disease read_idx "
        "read_images read_npz read_parquet records_of"
    ),
    "client_sdk.errors": (
        "ApiError ConfigurationError ConnectionFailed NotTrusted Refused TrainingStopped WardroundError"
    ),
    "client_sdk.gradients": "ClippedSum NonFiniteError PerRecordGradients UnsupportedLayer",
    "client_sdk.guard.policy": "SitePolicy",
    "client_sdk.protocol.randomness.source": "Purpose SecureRandomness SecureSource SeededRandomness",
    "client_sdk.protocol.study.messages": "InvitationCreate StudyCreate",
    "client_sdk.protocol.study.settings": "StudySettings",
    "client_sdk.study.diagnostics": "Finding examine",
    "client_sdk.study.events": "RoundEvent",
    "client_sdk.study.hospital": "Hospital",
    "client_sdk.study.participation": "Outcome",
    "client_sdk.tasks": "Classification Task TaskDataset TaskError load=load_task names=task_names",
    "client_sdk.training.noise": "NoisySum add_noise",
    "client_sdk.training.private": "poisson_batch",
}
_HOME = {
    name.rpartition("=")[2]: (module, name.partition("=")[0])
    for module, names in _NAMES_IN.items()
    for name in names.split()
}

__all__ = [
    "AccountingError",
    "ApiError",
    "AsyncClient",
    "AveragedAccountant",
    "BayesianAccountant",
    "ClassicalAccountant",
    "Classification",
    "Client",
    "ClippedSum",
    "ConfigurationError",
    "Connection",
    "ConnectionFailed",
    "DataError",
    "Definition",
    "EstimatorRefused",
    "Examples",
    "Finding",
    "GaussianPair",
    "Guarantee",
    "Hospital",
    "IndividualFilter",
    "InvalidArgument",
    "InvitationCreate",
    "LaplacePair",
    "Level",
    "LimitExceeded",
    "MaxStepsExceeded",
    "NoisySum",
    "NonFiniteError",
    "NotTrusted",
    "Observer",
    "Odometer",
    "OperatorKey",
    "Outcome",
    "OutcomePair",
    "PerRecordGradients",
    "Purpose",
    "RandomisedResponse",
    "Records",
    "Refused",
    "Relation",
    "Reservation",
    "ReservationClosed",
    "RoundEvent",
    "SecureRandomness",
    "SecureSource",
    "SeededRandomness",
    "SitePolicy",
    "StudyCreate",
    "StudySettings",
    "Table",
    "Task",
    "TaskDataset",
    "TaskError",
    "TrainingStopped",
    "Unreachable",
    "UnsupportedLayer",
    "WardroundError",
    "add_noise",
    "attack_success",
    "binary_upper_mean",
    "calibrate_noise",
    "delta_from_moments",
    "epsilon_delta_curve",
    "epsilon_from_moments",
    "examine",
    "group",
    "largest_moment",
    "load_records",
    "load_task",
    "log_moment",
    "most_steps",
    "one_per_patient",
    "percentile_delta",
    "poisson_batch",
    "population_fraction",
    "posterior_bounds",
    "prospect",
    "read_csv",
    "read_heart_disease",
    "read_idx",
    "read_images",
    "read_npz",
    "read_parquet",
    "read_study_settings",
    "records_of",
    "replace_one_moment",
    "smallest_population",
    "subsampled_moment",
    "task_names",
    "upper_mean",
]


if not TYPE_CHECKING:  # a type checker would take any name for one that is here

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, there = _HOME[name]
        try:
            found = getattr(import_module(module), there)
        except ModuleNotFoundError as error:
            from client_sdk.main import extra_of

            if (extra := extra_of(error)) is None:
                raise
            text = f"wardround.{name} needs {error.name}: pip install 'wardround[{extra}]'"
            raise ModuleNotFoundError(text, name=error.name) from error
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
