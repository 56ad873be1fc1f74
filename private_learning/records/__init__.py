"""A hospital's records in the form that tasks take, and loaders for their files.

The loaders look at values only to read them. Clipping, scaling and imputation happen in the task, by public numbers.
Error texts name columns and count rows. They never hold a value of a record.
"""

from private_learning.records.array_files import read_idx, read_npz
from private_learning.records.dicom import list_dicom
from private_learning.records.files import load, propose_format, text_tables
from private_learning.records.histories import Histories, read_histories
from private_learning.records.images import list_images, read_images
from private_learning.records.in_memory import AnyRecords, OnDemand, Records, as_declared, one_per_patient, records_of
from private_learning.records.lazy import LazyExamples, Reader
from private_learning.records.lazy_table import LazyTable, list_table
from private_learning.records.mapping import MappingCounts, TableMapping
from private_learning.records.nifti import list_nifti
from private_learning.records.proposal import ColumnForms, Proposal
from private_learning.records.records import DataError, Examples, Table, WrongRows, like
from private_learning.records.shards import list_shards
from private_learning.records.table_files import read_csv, read_heart_disease, read_parquet
from private_learning.records.table_format import TableFormat

__all__ = [
    "AnyRecords",
    "ColumnForms",
    "DataError",
    "Examples",
    "Histories",
    "LazyExamples",
    "LazyTable",
    "MappingCounts",
    "OnDemand",
    "Proposal",
    "Reader",
    "Records",
    "Table",
    "TableFormat",
    "TableMapping",
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
