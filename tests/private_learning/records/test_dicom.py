"""DICOM headers: what would have to be applied is applied or refused, and what is broken is counted."""

from __future__ import annotations

import os
import struct
import zlib
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.sequence import Sequence

from private_learning.records import DataError, Examples, list_dicom, load
from tests.private_learning.records.test_imaging import dicom

PIXELS = np.array([[0, 100], [200, 300]])
LINEAR = {"RescaleSlope": "2", "RescaleIntercept": "-1024"}


def sequences(values: dict[str, Any]) -> dict[str, Any]:
    """With sequences of items in place of lists of them."""
    items = {name for name, value in values.items() if isinstance(value, list) and isinstance(value[0], Dataset)}
    return {name: Sequence(value) if name in items else value for name, value in values.items()}


def item(**values: Any) -> Dataset:
    dataset = Dataset()
    for name, value in sequences(values).items():
        setattr(dataset, name, value)
    return dataset


def table(numbers: np.ndarray) -> list[Dataset]:
    """A modality table that maps 0, 1, … to these."""
    entries = item(LUTDescriptor=[len(numbers), 0, 16], ModalityLUTType="US")
    entries.add_new("LUTData", "OW", numbers.astype("<u2").tobytes())
    return [entries]


def transformation(**values: Any) -> Dataset:
    """A functional group (PS3.3, C.7.6.16.2.9)."""
    return item(PixelValueTransformationSequence=[item(**values)])


def mapping(slope: float, intercept: float) -> list[Dataset]:
    return [item(RealWorldValueSlope=slope, RealWorldValueIntercept=intercept)]


def write(path: Path, *, without: tuple[str, ...] = (), **values: Any) -> Path:
    dicom(path, PIXELS, **sequences(values))
    if without:
        image = pydicom.dcmread(path)
        for name in without:
            del image[name]
        image.save_as(path, enforce_file_format=True)
    return path


NONE = ("RescaleSlope", "RescaleIntercept")
PLACES: dict[str, dict[str, Any]] = {
    "of the image": LINEAR,
    "shared": {"without": NONE, "SharedFunctionalGroupsSequence": [transformation(**LINEAR)]},
    "per frame": {"without": NONE, "PerFrameFunctionalGroupsSequence": [transformation(**LINEAR)]},
    "several that agree": {**LINEAR, "SharedFunctionalGroupsSequence": [transformation(**LINEAR)]},
    "real world that agrees": {**LINEAR, "RealWorldValueMappingSequence": mapping(2.0, -1024.0)},
}


@pytest.mark.parametrize("place", PLACES)
def test_slope_and_intercept_are_applied_wherever_they_stand(tmp_path: Path, place: str) -> None:
    write(tmp_path / "a" / "p1.dcm", **PLACES[place])
    write(tmp_path / "b" / "p2.dcm", **LINEAR)
    records = load(tmp_path, lazy=False)
    assert isinstance(records, Examples)
    np.testing.assert_array_equal(records.inputs, np.stack([PIXELS * 2.0 - 1024.0] * 2))


@pytest.mark.parametrize(("kept", "wanted"), [("RescaleSlope", PIXELS * 2.0), ("RescaleIntercept", PIXELS - 1024.0)])
def test_one_of_slope_and_intercept_is_applied_alone(tmp_path: Path, kept: str, wanted: np.ndarray) -> None:
    write(tmp_path / "a" / "p1.dcm", **LINEAR, without=tuple(name for name in NONE if name != kept))
    (tmp_path / "b").mkdir()
    np.testing.assert_array_equal(list_dicom(tmp_path).in_memory().inputs[0], wanted)


def test_where_white_is_small_the_scale_of_a_group_is_applied_too(tmp_path: Path) -> None:
    write(tmp_path / "a" / "p1.dcm", **PLACES["shared"], PhotometricInterpretation="MONOCHROME1")
    (tmp_path / "b").mkdir()
    # 12 bits hold 0 to 4,095.
    np.testing.assert_array_equal(list_dicom(tmp_path).in_memory().inputs[0], (4095 - PIXELS) * 2.0 - 1024.0)


