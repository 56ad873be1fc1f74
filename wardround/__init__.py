"""Federated learning for hospitals with a privacy budget. Names load on first use, so importing this is quick.

    from wardround import Hospital, TableFormat, load_records

    hospital = Hospital.open("/srv/wardround")
    records = load_records("records.csv", TableFormat(separator="semicolon", decimal="comma"), patient_column="id")
    outcome = hospital.join("sepsis", "logistic-regression", records)

Taking part in a study (a hospital's data scientist; extra `client`)
    Hospital enrols, joins a study and leaves it. `join` returns an Outcome and calls back with a RoundEvent after every
    round. load_records reads a file or folder by its name, or a data frame. TableFormat declares how a text table is
    written, and propose_format finds it out. records_of takes arrays that are in memory. All of them return Records,
    such as a Table or Examples, or raise DataError.
    load_task builds a task by its name. Your own tasks derive from Task, return a TaskDataset and raise TaskError.

Guarding a hospital (IT, privacy officer; extra `client`)
    SitePolicy states what the hospital never agrees to. examine returns each Finding of `wardround doctor`.

Using a model (extra `client`)
    load_model reads a file of `wardround study model` and returns a ReleasedModel. Call it with a data frame to get
    probabilities.

Leading a study (a principal investigator; extra `operator`)
    Client and AsyncClient call the coordinator at a Connection with an ApiKey. StudyCreate has the name of a study
    and its StudySettings. read_study_settings reads the settings from TOML or JSON, and plan_of returns their plan.
    InvitationCreate invites a hospital. average_models returns the mean of released models, which costs no privacy.

Privacy accounting (a privacy researcher; no extra)
    ClassicalAccountant and BayesianAccountant compose steps into a Guarantee. calibrate_noise finds the noise for a
    limit, or raises Unreachable.

Errors
    WardroundError is the base of ApiError, ConfigurationError, ConnectionFailed, NotTrusted, Refused and
    TrainingStopped. Refused and NotTrusted have a stable `code`. `client_sdk.errors` shows all errors as a tree.

More names are in three modules, which also load on first use
    `wardround.accounting` has all accountants, events, moments and planning functions.
    `wardround.learning` has private training, tasks and the readers of all kinds of records.
    `wardround.queries` has questions about patients and their answers.

Everything else in the packages may change without notice.
"""

from __future__ import annotations

from typing import Any

from wardround.names import attach

_public_name, __dir__, __all__ = attach(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from wardround.installation import version

        return version()
    return _public_name(name)
