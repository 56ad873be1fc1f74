"""Lines of NDJSON, and every way in which they are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from record_sources.errors import SourceError
from record_sources.fhir.files import export_files, read_resources, unread_entries
from tests.factories.fhir_exports import patient, write_export


def _identifiers(folder: Path) -> list[Any]:
    return [line.resource.get("id") for line in read_resources(export_files(folder))]


def test_resources_come_in_the_order_of_file_names_and_lines(tmp_path: Path) -> None:
    write_export(
        tmp_path,
        {
            "Observation.001.ndjson": [patient("c")],
            "1.Patient.ndjson.gz": [patient("a"), "", "   ", patient("b")],
            "log.txt": ["no resource"],
        },
    )
    assert _identifiers(tmp_path) == ["a", "b", "c"]


def test_capitals_of_a_suffix_do_not_matter_and_other_entries_are_counted(tmp_path: Path) -> None:
    write_export(tmp_path, {"P.NDJSON": [patient("a")], "q.ndjson.GZ": [], "r.jsonl": [patient("b")], ".hidden": []})
    (tmp_path / "q.ndjson.GZ").write_bytes(gzip.compress(json.dumps(patient("c")).encode()))
    (tmp_path / "folder.ndjson").mkdir()
    assert _identifiers(tmp_path) == ["a", "c"]
    assert unread_entries(tmp_path) == 2


def test_a_byte_order_mark_and_other_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "Patient.ndjson").write_bytes(
        b"\xef\xbb\xbf" + json.dumps(patient("a")).encode() + b"\r\n" + json.dumps(patient("b")).encode()
    )
    assert _identifiers(tmp_path) == ["a", "b"]


_FAULTS = {
    "broken": ('{"resourceType": "Patient", "id": "secret"', "is no JSON object"),
    "pretty-printed": ("{", "is no JSON object"),
    "a number": ("17", "no resourceType"),
    "a list": ('[{"resourceType": "Patient"}]', "no resourceType"),
    "another object": ('{"id": "secret"}', "no resourceType"),
    "a type that is no text": ('{"resourceType": 17}', "no resourceType"),
    "NaN": ('{"resourceType": "Observation", "valueInteger": NaN}', "is no JSON object"),
    "half a surrogate": ('{"resourceType": "Patient", "id": "secret\\ud800"}', "is no JSON object"),
    "bytes": ('{"resourceType": "Patient", "id": "secret\ud800"}', "is no JSON object"),
    "deep": ("[" * 200_000, "is no JSON object"),
    "digits": ('{"resourceType": "Observation", "valueInteger": ' + "9" * 5000 + "}", "is no JSON object"),
    "a Bundle": ('{"resourceType": "Bundle", "entry": [{"fullUrl": "secret"}]}', "is a Bundle"),
}


@pytest.mark.parametrize("fault", _FAULTS)
def test_a_faulty_line_names_file_and_line_alone(tmp_path: Path, fault: str) -> None:
    line, sentence = _FAULTS[fault]
    write_export(tmp_path, {"Patient.ndjson": [patient("a"), "", line]})
    with pytest.raises(SourceError, match=sentence) as error:
        _identifiers(tmp_path)
    assert str(error.value).startswith("Patient.ndjson, line 3 ")
    assert "$export" in str(error.value)
    assert "secret" not in str(error.value)


def test_a_compressed_file_that_is_cut_off_or_damaged_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress("".join(json.dumps(patient(f"{n:x}")) + "\n" for n in range(5000)).encode())
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[:-9], whole[: len(whole) // 2], bytes(damaged), b"no gzip at all"):
        (tmp_path / "Patient.ndjson.gz").write_bytes(content)
        with pytest.raises(SourceError, match=r"Patient\.ndjson\.gz") as error:
            _identifiers(tmp_path)
        assert "damaged or cut off" in str(error.value) or "no JSON object" in str(error.value)


def test_a_folder_without_an_export_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text("{}")
    with pytest.raises(SourceError, match=r"no file that ends in \.ndjson"):
        export_files(tmp_path)
    with pytest.raises(SourceError, match="is no folder"):
        export_files(tmp_path / "bundle.json")


def test_progress_counts_all_bytes(tmp_path: Path) -> None:
    write_export(tmp_path, {"a.ndjson": [patient(str(n)) for n in range(2500)], "b.ndjson.gz": [patient("x")]})
    files = export_files(tmp_path)
    steps: list[int] = []
    assert len(list(read_resources(files, steps.append))) == 2501
    assert sum(steps) == sum(path.stat().st_size for path in files)
    assert len(steps) == 4


def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = write_export(tmp_path, {"Patient.ndjson": [patient("a")]}) / "Patient.ndjson"
    files = export_files(tmp_path)
    path.unlink()
    with pytest.raises(SourceError, match=r"Patient\.ndjson cannot be read: No such file"):
        list(read_resources(files))
