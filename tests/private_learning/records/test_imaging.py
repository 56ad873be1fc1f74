"""DICOM and NIfTI folders that the tests write: pixels, labels, patients, and what is refused."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pydicom
import pydicom.encaps
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, JPEGLSLossless, generate_uid

from private_learning.records import DataError, Examples, LazyExamples, list_dicom, list_nifti, load

DRAW = np.random.default_rng(1)


def dicom(path: Path, pixels: np.ndarray, **more: Any) -> Path:
    """A grey image as scanners write it: 12 of 16 bits, Hounsfield units by slope and intercept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = CTImageStorage, generate_uid()
    meta.TransferSyntaxUID = more.pop("syntax", ExplicitVRLittleEndian)
    image = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    image.SOPClassUID, image.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    image.Rows, image.Columns = pixels.shape[-2:]
    image.SamplesPerPixel, image.PhotometricInterpretation = 1, "MONOCHROME2"
    image.BitsAllocated, image.BitsStored, image.HighBit, image.PixelRepresentation = 16, 12, 11, 0
    image.RescaleSlope, image.RescaleIntercept = 1, -1024
    image.PatientID, image.ContentDate = path.stem, datetime.date(2024, 5, 3).strftime("%Y%m%d")
    for name, value in more.items():
        setattr(image, name, value)
    image.PixelData = pixels.astype(np.uint16).tobytes()
    image.save_as(path, enforce_file_format=True)
    return path


def scans(folder: Path, count: int = 6, **more: Any) -> dict[str, np.ndarray]:
    """Two classes, by sub-folders."""
    found: dict[str, np.ndarray] = {}
    for k in range(count):
        name = f"{('ill', 'well')[k % 2]}/p{k}.dcm"
        found[name] = DRAW.integers(0, 4096, (5, 4))
        dicom(folder / name, found[name], **more)
    return found


def test_a_folder_of_dicom_images_is_read_in_units_of_the_scanner(tmp_path: Path) -> None:
    written = scans(tmp_path)
    found = load(tmp_path)
    assert isinstance(found, Examples)
    names = sorted(written)
    assert found.inputs.dtype == np.float32
    np.testing.assert_array_equal(found.inputs, np.stack([written[name] - 1024.0 for name in names]))
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.patients == tuple(Path(name).stem for name in names)
    assert found.named
    lazy = load(tmp_path, lazy=True)
    assert isinstance(lazy, LazyExamples)
    np.testing.assert_array_equal(lazy.read([4, 1]).inputs, found.inputs[[4, 1]])


@pytest.mark.parametrize(("signed", "ends"), [(0, 4095), (1, -1)], ids=["unsigned", "signed"])
def test_where_white_stands_for_small_values_they_are_turned_round(tmp_path: Path, signed: int, ends: int) -> None:
    """By what a file could hold: 12 bits from 0 to 4,095, or from −2,048 to 2,047."""
    pixels = DRAW.integers(0, 2048, (5, 4))
    dicom(tmp_path / "a" / "one.dcm", pixels, PhotometricInterpretation="MONOCHROME1", PixelRepresentation=signed)
    (tmp_path / "b").mkdir()
    found = list_dicom(tmp_path).in_memory()
    np.testing.assert_array_equal(found.inputs[0], (ends - pixels) - 1024.0)


def test_labels_by_file_or_by_patient(tmp_path: Path) -> None:
    written = scans(tmp_path)
    names = sorted(written)
    lines = "".join(f"{name},{k % 2},{k / 10}\n" for k, name in enumerate(names))
    (tmp_path / "labels.csv").write_text("file,ill,score\n" + lines)
    found = list_dicom(tmp_path)
    np.testing.assert_allclose(found.labels, [[k % 2, k / 10] for k in range(6)])
    (tmp_path / "labels.csv").write_text("patient,label\n" + "".join(f"p{k},{k}\n" for k in range(6)))
    again = list_dicom(tmp_path)
    assert dict(zip(again.patients, again.labels.tolist(), strict=True)) == {f"p{k}": float(k) for k in range(6)}


def test_patients_and_files_of_a_list_are_called_by_what_is_written(tmp_path: Path) -> None:
    """007 is not 7, whether it stands in a header or in a list; numbers beyond 2⁵³ are told apart."""
    names = ("007", "7", "9007199254740993", "9007199254740992")
    for name in names:
        dicom(tmp_path / f"{name}.dcm", DRAW.integers(0, 4096, (5, 4)))
    (tmp_path / "._7.dcm").write_bytes(b"what macOS lays beside it")
    (tmp_path / "labels.csv").write_text("patient,label\n" + "".join(f"{name},{k}\n" for k, name in enumerate(names)))
    found = list_dicom(tmp_path)
    assert dict(zip(found.patients, found.labels.tolist(), strict=True)) == {name: k for k, name in enumerate(names)}
    volumes = tmp_path / "volumes"
    for name in names:
        volume(volumes / f"{name}.nii", DRAW.normal(size=(3, 4, 5)))
    (volumes / "labels.csv").write_text("file,label,patient\n" + "".join(f"{name}.nii,1,{name}\n" for name in names))
    assert set(list_nifti(volumes).patients) == set(names)


