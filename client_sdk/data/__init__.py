"""A hospital's records as the tasks take them, and loaders for the files they lie in.

Nothing here looks at values beyond what is needed to read them: clipping, scaling and imputation happen in the task,
by public numbers. Error texts name columns and count rows; they never hold a value of a record.
"""

from client_sdk.data.arrays import read_idx, read_npz
from client_sdk.data.datasets import records_of
from client_sdk.data.files import load
from client_sdk.data.images import read_images
from client_sdk.data.records import AnyRecords, DataError, Examples, Records, Table, one_per_patient
from client_sdk.data.tables import read_csv, read_heart_disease, read_parquet

__all__ = [
    "AnyRecords",
    "DataError",
    "Examples",
    "Records",
    "Table",
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
