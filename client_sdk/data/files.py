"""Records from a path, by its name: tables, arrays, and folders of images."""

from __future__ import annotations

import csv
import gzip
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from client_sdk.data.records import Array, DataError, Examples, Records, Table

Split = Literal["train", "val", "test"]
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"}
_ONE_CHANNEL = {"1", "L", "F", "I", "I;16", "I;16B", "I;16L"}
PATIENTS_FILE = "patients.csv"
# The attributes of the UCI heart disease files, which have no header line (Detrano et al. 1989).
_HEART_DISEASE = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"),
    *("oldpeak", "slope", "ca", "thal", "num"),
)


def load(path: str | Path, *, patient_column: str | None = None, split: Split = "train") -> Records:
    """Records from a file or a folder, by its name.

    .csv(.gz), .data, .parquet  a table with a header; processed.<site>.data: UCI heart disease, which has none
    .npz                        arrays inputs and labels, or those of MedMNIST, of which `split` is read
    *images-idx3*               IDX images beside their IDX labels
    a folder                    one sub-folder of images for each class

    Raises:
        DataError: an unknown kind of file, or one that does not hold what its name promises.
        FileNotFoundError: no such file.
    """
    path = Path(path)
    if patient_column is None and re.fullmatch(r"processed\.\w+\.data", path.name):
        return read_heart_disease(path)
    if path.suffix in (".csv", ".data", ".parquet") or path.name.endswith(".csv.gz"):
        read = read_parquet if path.suffix == ".parquet" else read_csv
        return read(path, patient_column=patient_column)
    known = path.suffix == ".npz" or "images-idx" in path.name or path.is_dir()
    if patient_column is not None and known:
        raise DataError(
            "patient_column belongs to tables; an .npz file holds an array `patients`, a folder of images patients.csv"
        )
    if path.suffix == ".npz":
        return read_npz(path, split=split)
    if "images-idx" in path.name:
        labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
        return Examples.of(read_idx(path), read_idx(labels))
    if path.is_dir():
        return read_images(path)
    raise DataError(f"{path.name}: a .csv, .parquet, .npz or images-idx file or a folder of images is expected")


def read_csv(
    path: Path,
    *,
    patient_column: str | None = None,
    names: Sequence[str] | None = None,
    missing: Sequence[str] = ("", "?", "NA", "NaN", "nan"),
) -> Table:
    """A table from a comma-separated file, gzipped if its name ends in .gz; `names` where it has no header line.

    Raises:
        DataError: not UTF-8, no rows, a row of another length, a column named twice.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        # Spreadsheets write a byte order mark, which would become part of the first name: hence utf-8-sig.
        with opener(path, "rt", newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile) as error:
        raise DataError(f"{path.name}: comma-separated text in UTF-8 is expected") from error
    header = list(names) if names is not None else rows.pop(0) if rows else []
    if len(set(header)) != len(header):
        raise DataError(f"{path.name}: a column is named twice")
    if not rows:
        raise DataError(f"{path.name}: there are no records" + ("" if header else ", not even a header"))
    if len(header) == 1 and any(mark in header[0] for mark in ";\t|"):
        raise DataError(f"{path.name}: commas are expected between the columns")
    wrong = sum(len(row) != len(header) for row in rows)
    if wrong:
        raise DataError(f"{path.name}: {wrong} of {len(rows)} rows do not have {len(header)} cells")
    absent = set(missing)
    columns = {
        name.strip(): [None if cell.strip() in absent else cell.strip() for cell in cells]
        for name, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return Table.of(columns, patient_column=patient_column)


def read_parquet(path: Path, *, patient_column: str | None = None) -> Table:
    """A table from a Parquet file. Needs the package pyarrow."""
    try:
        import pyarrow.parquet as parquet  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
    except ImportError as error:
        raise DataError("Parquet files need the package pyarrow: pip install pyarrow") from error
    if not path.is_file():
        raise FileNotFoundError(path)
    arrow = cast(Any, parquet)  # It comes without annotations.
    return Table.of(arrow.read_table(path).to_pydict(), patient_column=patient_column)


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
    with np.load(path, allow_pickle=False) as arrays:
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


def read_idx(path: Path) -> Array:
    """An IDX array, gzipped or not (LeCun, Cortes, Burges: the format of MNIST).

    Raises:
        DataError: not IDX, or shorter or longer than its header says.
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
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
        DataError: no classes or images, files that are no images, several sizes, a file without its patient.
        FileNotFoundError: no such folder.
    """
    if not folder.is_dir():
        raise FileNotFoundError(folder)
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
