"""Records from a file or folder, chosen by its name: tables, arrays, folders of images, shards."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from private_learning.records.array_files import Split, list_npy, list_npz, read_idx, read_npy, read_npz
from private_learning.records.dicom import holds_dicom, is_dicom, list_dicom
from private_learning.records.histories import holds_histories, propose_for_histories, read_histories, text_histories
from private_learning.records.images import list_images
from private_learning.records.in_memory import Records, records_of
from private_learning.records.lazy import LazyExamples, reads_lazily
from private_learning.records.lazy_table import list_table, table_files
from private_learning.records.masks import holds_masks, list_masked
from private_learning.records.nifti import SUFFIXES as NIFTI_ENDS
from private_learning.records.nifti import holds_nifti, list_nifti
from private_learning.records.paths import require_there, visible_paths
from private_learning.records.pictures import SUFFIXES as IMAGE_ENDS
from private_learning.records.proposal import DeclaredParts, Proposal, combined, examine
from private_learning.records.records import DataError, Examples
from private_learning.records.row_groups import SUFFIXES
from private_learning.records.shards import is_pattern, list_shards, shards_at
from private_learning.records.table_files import read_csv, read_heart_disease
from private_learning.records.table_format import Dates, Separator, TableFormat
from study_protocol.cells import AS_WRITTEN
from study_protocol.cells.spelling import Decimal

_TEXT_TABLES = (".csv", ".tsv", ".tab", ".txt", ".data")
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
_ARRAYS = (".npz", ".npy", ".tar")


def load(
    path: Any,
    table_format: TableFormat | None = None,
    *,
    patient_column: str | None = None,
    split: Split = "train",
    encoding: str | None = None,
    lazy: bool | None = None,
    keys: Sequence[Any] | None = None,
) -> Records:
    """Return records from a file or a folder, by its name, or from data that `records_of` takes, such as a data frame.

    .csv .tsv .txt .data (.gz)  a text table with a header. processed.<site>.data: UCI heart disease, without a header
    .parquet .arrow .feather    a table (package pyarrow). A folder of only such files: one table in several files
    .npz                        arrays inputs and labels, or those of MedMNIST, from which `split` is read
    inputs.npy                  beside labels.npy and optionally patients.npy
    *images-idx3*               IDX images beside their IDX labels
    *.tar                       a shard of WebDataset. Several: shards-{000..012}.tar, or a folder of only such files
    a folder                    one sub-folder of images, DICOM or NIfTI files for each class, or labels.csv. Or images
                                and masks, by their names. Or tables: patients.csv with tables of events beside it

    table_format  the declared format of its tables, which is the only one used. None: as the tables themselves propose
                  (`propose_format`), and the records are marked as undeclared
    encoding      for a proposal: encoding of a text table that is not Unicode, for example cp1252
    lazy          read Parquet, Arrow, images, shards and plain arrays on demand (True), all of them now (False), or on
                  demand if they take more than 512 MiB (None). Training gives the same bytes either way
    keys          of a data set of dictionaries, as in `records_of`

    Raises:
        DataError: there is no such file, its kind is unknown, or its content does not fit its name. Or `lazy` is set
            for records that are never read on demand.
    """
    if not isinstance(path, str | os.PathLike):
        return records_of(path, patient_column=patient_column, lazy=lazy, table_format=table_format, keys=keys)
    path = Path(cast("str | os.PathLike[str]", path))
    name = path.name.removesuffix(".gz").lower()
    if path.suffix.lower() in _WORKBOOKS:
        raise DataError(f"{path.name}: an Excel workbook is not read. Save its sheet as 'CSV UTF-8'")
    if not is_pattern(path):
        require_there(path, folder_allowed=True)
    if path.is_dir() and holds_histories(path) and not _kinds_within(path):
        if lazy:
            raise DataError(f"{path.name}: histories are read into memory as a whole. Leave lazy out")
        return read_histories(path, table_format, patient_column=patient_column, encoding=encoding)
    if path.suffix.lower() in SUFFIXES or table_files(path):
        spelling = AS_WRITTEN if table_format is None else table_format.spelling
        table = replace(list_table(path, patient_column=patient_column, spelling=spelling), format=table_format)
        return table if reads_lazily(table, lazy) else table.in_memory()
    table = name.endswith(_TEXT_TABLES)
    if not (table or path.is_dir() or name.endswith(_ARRAYS) or "images-idx" in name):
        _refuse_single(path)
        raise DataError(
            f"{path.name}: a text table ({', '.join(_TEXT_TABLES)}, also with .gz), a .parquet, .arrow, .feather, "
            ".npz, .npy, .tar or images-idx file or a folder of images is expected"
        )
    if table:
        if lazy:
            raise DataError(
                f"{path.name}: a text table is read into memory as a whole. Leave lazy out, or write it as Parquet"
            )
        return _table(path, table_format, patient_column, encoding)
    if patient_column is not None:
        raise DataError(
            "patient_column belongs to tables. An .npz file has an array `patients`, a folder of images patients.csv"
        )
    return _arrays(path, name, split, lazy)


def text_tables(path: Path) -> list[Path]:
    """Return the text tables at this path, for which a format must be known. Other files give an empty list."""
    if path.is_dir():
        return text_histories(path) if holds_histories(path) and not _kinds_within(path) else []
    return (
        [path] if path.name.removesuffix(".gz").lower().endswith(_TEXT_TABLES) and not _is_heart_disease(path) else []
    )


def propose_format(
    path: str | Path,
    *,
    separator: Separator | None = None,
    encoding: str | None = None,
    decimal: Decimal | None = None,
    dates: Dates | None = None,
) -> Proposal:
    """Return the proposed format of a text table, or of all text tables of a folder. Given arguments are declared.

    The decimal mark is None if the file leaves a doubt: it has numbers with points and with commas, or only numbers
    that may be thousands. The order of dates is proposed if a day above 12 shows it.

    Raises:
        DataError: there is no text table, its bytes are no Unicode, the separator is not clear, or the header is
            missing. Or the tables of a folder have different formats.
    """
    path = Path(path)
    tables = text_tables(path)
    if not tables:
        raise DataError(f"{path.name}: it holds no text table to propose a format for")
    stated = DeclaredParts(separator, encoding, decimal, dates)
    if path.is_dir():
        return propose_for_histories(tables, stated)
    return combined([examine(path, stated)[0]])


def _is_heart_disease(path: Path) -> bool:
    return re.fullmatch(r"processed\.\w+\.data", path.name.lower()) is not None


def _table(path: Path, table_format: TableFormat | None, patient_column: str | None, encoding: str | None) -> Records:
    if _is_heart_disease(path) and patient_column is None:
        return read_heart_disease(path)
    return read_csv(path, table_format, patient_column=patient_column, encoding=encoding)


def _arrays(path: Path, name: str, split: Split, lazy: bool | None) -> Records:
    if path.is_dir() or name.endswith(".tar"):
        lazy_examples = _on_disk(path)
        return lazy_examples if reads_lazily(lazy_examples, lazy) else lazy_examples.in_memory()
    if name.endswith((".npz", ".npy")):
        npz = name.endswith(".npz")
        return _stored(path, list_npz(path, split=split) if npz else list_npy(path), split, lazy)
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    require_there(labels)
    if lazy:
        raise DataError(f"{path.name}: IDX files are read into memory as a whole. Leave lazy out")
    return Examples.of(read_idx(path), read_idx(labels))


def _on_disk(path: Path) -> LazyExamples:
    """Return the examples of a folder or of shards."""
    if path.is_dir():
        _require_one_kind(path)
    if shards := shards_at(path):
        return list_shards(shards)
    if holds_dicom(path):
        return list_dicom(path)
    if holds_nifti(path):
        return list_nifti(path)
    if holds_masks(path):
        return list_masked(path)
    _refuse_other_files(path)
    return list_images(path)


def _refuse_other_files(folder: Path) -> None:
    """Require a folder of images. Raises DataError: it holds arrays or tables instead."""
    paths = visible_paths(folder)
    if any(path.is_dir() or path.suffix.lower() in IMAGE_ENDS for path in paths):
        return
    names = [path.name.lower() for path in paths]
    if "inputs.npy" in names:
        raise DataError(f"{folder.name}: arrays are read from the file {folder.name}/inputs.npy, not from its folder")
    if any(name.removesuffix(".gz").endswith((*_TEXT_TABLES, ".parquet")) for name in names):
        raise DataError(
            f"{folder.name}: a folder of tables needs patients.csv with one row for each patient, and tables "
            "of events (.csv, .tsv or .parquet) beside it. A single table is read from its file"
        )


def _refuse_single(path: Path) -> None:
    """Refuse a single image. Raises DataError: the file is one, and its folder must be named instead."""
    if path.suffix.lower() in IMAGE_ENDS or path.name.lower().endswith(NIFTI_ENDS) or is_dicom(path):
        raise DataError(
            f"{path.name}: this is one image. Name its folder, which holds a sub-folder for each class, or labels.csv"
        )


def _kinds_within(folder: Path) -> dict[str, int]:
    """Return the number of files of each kind except tables in the folder and below it. Absent kinds are left out."""
    ends = {"NIfTI": NIFTI_ENDS, "images": tuple(IMAGE_ENDS), "shards": (".tar",)}
    paths = visible_paths(folder, below=True)
    counts = {"DICOM": sum(is_dicom(path) for path in paths)}
    counts |= {kind: sum(path.name.lower().endswith(end) for path in paths) for kind, end in ends.items()}
    return {kind: count for kind, count in counts.items() if count}


def _require_one_kind(folder: Path) -> None:
    """Require files of one kind. Raises DataError: there are several kinds, and only one of them would be read."""
    counts = _kinds_within(folder)
    if len(counts) > 1:
        summary = ", ".join(f"{kind}: {count}" for kind, count in counts.items())
        raise DataError(f"{folder.name}: the folder holds files of several kinds ({summary}). Keep one kind in it")


def _stored(path: Path, lazy_examples: LazyExamples | None, split: Split, lazy: bool | None) -> Records:
    if lazy_examples is None and lazy:
        raise DataError(
            f"{path.name}: the inputs are compressed or stored column by column, and cannot be read row by row: write "
            "them again with numpy.save or numpy.savez, in C's order"
        )
    # A whole array is read faster than its rows.
    if lazy_examples is not None and reads_lazily(lazy_examples, lazy):
        return lazy_examples
    return read_npz(path, split=split) if path.suffix.lower() == ".npz" else read_npy(path)
