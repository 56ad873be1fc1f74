"""Records from a path, by its name: tables, arrays, and folders of images."""

from __future__ import annotations

import gzip
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from client_sdk.data.delimited import Cells, read_sheet, with_points
from client_sdk.data.held import Records, records_of
from client_sdk.data.records import Array, DataError, Examples, Table

Split = Literal["train", "val", "test"]
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
_ONE_CHANNEL = {"1", "L", "F", "I", "I;16", "I;16B", "I;16L"}
_TEXT_TABLES = (".csv", ".tsv", ".tab", ".txt", ".data")
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods")
# What tables write where nothing was measured. Words that may mean something, such as None, are not among them.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
PATIENTS_FILE = "patients.csv"
# The attributes of the UCI heart disease files, which have no header line (Detrano et al. 1989).
_HEART_DISEASE = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)


def load(
    path: Any, *, patient_column: str | None = None, split: Split = "train", encoding: str | None = None
) -> Records:
    """Records from a file or a folder, by its name; or from whatever else `records_of` takes, such as a data frame.

    .csv .tsv .txt .data (.gz)  a text table with a header; processed.<site>.data: UCI heart disease, which has none
    .parquet                    a table (package pyarrow)
    .npz                        arrays inputs and labels, or those of MedMNIST, of which `split` is read
    *images-idx3*               IDX images beside their IDX labels
    a folder                    one sub-folder of images for each class

    encoding  of a text table, if it is not Unicode: cp1252, for example

    Raises:
        DataError: no such file, an unknown kind of file, or one that does not hold what its name promises.
    """
    if not isinstance(path, str | os.PathLike):
        return records_of(path, patient_column=patient_column)
    path = Path(cast("str | os.PathLike[str]", path))
    name = path.name.removesuffix(".gz").lower()
    if path.suffix.lower() in _WORKBOOKS:
        raise DataError(f"{path.name}: an Excel workbook is not read; save its sheet as 'CSV UTF-8'")
    _require_there(path, folder_allowed=True)
    table = name.endswith(_TEXT_TABLES) or name.endswith(".parquet")
    images = path.is_dir()
    if not (table or images or name.endswith(".npz") or "images-idx" in name):
        raise DataError(
            f"{path.name}: a text table ({', '.join(_TEXT_TABLES)}, also with .gz), a .parquet, .npz or images-idx "
            "file or a folder of images is expected"
        )
    if table:
        if re.fullmatch(r"processed\.\w+\.data", name) and patient_column is None:
            return read_heart_disease(path)
        if name.endswith(".parquet"):
            return read_parquet(path, patient_column=patient_column)
        return read_csv(path, patient_column=patient_column, encoding=encoding)
    if patient_column is not None:
        raise DataError(
            "patient_column belongs to tables; an .npz file holds an array `patients`, a folder of images patients.csv"
        )
    if images:
        return read_images(path)
    if name.endswith(".npz"):
        return read_npz(path, split=split)
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    _require_there(labels)
    return Examples.of(read_idx(path), read_idx(labels))


def _require_there(path: Path, *, folder_allowed: bool = False) -> None:
    """Raises DataError: there is nothing at the path, or not what is read there."""
    if not path.exists():
        raise DataError(f"{path.name}: there is no such file or folder in {path.parent.absolute()}")
    if path.is_dir() and not folder_allowed:
        raise DataError(f"{path.name} is a folder; name the file in it")
    if not os.access(path, os.R_OK):
        raise DataError(f"{path.name}: this user may not read it")
    if path.is_file() and path.stat().st_size == 0:
        raise DataError(f"{path.name}: the file is empty")


def read_csv(
    path: Path,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    missing: Sequence[str] = MISSING,
    encoding: str | None = None,
) -> Table:
    """A table from a text file, gzipped if its name ends in .gz; `names` where it has no header line.

    Commas, semicolons, tabs or bars stand between the cells: whichever makes every row equally long. Unicode with or
    without a byte order mark is read as such, anything else needs its `encoding`. Decimal commas are read as such where
    all numbers of the file agree. Columns without a name are left out.

    Raises:
        DataError: no such text table; the text names line and column, never what stands there.
    """
    _require_there(path)
    sheet = read_sheet(path, names=names, encoding=encoding)
    absent = set(missing)
    stripped = ([cell.strip() for cell in cells] for cells in zip(*sheet.rows, strict=True))
    columns: Cells = {
        name: [None if cell in absent else cell for cell in cells]
        for name, cells in zip(sheet.names, stripped, strict=True)
        if name
    }
    return Table.of(with_points(columns), patient_column=patient_column, lines=sheet.lines)


def read_parquet(path: Path, *, patient_column: str | None = None) -> Table:
    """A table from a Parquet file. Needs the package pyarrow."""
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install pyarrow") from error
    _require_there(path)
    arrow = cast(Any, parquet)  # It comes without annotations.
    try:
        columns = arrow.ParquetFile(path).read().to_pydict()
    # pyarrow's own errors are ValueErrors and OSErrors.
    except (ValueError, OSError) as error:
        raise DataError(f"{path.name}: this is not a whole Parquet file") from error
    return Table.of(columns, patient_column=patient_column)


def read_heart_disease(path: Path) -> Table:
    """A `processed.<site>.data` file of UCI heart disease: 13 attributes and `disease`, 0 or 1 (num above 0).

    A pressure or a cholesterol of 0 is how some sites wrote "not measured"; it reads as missing. Patients are named
    by site and row.

    Raises:
        DataError: not 14 columns.
    """
    columns = dict(read_csv(path, names=_HEART_DISEASE).columns)
    for name in ("trestbps", "chol"):
        columns[name] = np.where(columns[name] == 0, np.nan, columns[name])
    # 1 to 4 are degrees of the disease; studies of these files ask whether there is any.
    columns["disease"] = (columns.pop("num") > 0).astype(np.float64)
    site = path.name.removeprefix("processed.").removesuffix(".data")
    return Table(columns, tuple(f"{site}-{row}" for row in range(len(columns["disease"]))), named=False)