@pytest.mark.parametrize("listed", ["labels.csv", "patients.csv"])
@pytest.mark.parametrize("kind", ["DICOM", "NIfTI"])
def test_a_list_says_whose_files_are_whatever_their_headers_say(tmp_path: Path, kind: str, listed: str) -> None:
    names = [f"p{k}{'.dcm' if kind == 'DICOM' else '.nii'}" for k in range(4)]
    for name in names:
        if kind == "DICOM":
            dicom(tmp_path / name, DRAW.integers(0, 4096, (5, 4)))
        else:
            volume(tmp_path / name, DRAW.normal(size=(3, 4, 5)))
    within = ",patient" if listed == "labels.csv" else ""
    lines = "".join(f"{name},{k % 2}{within and f',{k // 2}'}\n" for k, name in enumerate(names))
    (tmp_path / "labels.csv").write_text(f"file,label{within}\n{lines}")
    if not within:
        own = "".join(f"{name},{k // 2}\n" for k, name in enumerate(names))
        (tmp_path / "patients.csv").write_text("file,patient\n" + own)
    assert load(tmp_path).patients == ("0", "0", "1", "1")


def test_a_task_trains_on_what_was_read(tmp_path: Path) -> None:
    from private_learning.tasks import load as load_task

    scans(tmp_path)
    task = load_task("cnn", {"height": 5, "width": 4, "classes": 2, "low": -1000.0, "high": 1000.0})
    data = task.dataset(load(tmp_path))
    assert data.inputs.shape == (6, 1, 5, 4)
    assert float(data.inputs.abs().max()) <= 1.0


