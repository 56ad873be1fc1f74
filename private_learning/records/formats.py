"""The formats of records in files and folders. A new format is a module with its reader, and an entry of FORMATS."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from private_learning.records.array_files import Split, list_npy, list_npz, read_idx, read_npy, read_npz
from private_learning.records.dicom import SUFFIXES as DICOM_ENDS
from private_learning.records.dicom import is_dicom, list_dicom
from private_learning.records.histories import holds_histories, read_histories
from private_learning.records.images import list_images
from private_learning.records.in_memory import OnDemand, Records
from private_learning.records.lazy import LazyExamples, reads_lazily
from private_learning.records.lazy_table import LazyTable, list_table, table_files
from private_learning.records.masks import holds_masks, list_masked
from private_learning.records.nifti import SUFFIXES as NIFTI_ENDS
from private_learning.records.nifti import list_nifti
from private_learning.records.paths import require_there, visible_paths
from private_learning.records.pictures import SUFFIXES
from private_learning.records.records import DataError, Examples
from private_learning.records.row_groups import SUFFIXES as COLUMNAR_ENDS
from private_learning.records.shards import list_shards, shards_at
from private_learning.records.table_files import read_csv, read_heart_disease
from private_learning.records.table_format import TableFormat
from study_protocol.cells import AS_WRITTEN

IMAGE_ENDS = tuple(sorted(SUFFIXES))
TEXT_ENDS = (".csv", ".tsv", ".tab", ".txt", ".data")


@dataclass(frozen=True)
class ReadOptions:
    """The options of `load` for a path."""

    table_format: TableFormat | None = None
    patient_column: str | None = None
    split: Split = "train"
    encoding: str | None = None
    lazy: bool | None = None


@dataclass(frozen=True)
class RecordFormat:
    """One format of records.

    endings    of file names in lower case, without .gz
    read       the reader, whose docstring describes the format. `load` reads its result on demand or into memory
    holds      whether a path has this format by itself. None: only a folder of its files has it
    is_record  whether a file in a folder is a record of this format. None: no such folder is read
    extra      the extra of this package that the reader needs
    is_table   whether it takes the column of patients and the declared format
    """

    endings: tuple[str, ...]
    read: Callable[[Path, ReadOptions], Records | OnDemand]
    holds: Callable[[Path], bool] | None = None
    is_record: Callable[[Path], bool] | None = None
    extra: str = ""
    is_table: bool = False


def format_of(path: Path) -> RecordFormat:
    """Return the first format that holds the path, or the format of the files in a folder.

    Raises:
        DataError: the path is one image, or of no format.
    """
    for entry in FORMATS.values():
        if entry.holds is not None and entry.holds(path):
            return entry
    if path.is_dir():
        return FORMATS[next(iter(kinds_within(path)), "images")]
    if any(entry.is_record is not None and entry.is_record(path) for entry in FORMATS.values()):
        raise DataError(
            f"{path.name}: this is one image. Name its folder, which holds a sub-folder for each class, or labels.csv"
        )
    raise _no_format(path)


def _no_format(path: Path) -> DataError:
    formats = [entry for entry in FORMATS.values() if entry.holds is not None and entry.endings != TEXT_ENDS]
    *ends, last = (ending for entry in formats for ending in entry.endings)
    return DataError(
        f"{path.name}: a text table ({', '.join(TEXT_ENDS)}, also with .gz), a {', '.join(ends)} or {last} file or a "
        "folder of images is expected"
    )


def require_one_kind(folder: Path) -> None:
    """Require files of one kind. Raises DataError: there are several kinds, and only one of them would be read."""
    counts = kinds_within(folder)
    if len(counts) > 1:
        summary = ", ".join(f"{kind}: {count}" for kind, count in counts.items())
        raise DataError(f"{folder.name}: the folder holds files of several kinds ({summary}). Keep one kind in it")


def kinds_within(folder: Path) -> dict[str, int]:
    """Return the number of records of each format in the folder and below it, tables left out, by name."""
    paths = visible_paths(folder, below=True)
    kinds = {name: entry.is_record for name, entry in sorted(FORMATS.items()) if entry.is_record is not None}
    counts = {name: sum(map(is_record, paths)) for name, is_record in kinds.items()}
    return {name: count for name, count in counts.items() if count}


def is_heart_disease(path: Path) -> bool:
    """Return whether a file has the name of one of UCI's heart disease tables."""
    return re.fullmatch(r"processed\.\w+\.data", path.name.lower()) is not None


def is_text_table(path: Path) -> bool:
    """Return whether the name is that of a text table."""
    return _bare_name(path).endswith(TEXT_ENDS)


def _is_columnar(path: Path) -> bool:
    return path.suffix.lower() in COLUMNAR_ENDS or bool(table_files(path))


def _is_idx(path: Path) -> bool:
    return not path.is_dir() and "images-idx" in _bare_name(path)


def is_folder_of_histories(path: Path) -> bool:
    """Return whether the path is a folder of patients and their events."""
    return path.is_dir() and holds_histories(path) and not kinds_within(path)


def _bare_name(path: Path) -> str:
    return path.name.removesuffix(".gz").lower()


def _file_named(*endings: str) -> Callable[[Path], bool]:
    return lambda path: not path.is_dir() and _bare_name(path).endswith(endings)


