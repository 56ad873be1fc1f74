"""Parsers of the files that hold records."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from private_learning.records.files import load, propose_format
from private_learning.records.lazy import LazyExamples
from private_learning.records.records import DataError, Table
from private_learning.records.table_format import TableFormat
from tests.harness.fuzzing.study_targets import with_file
from tests.harness.fuzzing.target import Target, choose, chosen_seeds

_FORMATS = (
    TableFormat(separator="comma", decimal="point"),
    TableFormat(separator="semicolon", decimal="comma", dates="dmy"),
    TableFormat(separator="tab", decimal="point"),
)
_TEXTS = (
    b"patient,age,sex,seen\np-1,71,f,2024-02-03\np-2,<5,m,\n",
    b'patient;age;sex;seen\np-1;71,5;f;3.2.2024\n"p;2";"1.234,5";m;\n',
    b"patient\tage\tsex\np-1\t1e3\tf\n",
)


def _read_all(path: Any, format: TableFormat | None = None) -> None:
    """Read records and look at every cell and every input."""
    records = load(path, format)
    if isinstance(records, LazyExamples):
        records = records.in_memory()
    if not isinstance(records, Table):
        return
    for name in records.columns:
        # A column of words has no numbers, which is an error of this column alone.
        with suppress(DataError):
            records.numbers(name)


def _parse_table(data: bytes) -> None:
    """Read a text table as it is declared, and check that a row more changes no cell of the others."""
    number, body = choose(data, 2 * len(_FORMATS))
    packed, format = number >= len(_FORMATS), _FORMATS[number % len(_FORMATS)]
    name, body = ("table.csv.gz", gzip.compress(body, 1, mtime=0)) if packed else ("table.csv", body)
    with_file(body, name, lambda path: _read_all(path, format))


def _parse_proposal(data: bytes) -> None:
    def propose(path: Any) -> None:
        proposal = propose_format(path)
        _read_all(path, proposal.format)

    with_file(data, "table.csv", propose)


def _of_suffix(*suffixes: str) -> Callable[[bytes], None]:
    """A parser of files with one of these endings, which the first byte chooses."""

    def parse(data: bytes) -> None:
        number, body = choose(data, len(suffixes))
        with_file(body, f"records{suffixes[number]}", _read_all)

    return parse


def _parse_images(*suffixes: str) -> Callable[[bytes], None]:
    """A parser of a folder of two classes with one such file in each."""

    def parse(data: bytes) -> None:
        number, body = choose(data, len(suffixes))

        def read(path: Any) -> None:
            for folder in ("ill", "well"):
                (path.parent / "images" / folder).mkdir(parents=True)
                (path.parent / "images" / folder / f"a{suffixes[number]}").write_bytes(body)
            _read_all(path.parent / "images")

        with_file(b"", "beside", read)

    return parse


def _array_seeds() -> Iterable[bytes]:
    inputs, labels = np.zeros((3, 4, 4), np.uint8), np.zeros(3, np.int64)
    npz = io.BytesIO()
    np.savez(npz, inputs=inputs, labels=labels)
    yield b"\x00" + npz.getvalue()
    shard = io.BytesIO()
    with tarfile.open(fileobj=shard, mode="w") as tar:
        npy = io.BytesIO()
        np.save(npy, inputs[0])
        for name, body in (("1.npy", npy.getvalue()), ("1.cls", b"1"), ("1.json", b'{"patient": "p"}')):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    yield b"\x01" + shard.getvalue()


def _column_seeds() -> Iterable[bytes]:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    table = pa.table({"patient": ["a", "b"], "age": [1.5, None], "seen": pa.array([1, 2], pa.timestamp("s"))})
    parquet, feather = io.BytesIO(), io.BytesIO()
    pyarrow.parquet.write_table(table, parquet)
    pyarrow.feather.write_feather(table, feather)
    return chosen_seeds([parquet.getvalue(), feather.getvalue()])


_PICTURES = (".png", ".jpg", ".tif", ".bmp", ".webp")


def _picture_seeds() -> Iterable[bytes]:
    from PIL import Image

    for number, suffix in enumerate(_PICTURES):
        file = io.BytesIO()
        kind = {".jpg": "JPEG", ".tif": "TIFF"}.get(suffix, suffix[1:].upper())
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, kind)
        yield bytes([number]) + file.getvalue()


def _scan_seeds() -> Iterable[bytes]:
    import nibabel
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["wardround"])
    picture = FileDataset("", {}, file_meta=meta, preamble=bytes(128))
    picture.SOPClassUID, picture.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    picture.PatientID, picture.Modality = "p-1", "OT"
    picture.Rows = picture.Columns = 4
    picture.SamplesPerPixel, picture.PhotometricInterpretation = 1, "MONOCHROME2"
    picture.BitsAllocated = picture.BitsStored = 8
    picture.HighBit, picture.PixelRepresentation = 7, 0
    picture.PixelData = bytes(16)
    file = io.BytesIO()
    picture.save_as(file, enforce_file_format=True)
    scan = nibabel.Nifti1Image(np.zeros((4, 4, 2), np.float32), np.eye(4)).to_bytes()
    return chosen_seeds([file.getvalue(), scan, gzip.compress(scan, mtime=0)])


TARGETS: Mapping[str, Target] = {
    "tables": Target(_parse_table, (DataError,), lambda: chosen_seeds([*_TEXTS, *_TEXTS])),
    "table-formats": Target(_parse_proposal, (DataError,), lambda: _TEXTS),
    "arrays": Target(_of_suffix(".npz", ".tar"), (DataError,), _array_seeds),
    "column-files": Target(_of_suffix(".parquet", ".arrow"), (DataError,), _column_seeds),
    "pictures": Target(_parse_images(*_PICTURES), (DataError,), _picture_seeds),
    "scans": Target(_parse_images(".dcm", ".nii", ".nii.gz"), (DataError,), _scan_seeds),
}