BROKEN: Mapping[str, tuple[Mapping[str, Any], str]] = {
    "no patient": ({"PatientID": ""}, "1 of 7 headers name no patient"),
    "several frames": ({"NumberOfFrames": 2}, "1 have several frames"),
    "in colours": ({"SamplesPerPixel": 3}, "1 are coloured"),
    "a compression without decoder": ({"syntax": JPEGLSLossless}, "JPEG-LS .*cannot be decoded here: install"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_images_that_cannot_be_used_are_counted_and_never_named(tmp_path: Path, name: str) -> None:
    scans(tmp_path)
    more, words = BROKEN[name]
    if "syntax" in more:
        image = pydicom.dcmread(dicom(tmp_path / "ill" / "secret.dcm", np.zeros((5, 4))))
        image.file_meta.TransferSyntaxUID = JPEGLSLossless
        image.PixelData = pydicom.encaps.encapsulate([b"\0" * 10])
        image["PixelData"].is_undefined_length = True
        image.save_as(tmp_path / "ill" / "secret.dcm", enforce_file_format=True)
    else:
        dicom(tmp_path / "ill" / "secret.dcm", np.zeros((5, 4)), **more)
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path)
    assert "secret" not in str(caught.value)


def test_sizes_that_differ_broken_files_and_lists_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    scans(tmp_path)
    last = dicom(tmp_path / "ill" / "secret.dcm", np.zeros((5, 6)))
    with pytest.raises(DataError, match="one number of rows and columns"):
        load(tmp_path)
    last.write_bytes(b"\0" * 200)
    with pytest.raises(DataError, match="1 of 7 files cannot be read"):
        load(tmp_path)
    last.unlink()
    found = list_dicom(tmp_path)
    (tmp_path / "ill" / "p0.dcm").write_bytes((tmp_path / "ill" / "p0.dcm").read_bytes()[:400])
    with pytest.raises(DataError, match="1 of 6 files cannot be read"):
        found.in_memory()
    (tmp_path / "labels.csv").write_text("file,label\nill/p0.dcm,1\nill/gone.dcm,0\n")
    with pytest.raises(DataError, match="5 of 6 DICOM files have no label, and 1 of 2 rows no file"):
        load(tmp_path)
    (tmp_path / "labels.csv").write_text("file,label\nill/p0.dcm,1\nill/p0.dcm,0\n")
    with pytest.raises(DataError, match="1 of 2 rows name a file again"):
        load(tmp_path)
    (tmp_path / "labels.csv").write_text("label\n1\n")
    with pytest.raises(DataError, match="file and label are expected"):
        load(tmp_path)


def test_one_folder_of_files_has_no_classes(tmp_path: Path) -> None:
    dicom(tmp_path / "p0.dcm", np.zeros((5, 4)))
    with pytest.raises(DataError, match=r"There are 0 sub-folders with 0 files"):
        load(tmp_path)


def volume(path: Path, values: np.ndarray, affine: np.ndarray | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nibabel.save(nibabel.Nifti1Image(values, np.eye(4) if affine is None else affine), path)


def test_volumes_are_turned_to_the_axes_of_a_patient(tmp_path: Path) -> None:
    """(left to right, back to front, below to above) in the file, or any other order and direction of them."""
    values = DRAW.normal(size=(3, 4, 5)).astype(np.float32)
    volume(tmp_path / "ill" / "a.nii.gz", values)
    # Axes written as (above to below, right to left, back to front).
    other = np.zeros((4, 4))
    other[2, 0], other[0, 1], other[1, 2], other[3, 3] = -1.0, -1.0, 1.0, 1.0
    volume(tmp_path / "well" / "b.nii", values.transpose(2, 0, 1)[::-1, ::-1], other)
    found = load(tmp_path)
    assert isinstance(found, Examples)
    assert found.inputs.shape == (2, 5, 4, 3)
    np.testing.assert_array_equal(found.inputs[0], found.inputs[1])
    # Slice by slice from below, rows from front to back.
    np.testing.assert_array_equal(found.inputs[0, 2], values[:, ::-1, 2].T)
    assert found.labels.tolist() == [0, 1]
    assert not found.named


def test_some_slices_patients_and_labels_of_a_list(tmp_path: Path) -> None:
    for k in range(4):
        volume(tmp_path / f"scan{k}.nii.gz", DRAW.normal(size=(3, 4, 5)))
    lines = "".join(f"scan{k}.nii.gz,{k % 2},p{k // 2}\n" for k in range(4))
    (tmp_path / "labels.csv").write_text("file,label,patient\n" + lines)
    (tmp_path / "._scan0.nii.gz").write_bytes(b"hidden")
    whole, some, one = list_nifti(tmp_path), list_nifti(tmp_path, slices=[4, 0]), list_nifti(tmp_path, slices=[2])
    assert whole.patients == ("p0", "p0", "p1", "p1")
    np.testing.assert_array_equal(some.in_memory().inputs, whole.in_memory().inputs[:, [4, 0]])
    np.testing.assert_array_equal(one.in_memory().inputs, whole.in_memory().inputs[:, 2])
    with pytest.raises(DataError, match="some of 0 to 4"):
        list_nifti(tmp_path, slices=[5])


def test_volumes_that_cannot_be_used_are_counted_and_never_named(tmp_path: Path) -> None:
    for k in range(2):
        volume(tmp_path / ("ill", "well")[k] / "a.nii.gz", DRAW.normal(size=(3, 4, 5)))
    other = tmp_path / "ill" / "secret.nii.gz"
    for values, words in ((np.zeros((3, 4, 6)), "one shape"), (np.zeros((3, 4, 5, 2)), "1 of 3 files cannot be read")):
        volume(other, values)
        with pytest.raises(DataError, match=words) as caught:
            load(tmp_path)
        assert "secret" not in str(caught.value)
    volume(other, DRAW.normal(size=(3, 4, 5)))
    found = list_nifti(tmp_path)
    other.write_bytes(other.read_bytes()[:200])
    with pytest.raises(DataError, match="1 of 3 files cannot be read"):
        found.in_memory()


@pytest.mark.filterwarnings("default")
def test_warnings_do_not_quote_headers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    scans(tmp_path, 2)
    path = dicom(tmp_path / "ill" / "p9.dcm", DRAW.integers(0, 4096, (5, 4)))
    # As long as what stands there, so that the file stays whole.
    path.write_bytes(path.read_bytes().replace(b"\x08\x00\x23\x00DA", b"\x08\x00\x05\x00CS"))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        assert len(list_dicom(tmp_path).in_memory()) == 3
    assert not [one for one in heard if "20240503" in str(one.message)]
    assert "20240503" not in "".join(capfd.readouterr())


def test_files_of_several_kinds_in_one_folder_are_refused(tmp_path: Path) -> None:
    """All but the DICOM files would be left out unseen."""
    scans(tmp_path, 2)
    (tmp_path / ".thumbnails").mkdir()
    (tmp_path / ".thumbnails" / "p0.png").touch()
    assert len(load(tmp_path)) == 2
    (tmp_path / "ill" / "p7.PNG").touch()
    with pytest.raises(DataError, match=r"several kinds \(DICOM: 2, images: 1\)"):
        load(tmp_path)
    (tmp_path / "ill" / "p7.PNG").rename(tmp_path / "more.tar")
    with pytest.raises(DataError, match=r"several kinds \(DICOM: 2, shards: 1\)"):
        load(tmp_path)
