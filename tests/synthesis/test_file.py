"""Files of synthetic records: what they say of themselves, and that anybody makes the same records again."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from study_protocol.queries.variables import Variable
from study_protocol.study.queries import SignedAnswer
from study_protocol.wire.signing import QUERY_ANSWER, SigningError, sign_document
from synthesis.file import made, path_of_set, provenance_path, read, values_of, verify, write
from synthesis.rule import next_question
from tests.factories.signed_answers import KEY, PUBLIC
from tests.factories.synthesis import answered, section


def answers(seed: int = 1, std: float = 0.0, **entries: Any) -> list[SignedAnswer]:
    signed: list[SignedAnswer] = []
    synthesis = section(rows=2000, **entries)
    while (document := next_question(synthesis, [answer.published for answer in signed])) is not None:
        published = answered(document, 6000, seed, std)
        signature = sign_document(KEY, QUERY_ANSWER, published.model_dump(mode="json"))
        signed.append(SignedAnswer(published=published, signature=signature))
    return signed


def written(path: Path, **entries: Any) -> Path:
    write(path, made("registry", "a" * 64, section(rows=2000, **entries), answers(**entries), PUBLIC))
    return path


@pytest.mark.parametrize("name", ["records.parquet", "records.csv"])
def test_a_file_is_made_again_from_its_answers(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name)
    provenance = verify(path)
    assert (provenance.kind, provenance.study) == ("synthetic records", "registry")
    assert [answer.published.ledger_entries for answer in provenance.answers] == [1, 2, 3]
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)
    assert list(frame.columns) == ["age", "sex", "pressure", "ill"]
    assert len(frame) == 2000
    assert set(frame["age"].dropna().tolist()) <= {25.0, *range(35, 96, 10)}
    # All cells are equally likely in the answers, other and missing ones among them.
    assert float(frame["sex"].isna().to_numpy().mean()) == pytest.approx(0.25, abs=0.03)


def test_few_patients_give_records_without_pairs(tmp_path: Path) -> None:
    assert len(verify(written(tmp_path / "few.csv", patients=100)).answers) == 2


def test_both_forms_hold_the_same_records_and_another_seed_gives_others(tmp_path: Path) -> None:
    digest = read(written(tmp_path / "one.csv"))[1]
    assert read(written(tmp_path / "one.parquet"))[1] == digest
    others = made("registry", "a" * 64, section(rows=2000, seed=7), answers(), PUBLIC)
    assert others.provenance.records_sha256 != digest


def test_a_file_names_the_ledger_and_the_certificate(tmp_path: Path) -> None:
    records = made("registry", "a" * 64, section(rows=2000), answers(), PUBLIC, "c" * 64)
    write(tmp_path / "records.csv", records)
    found = verify(tmp_path / "records.csv")
    assert (found.ledger_entries, found.ledger_sha256, found.certificate_sha256) == (3, "0" * 64, "c" * 64)


def changed_text(path: Path, old: str, new: str) -> None:
    text = path.read_bytes().decode()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode())


@pytest.mark.quick(
    ",f,-,m,-holds other records than its answers and seed give",
    "25.0,-25.0,25.0,-has other columns than records.csv.json names",
    "byte order mark",
)
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (",f,", ",m,", "holds other records than its answers and seed give"),
        ("25.0,", "25.5,", "holds other records than its answers and seed give"),
        ("25.0,", "old,", "holds other records than its answers and seed give"),
        ("age,sex", "sex,age", "has other columns than records.csv.json names"),
        ("25.0,", "25.0,25.0,", "has other columns than records.csv.json names"),
        pytest.param("age,", "\ufeffage,", "was saved again by another program", id="byte order mark"),
    ],
    ids=str,
)
def test_a_changed_file_is_refused_in_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = written(tmp_path / "records.csv")
    changed_text(path, old, new)
    with pytest.raises(ValueError, match=words):
        verify(path)


def test_a_file_with_a_spreadsheets_line_ends_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "records.csv")
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(ValueError, match="saved again by another program, as its line ends"):
        verify(path)


@pytest.mark.parametrize("name", ["records.parquet", "records.csv"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.999])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, name: str, part: float) -> None:
    path = written(tmp_path / name)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"cut off or changed\. Copy it again") as refused:
        verify(path)
    assert "\n" not in str(refused.value)


def test_a_whole_row_that_is_missing_is_counted(tmp_path: Path) -> None:
    path = written(tmp_path / "records.csv")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match="holds 1,999 whole rows of 2,000"):
        verify(path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"seed":0', '"seed":1', "holds other records than its answers and seed give"),
        ('"rows":2000', '"rows":1999', "holds 2,000 whole rows of 1,999"),
        ('"study":"registry","settings', '"study":"other","settings', "an answer is of study registry, not of other"),
        ('"ledger_entries":3,"ledger_sha256":"0', '"ledger_entries":4,"ledger_sha256":"0', "says other things"),
        ('{"kind"', "", "it was changed or cut off"),
    ],
    ids=str,
)
def test_changed_provenance_is_refused_in_one_sentence(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = written(tmp_path / "records.csv")
    beside = provenance_path(path)
    text = beside.read_text()
    assert old in text
    # The file's own words stand behind those of its answers.
    at = text.rindex(old)
    beside.write_text(text[:at] + new + text[at + len(old) :])
    with pytest.raises(ValueError, match=words) as refused:
        verify(path)
    assert "\n" not in str(refused.value)


def test_answers_of_another_study_or_key_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "records.csv")
    beside = provenance_path(path)
    text = beside.read_text()
    beside.write_text(text.replace('"hospitals":4', '"hospitals":5', 1))
    with pytest.raises(SigningError):
        verify(path)
    beside.write_text(text.replace('"study":"registry"', '"study":"other"'))
    with pytest.raises(SigningError):
        verify(path)
    beside.unlink()
    with pytest.raises(ValueError, match=r"records\.csv\.json is missing"):
        verify(path)


def test_an_incomplete_chain_makes_no_records() -> None:
    with pytest.raises(ValueError, match="has no answer yet"):
        made("registry", "a" * 64, section(rows=2000), answers()[:2], PUBLIC)
    with pytest.raises(ValueError, match="is of study registry"):
        made("another", "a" * 64, section(rows=2000), answers(), PUBLIC)


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    records = made("registry", "a" * 64, section(rows=2000), answers(), PUBLIC)
    with pytest.raises(ValueError, match=r"ends in \.parquet or \.csv"):
        write(tmp_path / "records.xlsx", records)
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="does not say where its records come from"):
        read(tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ({"edges": [10, 20, 40]}, [5.0, 15.0, 30.0, 50.0, None]),
        ({"edges": [3]}, [2.5, 3.5, None]),
        ({"categories": ["f", "m"]}, ["f", "m", "other", None]),
        ({"presence": True}, ["present", "missing"]),
    ],
    ids=str,
)
def test_a_value_stands_for_each_cell(variable: dict[str, Any], values: list[Any]) -> None:
    found = values_of(Variable.model_validate({"column": "x"} | variable))
    assert found == values
    assert len(found) == len(Variable.model_validate({"column": "x"} | variable).labels)


def test_a_file_of_a_set_is_verified(tmp_path: Path) -> None:
    path, other = (path_of_set(tmp_path / "records.csv", number) for number in (1, 2))
    assert path.name == "records-01.csv"
    for number, each in enumerate((path, other), start=1):
        write(each, made("registry", "a" * 64, section(rows=500), answers(std=1.0), PUBLIC, None, number))
    assert verify(path).set_number == 1
    other.rename(path)
    with pytest.raises(ValueError, match="holds other records"):
        verify(path)


@pytest.mark.parametrize(
    ("old", "new"), [("25.0,", "2_5.0,"), ("25.0,", "25,"), ("25.0,", '"25.0",'), ("25.0,", "+25.0,")], ids=str
)
def test_a_number_in_another_form_is_refused(tmp_path: Path, old: str, new: str) -> None:
    """Python's float reads all of them, and other programs read a text or a whole number."""
    path = written(tmp_path / "records.csv")
    changed_text(path, old, new)
    with pytest.raises(ValueError, match="is not written as its records are"):
        verify(path)


