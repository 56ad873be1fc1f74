from accounting import *  # noqa: F403
from client_sdk.api.answered import Answered as Answered
from client_sdk.api.client import AsyncClient as AsyncClient
from client_sdk.api.client import Client as Client
from client_sdk.api.client import OperatorKey as OperatorKey
from client_sdk.api.config import Connection as Connection
from client_sdk.commands.settings_file import read_settings as _read_study_settings
from client_sdk.data import DataError as DataError
from client_sdk.data import Examples as Examples
from client_sdk.data import LazyExamples as LazyExamples
from client_sdk.data import Reader as Reader
from client_sdk.data import Records as Records
from client_sdk.data import Table as Table
from client_sdk.data import load as _load_records
from client_sdk.data import one_per_patient as one_per_patient
from client_sdk.data import read_csv as read_csv
from client_sdk.data import read_heart_disease as read_heart_disease
from client_sdk.data import read_idx as read_idx
from client_sdk.data import read_images as read_images
from client_sdk.data import read_npz as read_npz
from client_sdk.data import read_parquet as read_parquet
from client_sdk.data import records_of as records_of
from client_sdk.errors import ApiError as ApiError
from client_sdk.errors import ConfigurationError as ConfigurationError
from client_sdk.errors import ConnectionFailed as ConnectionFailed
from client_sdk.errors import NotTrusted as NotTrusted
from client_sdk.errors import QueryFailed as QueryFailed
from client_sdk.errors import QueryNotAnswered as QueryNotAnswered
from client_sdk.errors import Refused as Refused
from client_sdk.errors import TrainingStopped as TrainingStopped
from client_sdk.errors import WardroundError as WardroundError
from client_sdk.gradients import ClippedSum as ClippedSum
from client_sdk.gradients import NonFiniteError as NonFiniteError
from client_sdk.gradients import PerRecordGradients as PerRecordGradients
from client_sdk.gradients import Slots as Slots
from client_sdk.gradients import UnsupportedLayer as UnsupportedLayer
from client_sdk.guard.policy import SitePolicy as SitePolicy
from client_sdk.protocol.randomness.source import Purpose as Purpose
from client_sdk.protocol.randomness.source import SecureRandomness as SecureRandomness
from client_sdk.protocol.randomness.source import SecureSource as SecureSource
from client_sdk.protocol.randomness.source import SeededRandomness as SeededRandomness
from client_sdk.protocol.study.averaging import average_models as average_models
from client_sdk.protocol.study.messages import InvitationCreate as InvitationCreate
from client_sdk.protocol.study.messages import StudyCreate as StudyCreate
from client_sdk.protocol.study.plan_of import plan_of as plan_of
from client_sdk.protocol.study.queries import QueryDocument as QueryDocument
from client_sdk.protocol.study.settings import StudySettings as StudySettings
from client_sdk.released import ReleasedModel as ReleasedModel
from client_sdk.released import load_model as load_model
from client_sdk.study.diagnostics import Finding as Finding
from client_sdk.study.diagnostics import examine as examine
from client_sdk.study.events import RoundEvent as RoundEvent
from client_sdk.study.hospital import Hospital as Hospital
from client_sdk.study.participation import Outcome as Outcome
from client_sdk.tasks import Classification as Classification
from client_sdk.tasks import Task as Task
from client_sdk.tasks import TaskDataset as TaskDataset
from client_sdk.tasks import TaskError as TaskError
from client_sdk.tasks import load as _load_task
from client_sdk.tasks import names as _task_names
from client_sdk.training.gradients import poisson_batch as poisson_batch
from client_sdk.training.noise import NoisySum as NoisySum
from client_sdk.training.noise import add_noise as add_noise
from client_sdk.training.posterior import PosteriorFit as PosteriorFit
from client_sdk.training.posterior import PosteriorPlan as PosteriorPlan
from client_sdk.training.posterior import draw_posterior as draw_posterior
from client_sdk.training.posterior import fit_posterior as fit_posterior
from client_sdk.training.posterior import gradient_norms as gradient_norms
from client_sdk.training.posterior import posterior_probabilities as posterior_probabilities

# A stub hands on only what keeps its name.
load_records = _load_records
load_task = _load_task
read_study_settings = _read_study_settings
task_names = _task_names