def _ending_in(*endings: str) -> Callable[[Path], bool]:
    return lambda path: path.name.lower().endswith(endings)


def _refuse_lazy(path: Path, options: ReadOptions, records: str, advice: str = "") -> None:
    if options.lazy:
        raise DataError(f"{path.name}: {records} read into memory as a whole. Leave lazy out{advice}")


def _histories(path: Path, options: ReadOptions) -> Records:
    """Read a folder of tables: patients.csv with one row for each patient, and tables of events."""
    _refuse_lazy(path, options, "histories are")
    return read_histories(path, options.table_format, patient_column=options.patient_column, encoding=options.encoding)


def _columnar(path: Path, options: ReadOptions) -> LazyTable:
    """Read a table in Parquet or Arrow, or a folder of only such files."""
    spelling = AS_WRITTEN if options.table_format is None else options.table_format.spelling
    table = list_table(path, patient_column=options.patient_column, spelling=spelling)
    return replace(table, format=options.table_format)


def _text_table(path: Path, options: ReadOptions) -> Records:
    """Read a text table with a header, or processed.<site>.data of UCI's heart disease data."""
    _refuse_lazy(path, options, "a text table is", ", or write it as Parquet")
    if is_heart_disease(path) and options.patient_column is None:
        return read_heart_disease(path)
    return read_csv(path, options.table_format, patient_column=options.patient_column, encoding=options.encoding)


def _npz(path: Path, options: ReadOptions) -> Records:
    """Read arrays inputs, labels and optionally patients, or those of MedMNIST."""
    rows = list_npz(path, split=options.split)
    return _rows_or_whole(path, rows, options, lambda: read_npz(path, split=options.split))


def _npy(path: Path, options: ReadOptions) -> Records:
    """Read inputs.npy beside labels.npy and optionally patients.npy."""
    return _rows_or_whole(path, list_npy(path), options, lambda: read_npy(path))


def _rows_or_whole(
    path: Path, rows: LazyExamples | None, options: ReadOptions, read_whole: Callable[[], Examples]
) -> Records:
    if rows is None and options.lazy:
        raise DataError(
            f"{path.name}: the inputs are compressed or stored column by column, and cannot be read row by row: write "
            "them again with numpy.save or numpy.savez, in C's order"
        )
    # A whole array is read faster than its rows.
    return rows if rows is not None and reads_lazily(rows, options.lazy) else read_whole()


def _idx(path: Path, options: ReadOptions) -> Examples:
    """Read IDX images beside their labels."""
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    require_there(labels)
    _refuse_lazy(path, options, "IDX files are")
    return Examples.of(read_idx(path), read_idx(labels))


def _shards(path: Path, options: ReadOptions) -> LazyExamples:
    """Read a shard of WebDataset, several as shards-{000..012}.tar, or a folder of them."""
    shards = shards_at(path)
    return list_shards(shards) if shards else _images(path, options)


def _dicom(path: Path, _: ReadOptions) -> LazyExamples:
    """Read a folder with a sub-folder for each class or labels.csv."""
    return list_dicom(path)


def _nifti(path: Path, _: ReadOptions) -> LazyExamples:
    """Read a folder of volumes with a sub-folder for each class or labels.csv."""
    return list_nifti(path)


def _images(path: Path, _: ReadOptions) -> LazyExamples:
    """Read a folder with a sub-folder for each class or labels.csv, or with images and masks."""
    if holds_masks(path):
        return list_masked(path)
    _refuse_other_files(path)
    return list_images(path)


def _refuse_other_files(folder: Path) -> None:
    """Require a folder of images. Raises DataError: it holds arrays or tables instead."""
    paths = visible_paths(folder)
    if any(path.is_dir() or path.suffix.lower() in SUFFIXES for path in paths):
        return
    names = [path.name.lower() for path in paths]
    if "inputs.npy" in names:
        raise DataError(f"{folder.name}: arrays are read from the file {folder.name}/inputs.npy, not from its folder")
    if any(name.removesuffix(".gz").endswith((*TEXT_ENDS, ".parquet")) for name in names):
        raise DataError(
            f"{folder.name}: a folder of tables needs patients.csv with one row for each patient, and tables "
            "of events (.csv, .tsv or .parquet) beside it. A single table is read from its file"
        )


FORMATS: dict[str, RecordFormat] = {
    "histories": RecordFormat((), _histories, is_folder_of_histories, is_table=True),
    "columnar table": RecordFormat(COLUMNAR_ENDS, _columnar, _is_columnar, extra="parquet", is_table=True),
    "text table": RecordFormat(TEXT_ENDS, _text_table, is_text_table, is_table=True),
    "npz": RecordFormat((".npz",), _npz, _file_named(".npz")),
    "npy": RecordFormat((".npy",), _npy, _file_named(".npy")),
    "shards": RecordFormat((".tar",), _shards, _file_named(".tar"), _ending_in(".tar")),
    "IDX": RecordFormat(("images-idx",), _idx, _is_idx),
    "DICOM": RecordFormat(DICOM_ENDS, _dicom, is_record=is_dicom, extra="imaging"),
    "NIfTI": RecordFormat(NIFTI_ENDS, _nifti, is_record=_ending_in(*NIFTI_ENDS), extra="imaging"),
    "images": RecordFormat(IMAGE_ENDS, _images, is_record=_ending_in(*IMAGE_ENDS), extra="images"),
}