def _with(table: Any, change: str) -> Any:
    arrow = importlib.import_module("pyarrow")
    metadata = dict(table.schema.metadata)
    if change == "twice":
        return table.add_column(0, "age", table["age"].fill_null(1.0)).replace_schema_metadata(metadata)
    if change == "index":
        return table.replace_schema_metadata(metadata | {b"pandas": b'{"index_columns": ["age"]}'})
    column = arrow.array([None] * len(table), arrow.binary()) if change == "bytes" else table["age"].cast("float32")
    if change == "nan":
        column = table["age"].fill_null(float("nan"))
    return table.set_column(0, "age", column)


@pytest.mark.parametrize("change", ["twice", "index", "bytes", "narrow", "nan"])
def test_a_parquet_file_that_other_programs_show_otherwise_is_refused(tmp_path: Path, change: str) -> None:
    path, parquet = written(tmp_path / "records.parquet"), importlib.import_module("pyarrow.parquet")
    parquet.write_table(_with(parquet.ParquetFile(path).read(), change), path)
    with pytest.raises(ValueError, match="holds other records" if change == "nan" else "saved again .* or changed"):
        verify(path)


def test_the_name_of_a_folder_is_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "year=2026"
    folder.mkdir()
    assert verify(written(folder / "records.parquet")).study == "registry"


def test_an_answer_that_no_record_is_made_of_is_refused() -> None:
    found = answers()
    for others in ([*found, found[0]], found[::-1]):
        with pytest.raises(ValueError, match="answers that the records are not made of"):
            made("registry", "a" * 64, section(rows=2000), others, PUBLIC)


@pytest.mark.parametrize("name", ["records.parquet", "records.csv"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_file_is_whole_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, error: BaseException
) -> None:
    def stopped(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:100])
        raise error

    monkeypatch.setattr(Path, "write_bytes", stopped)
    with pytest.raises(type(error)):
        written(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "edges",
    [[65], [0.5], [-1e300], [1e17], [-1e308, 1e308], [1.0, 1.0 + 2**-52, 1.0 + 2**-51], [1e16, 1e16 + 2], [0, 5e-324]],
    ids=str,
)
def test_the_value_of_a_cell_lies_in_it(edges: list[float]) -> None:
    variable = Variable.model_validate({"column": "x", "edges": edges})
    *values, missing = values_of(variable)
    assert missing is None
    found = variable.places({"x": np.array(values, np.float64)})
    assert found.tolist() == list(range(len(edges) + 1))
