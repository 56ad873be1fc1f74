"""A hospital's records as the tasks take them, and loaders for the files they lie in.

Nothing here looks at values beyond what is needed to read them: clipping, scaling and imputation happen in the task,
by public numbers. Error texts name columns and count rows; they never hold a value of a record.
"""

from client_sdk.data.array_files import read_idx, read_npz
from client_sdk.data.dicom import list_dicom
from client_sdk.data.files import load, propose_format, text_tables
from client_sdk.data.held import AnyRecords, OnDemand, Records, as_declared, one_per_patient, records_of
from client_sdk.data.histories import Histories, read_histories
from client_sdk.data.images import list_images, read_images
from client_sdk.data.lazy import LazyExamples, Reader
from client_sdk.data.lazy_table import LazyTable, list_table
from client_sdk.data.nifti import list_nifti
from client_sdk.data.proposal import ColumnForms, Proposal
from client_sdk.data.records import DataError, Examples, Table, WrongRows, like
from client_sdk.data.shards import list_shards
from client_sdk.data.table_files import read_csv, read_heart_disease, read_parquet
from client_sdk.data.table_format import TableFormat

__all__ = [
    "AnyRecords",
    "ColumnForms",
    "DataError",
    "Examples",
    "Histories",
    "LazyExamples",
    "LazyTable",
    "OnDemand",
    "Proposal",
    "Reader",
    "Records",
    "Table",
    "TableFormat",
    "WrongRows",
    "as_declared",
    "like",
    "list_dicom",
    "list_images",
    "list_nifti",
    "list_shards",
    "list_table",
    "load",
    "one_per_patient",
    "propose_format",
    "read_csv",
    "read_heart_disease",
    "read_histories",
    "read_idx",
    "read_images",
    "read_npz",
    "read_parquet",
    "records_of",
    "text_tables",
]
