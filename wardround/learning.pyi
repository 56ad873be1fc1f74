from private_learning.gradients import ClippedSum as ClippedSum
from private_learning.gradients import NonFiniteError as NonFiniteError
from private_learning.gradients import PerRecordGradients as PerRecordGradients
from private_learning.gradients import Slots as Slots
from private_learning.gradients import UnsupportedLayer as UnsupportedLayer
from private_learning.records import ColumnForms as ColumnForms
from private_learning.records import DataError as DataError
from private_learning.records import Examples as Examples
from private_learning.records import Histories as Histories
from private_learning.records import LazyExamples as LazyExamples
from private_learning.records import LazyTable as LazyTable
from private_learning.records import Proposal as Proposal
from private_learning.records import Reader as Reader
from private_learning.records import Records as Records
from private_learning.records import Table as Table
from private_learning.records import TableFormat as TableFormat
from private_learning.records import list_dicom as list_dicom
from private_learning.records import list_nifti as list_nifti
from private_learning.records import list_table as list_table
from private_learning.records import load as _load_records
from private_learning.records import one_per_patient as one_per_patient
from private_learning.records import propose_format as propose_format
from private_learning.records import read_csv as read_csv
from private_learning.records import read_heart_disease as read_heart_disease
from private_learning.records import read_histories as read_histories
from private_learning.records import read_idx as read_idx
from private_learning.records import read_images as read_images
from private_learning.records import read_npz as read_npz
from private_learning.records import read_parquet as read_parquet
from private_learning.records import records_of as records_of
from private_learning.tasks import Classification as Classification
from private_learning.tasks import Task as Task
from private_learning.tasks import TaskDataset as TaskDataset
from private_learning.tasks import TaskError as TaskError
from private_learning.tasks import load as _load_task
from private_learning.tasks import names as _task_names
from private_learning.tasks.backbone_file import ProgramFile as ProgramFile
from private_learning.training.gradients import poisson_batch as poisson_batch
from private_learning.training.noise import NoisySum as NoisySum
from private_learning.training.noise import add_noise as add_noise
from private_learning.training.posterior import PosteriorFit as PosteriorFit
from private_learning.training.posterior import PosteriorPlan as PosteriorPlan
from private_learning.training.posterior import draw_posterior as draw_posterior
from private_learning.training.posterior import fit_posterior as fit_posterior
from private_learning.training.posterior import gradient_norms as gradient_norms
from private_learning.training.posterior import posterior_probabilities as posterior_probabilities
from study_protocol.randomness.source import Purpose as Purpose
from study_protocol.randomness.source import SecureRandomness as SecureRandomness
from study_protocol.randomness.source import SecureSource as SecureSource
from study_protocol.randomness.source import SeededRandomness as SeededRandomness

# A stub hands on only what keeps its name.
load_records = _load_records
load_task = _load_task
task_names = _task_names