def read_npz(path: Path, *, split: Split = "train") -> Examples:
    """Examples from an .npz file. Never unpickles.

    Either the arrays `inputs`, `labels` and, if it is there, `patients`; or those of MedMNIST (Yang et al. 2023),
    <split>_images and <split>_labels, colours brought to the front.

    Raises:
        DataError: arrays are missing, or a record has several labels.
    """
    _require_there(path)
    with _opened_arrays(path) as arrays:
        if f"{split}_images" in arrays.files:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
            if labels.size != len(labels):
                raise DataError(f"{path.name}: several labels for one record; one is expected")
            coloured = images.ndim == 4 and images.shape[-1] == 3
            return Examples.of(np.moveaxis(images, -1, 1) if coloured else images, labels.reshape(-1))
        lacking = {"inputs", "labels"} - set(arrays.files)
        if lacking:
            raise DataError(f"{path.name}: the arrays {sorted(lacking)} are missing")
        return Examples.of(
            arrays["inputs"], arrays["labels"], arrays["patients"] if "patients" in arrays.files else None
        )


@contextmanager
def _opened_arrays(path: Path) -> Generator[Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            yield arrays
    # EOFError, BadZipFile, ValueError: what NumPy raises, here or where an array is read, for what it did not write.
    except (EOFError, OSError, zipfile.BadZipFile, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path.name}: not a whole .npz file of plain arrays (numpy.savez writes one)") from error


def read_idx(path: Path) -> Array:
    """An IDX array, gzipped or not (LeCun, Cortes, Burges: the format of MNIST).

    Raises:
        DataError: not IDX, or shorter or longer than its header says.
    """
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path.name}: it is not a whole gzip file; pack it again") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or len(data) < 4 + 4 * data[3]:
        raise DataError(f"{path.name}: not an IDX file")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    dtype = np.dtype(_IDX_TYPES[data[2]])
    if len(data) != 4 + 4 * data[3] + int(np.prod(shape)) * dtype.itemsize:
        raise DataError(f"{path.name}: the length does not fit the header")
    # IDX is big-endian, and PyTorch takes the machine's own order only.
    return np.frombuffer(data, dtype=dtype, offset=4 + 4 * data[3]).reshape(shape).astype(dtype.newbyteorder("="))


def read_images(folder: Path, *, classes: Sequence[str] | None = None) -> Examples:
    """Examples from <folder>/<class>/<image>; label k is the k-th class. Needs the package pillow.

    classes: names of the sub-folders; left out, all of them in the order of their names. Then every hospital of a study
    needs the same sub-folders, an empty one where it has no image of a class: the labels are their places.

    Grey images become (n, height, width), others (n, 3, height, width). Every image is a patient of its own unless the
    folder holds `patients.csv` with the columns file (<class>/<image>) and patient. Error texts count files, they never
    name them: names of files are often names of people.

    Raises:
        DataError: no classes or images, files that are no images, several sizes, a file without its patient, no
            such folder.
    """
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder.name} in {folder.parent.absolute()}")
    own = sorted(p.name for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    names = own if classes is None else list(classes)
    lacking = sorted(set(names) - set(own))
    if lacking or len(names) < 2:
        missing = f"; missing: {lacking}" if lacking else f"; there are {len(names)}"
        raise DataError(f"images: one sub-folder for each of at least two classes is expected{missing}")
    files = [
        (label, path)
        for label, name in enumerate(names)
        for path in sorted((folder / name).iterdir())
        if path.suffix.lower() in _SUFFIXES
    ]
    if not files:
        raise DataError(f"images: no file ends in {sorted(_SUFFIXES)}")
    patients = _patients(folder, [path.relative_to(folder).as_posix() for _, path in files])
    return Examples.of(_arrays([path for _, path in files]), [label for label, _ in files], patients)


def _arrays(paths: Sequence[Path]) -> Array:
    opened = [_opened(path) for path in paths]
    broken = sum(image is None for image in opened)
    if broken:
        raise DataError(f"images: {broken} of {len(paths)} files cannot be read as images")
    images = [image for image in opened if image is not None]
    if len({image.size for image in images}) > 1:
        raise DataError("images: bring them to one width and height first")
    if all(image.mode in _ONE_CHANNEL for image in images):
        # Not converted: grey of 16 bits would lose its depth.
        return np.stack([np.asarray(image) for image in images])
    return np.stack([np.moveaxis(np.asarray(image.convert("RGB")), -1, 0) for image in images])


def _opened(path: Path) -> Any:
    """A loaded image, or None if it is none."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("image folders need the package pillow: pip install 'wardround[images]'") from error
    try:
        with Image.open(path) as image:
            image.load()
            return image
    # SyntaxError is what Pillow raises for a broken PNG.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _patients(folder: Path, files: Sequence[str]) -> list[str] | None:
    listed = folder / PATIENTS_FILE
    if not listed.exists():
        return None
    columns = read_csv(listed).columns
    if not {"file", "patient"} <= set(columns):
        raise DataError(f"{PATIENTS_FILE}: the columns file and patient are expected")
    whose = dict(zip(columns["file"].tolist(), columns["patient"].tolist(), strict=True))
    unknown = sum(file not in whose for file in files)
    if unknown:
        raise DataError(f"{PATIENTS_FILE}: {unknown} of {len(files)} images are not listed")
    return [whose[file] for file in files]