TABLE = table(np.arange(1000, 5096))
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "palette": ({"PhotometricInterpretation": "PALETTE COLOR"}, "1 are coloured or have a palette"),
    "RGB of one sample": ({"PhotometricInterpretation": "RGB"}, "1 are coloured"),
    "supplemental palette": ({"PixelPresentation": "MIXED"}, "1 are coloured"),
    "contradicting": (
        {**LINEAR, "SharedFunctionalGroupsSequence": [transformation(RescaleSlope="3", RescaleIntercept="0")]},
        "1 of 2 files state several slopes",
    ),
    "table beside": ({**LINEAR, "ModalityLUTSequence": TABLE}, "1 of 2 files state several slopes"),
    "real world": ({**LINEAR, "RealWorldValueMappingSequence": mapping(3.0, 0.0)}, "1 of 2 files hold a real world"),
    "real world of a group": (
        {"SharedFunctionalGroupsSequence": [item(RealWorldValueMappingSequence=mapping(3.0, 0.0))]},
        "1 of 2 files hold a real world",
    ),
    "slope of zero": ({"RescaleSlope": "0", "RescaleIntercept": "1"}, "1 of 2 files cannot be read"),
    "dose": ({"DoseGridScaling": "0.001"}, "1 of 2 files hold a real world value mapping or a dose"),
    "shifted": ({"HighBit": 15}, "1 of 2 files hold pixels that do not begin at the lowest bit"),
    "two identifiers": ({"PatientID": ["a", "b"]}, "1 of 2 headers name no patient"),
    "frames of a group": (
        {"PerFrameFunctionalGroupsSequence": [transformation(**LINEAR), transformation(**LINEAR)]},
        "1 have several frames",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_applied_is_refused_with_a_count(tmp_path: Path, name: str) -> None:
    values, words = REFUSED[name]
    write(tmp_path / "a" / "miller.dcm", **values)
    write(tmp_path / "b" / "p2.dcm")
    with pytest.raises(DataError, match=words) as caught:
        load(tmp_path)
    assert "miller" not in str(caught.value)


def test_a_table_takes_the_place_of_slope_and_intercept(tmp_path: Path) -> None:
    write(tmp_path / "a" / "p1.dcm", without=NONE, ModalityLUTSequence=TABLE)
    (tmp_path / "b").mkdir()
    np.testing.assert_array_equal(list_dicom(tmp_path).in_memory().inputs[0], PIXELS + 1000)


def files_of(folder: Path, name: str) -> Path:
    """The same public file twice, once in each class."""
    data = Path(str(get_testdata_file(name))).read_bytes()
    for part in ("a", "b"):
        (folder / part).mkdir(exist_ok=True)
        (folder / part / "1.dcm").write_bytes(data)
    return folder


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("examples_palette.dcm", "2 are coloured or have a palette"),
        ("examples_rgb_color.dcm", "2 are coloured"),
        ("badVR.dcm", "2 of 2 files cannot be read"),
        ("rtplan.dcm", "2 of 2 files cannot be read"),
        ("no_meta.dcm", "2 of 2 files cannot be read"),
        ("rtdose_1frame.dcm", "2 of 2 files hold a real world value mapping or a dose"),
        (
            "JPEG-lossy.dcm",
            r"JPEG Extended .*2 of 2 files cannot be decoded here: install a decoder \(pip install 'pylib",
        ),
        ("JPEGLSNearLossless_16.dcm", "JPEG-LS .*2 of 2 files cannot be decoded here"),
    ],
    ids=map(str, count()),
)
def test_public_files_that_are_no_grey_images_are_counted(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        load(files_of(tmp_path, name))
    assert "1A" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["CT_small.dcm", "MR_small.dcm", "MR_small_bigendian.dcm", "MR_small_RLE.dcm", "MR_small_jp2klossless.dcm"]
)
def test_public_files_are_the_numbers_that_pydicom_reads(tmp_path: Path, name: str) -> None:
    image = pydicom.dcmread(str(get_testdata_file(name)))
    wanted = pydicom.pixels.apply_modality_lut(image.pixel_array, image)
    np.testing.assert_array_equal(load(files_of(tmp_path, name)).inputs, np.stack([wanted] * 2))


