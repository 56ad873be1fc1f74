from accounting import BayesianAccountant as BayesianAccountant
from accounting import ClassicalAccountant as ClassicalAccountant
from accounting import Guarantee as Guarantee
from accounting import Unreachable as Unreachable
from accounting import calibrate_noise as calibrate_noise
from client_sdk.api.client import ApiKey as ApiKey
from client_sdk.api.client import AsyncClient as AsyncClient
from client_sdk.api.client import Client as Client
from client_sdk.api.config import Connection as Connection
from client_sdk.errors import ApiError as ApiError
from client_sdk.errors import ConfigurationError as ConfigurationError
from client_sdk.errors import ConnectionFailed as ConnectionFailed
from client_sdk.errors import NotTrusted as NotTrusted
from client_sdk.errors import Refused as Refused
from client_sdk.errors import TrainingStopped as TrainingStopped
from client_sdk.errors import WardroundError as WardroundError
from client_sdk.guard.policy import SitePolicy as SitePolicy
from client_sdk.released import ReleasedModel as ReleasedModel
from client_sdk.released import load_model as load_model
from client_sdk.study.diagnostics import Finding as Finding
from client_sdk.study.diagnostics import examine as examine
from client_sdk.study.events import RoundEvent as RoundEvent
from client_sdk.study.hospital import Hospital as Hospital
from client_sdk.study.participation import Outcome as Outcome
from private_learning.records import DataError as DataError
from private_learning.records import Examples as Examples
from private_learning.records import Records as Records
from private_learning.records import Table as Table
from private_learning.records import TableFormat as TableFormat
from private_learning.records import load as _load_records
from private_learning.records import propose_format as propose_format
from private_learning.records import records_of as records_of
from private_learning.tasks import Task as Task
from private_learning.tasks import TaskDataset as TaskDataset
from private_learning.tasks import TaskError as TaskError
from private_learning.tasks import load as _load_task
from study_protocol.study.averaging import average_models as average_models
from study_protocol.study.messages import InvitationCreate as InvitationCreate
from study_protocol.study.messages import StudyCreate as StudyCreate
from study_protocol.study.plan_of import plan_of as plan_of
from study_protocol.study.settings import StudySettings as StudySettings
from wardround.cli.shared.settings_file import read_settings as _read_study_settings

from . import accounting as accounting
from . import learning as learning
from . import queries as queries

# A stub hands on only what keeps its name.
load_records = _load_records
load_task = _load_task
read_study_settings = _read_study_settings

__version__: str
