"""Records from a path, by its name."""

from __future__ import annotations

import re
from pathlib import Path

from client_sdk.data.arrays import Split, read_idx, read_npz
from client_sdk.data.images import read_images
from client_sdk.data.records import DataError, Examples, Records
from client_sdk.data.tables import read_csv, read_heart_disease, read_parquet


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