def test_a_deflated_file_is_read_within_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = files_of(tmp_path, "image_dfl.dcm")
    (folder / "patients.csv").write_text("file,patient\na/1.dcm,p\nb/1.dcm,q\n")
    assert len(load(folder, lazy=False)) == 2
    monkeypatch.setattr("private_learning.records.dicom.MAX_UNPACKED", 1 << 16)
    with pytest.raises(DataError, match="2 of 2 files cannot be read"):
        load(folder)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 700), values=st.binary(min_size=1, max_size=4), cut=st.booleans())
def test_broken_bytes_of_a_header_are_counted_or_read_and_never_quoted(
    tmp_path_factory: pytest.TempPathFactory, place: int, values: bytes, cut: bool
) -> None:
    folder = tmp_path_factory.mktemp("broken")
    path = write(folder / "a" / "miller.dcm", **LINEAR, PatientName="Miller^Anna", NumberOfFrames="1")
    write(folder / "b" / "p2.dcm")
    data = path.read_bytes()
    path.write_bytes(data[:place] if cut else data[:place] + values + data[place + len(values) :])
    message, shape = "", (2, 2, 2)
    try:
        shape = list_dicom(folder).in_memory().inputs.shape
    except DataError as error:
        message = str(error)
    assert "iller" not in message
    assert shape == (2, 2, 2)
    assert not message or "of 2" in message or "number of rows" in message


@pytest.mark.parametrize("name", ["IM0001", "1.2.840.10008.1", "scan.mr"])
def test_files_without_a_known_ending_are_known_by_how_they_begin(tmp_path: Path, name: str) -> None:
    for part in ("a", "b"):
        target = tmp_path / part / name
        target.parent.mkdir()
        os.rename(write(tmp_path / part / f"p{part}.dcm"), target)
    (tmp_path / "DICOMDIR").write_bytes(b"\0" * 128 + b"DICM")
    records = load(tmp_path)
    assert (records.patients, len(records)) == (("pa", "pb"), 2)
    (tmp_path / "a" / "1.png").touch()
    with pytest.raises(DataError, match=r"several kinds \(DICOM: 2, images: 1\)"):
        load(tmp_path)


def test_a_folder_for_each_patient_is_no_class(tmp_path: Path) -> None:
    for patient in ("0017", "miller"):
        write(tmp_path / patient / "series" / f"{patient}.dcm")
    with pytest.raises(
        DataError, match=r"2 sub-folders is named after its patient.*labels.csv with the columns"
    ) as caught:
        load(tmp_path)
    assert "miller" not in str(caught.value)
    (tmp_path / "labels.csv").write_text("patient,label\n0017,1\nmiller,0\n")
    assert load(tmp_path).labels.tolist() == [1, 0]


def test_folders_with_one_patient_each_are_asked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for place in range(3):
        for image in range(2):
            write(tmp_path / f"folder{place}" / f"{image}.dcm", PatientID=f"miller{place}")
    assert len(load(tmp_path)) == 6
    assert "each of the 3 sub-folders holds one patient. If they are no classes, write labels.csv" in caplog.text
    assert "miller" not in caplog.text
    caplog.clear()
    write(tmp_path / "folder0" / "2.dcm", PatientID="another")
    load(tmp_path)
    assert "holds one patient" not in caplog.text


def test_an_unknown_compression_is_not_quoted(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "p1.dcm")
    write(tmp_path / "b" / "p2.dcm")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.1.1.1.2.177\0"))
    with pytest.raises(DataError, match=r"1 of 2 files|a private compression: 1 of 2") as caught:
        load(tmp_path)
    assert "177" not in str(caught.value)


def test_a_deflated_stream_of_zeros_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 KiB for every MiB of it: what lies behind the limit is never unpacked."""
    folder = files_of(tmp_path, "image_dfl.dcm")
    path = folder / "a" / "1.dcm"
    data = path.read_bytes()
    length = struct.unpack("<I", data[140:144])[0]
    deflater = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    path.write_bytes(data[: 144 + length] + deflater.compress(b"\0" * (1 << 24)) + deflater.flush())
    monkeypatch.setattr("private_learning.records.dicom.MAX_UNPACKED", 1 << 22)
    with pytest.raises(DataError, match="1 of 2 files cannot be read"):
        load(folder)
