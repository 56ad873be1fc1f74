"""A hospital's records as the tasks take them, and loaders for the files they lie in.

Nothing here looks at values beyond what is needed to read them: clipping, scaling and imputation happen in the task,
by public numbers. Error texts name columns and count rows; they never hold a value of a record.
"""

from client_sdk.data.files import load, read_csv, read_heart_disease, read_idx, read_images, read_npz, read_parquet
from client_sdk.data.held import AnyRecords, Records, one_per_patient, records_of
from client_sdk.data.lazy import LazyExamples, Reader
from client_sdk.data.records import DataError, Examples, Table, WrongRows, like

__all__ = [
    "AnyRecords",
    "DataError",
    "Examples",
    "LazyExamples",
    "Reader",
    "Records",
    "Table",
    "WrongRows",
    "like",
    "load",
    "one_per_patient",
    "read_csv",
    "read_heart_disease",
    "read_idx",
    "read_images",
    "read_npz",
    "read_parquet",
    "records_of",
]
