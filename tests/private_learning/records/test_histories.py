"""Folders of tables of patients and their events."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError, Table, TableFormat, load
from private_learning.records.histories import Histories, holds_histories, read_histories, text_histories
from private_learning.tasks import load as load_task
from study_protocol.cells import read_numbers
from tests.private_learning.tasks.test_sequences import PLAIN, tokens


def test_a_folder_of_tables_is_read(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,died\na,0\nb,1\n")
    (tmp_path / "drugs.csv").write_text("patient,atc,day\nb,A,1.5\nb,B,0.5\n")
    (tmp_path / "ills.tsv").write_text("patient\ticd\tday\na\tX\t2\n")
    found = load(tmp_path)
    assert isinstance(found, Histories)
    assert tokens(load_task("sequence", PLAIN), found) == [[4, 0, 0, 0], [2, 1, 0, 0]]
    with pytest.raises(DataError, match="read into memory as a whole"):
        load(tmp_path, lazy=True)
    (tmp_path / "drugs.tsv").write_text("patient\tatc\tday\na\tA\t2\n")
    with pytest.raises(DataError, match="two files hold a table 'drugs'"):
        load(tmp_path)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("none", [{"drugs"}, {"drugs", "ills"}], ids=["one", "all"])
def test_a_hospital_may_have_no_event_of_a_kind(tmp_path: Path, ending: str, none: set[str]) -> None:
    (tmp_path / "patients.csv").write_text("patient,died\na,0\nb,1\n")
    for name, what in {"drugs": "atc", "ills": "icd"}.items():
        text = f"patient,{what},day\n" + ("" if name in none else "b,Y,2\n")
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        if ending == "parquet":
            arrow, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.read_csv(path), tmp_path / f"{name}.PARQUET")
            path.unlink()
    task, found = load_task("sequence", PLAIN), load(tmp_path)
    assert tokens(task, found) == [[0, 0, 0, 0], [0 if "ills" in none else 5, 0, 0, 0]]
    assert task.dataset(found).patients == ("a", "b")
    assert [use.values for use in task.inspect(found)] == [0, 0 if "ills" in none else 1]


def test_a_header_alone_names_the_patient_and_is_no_table_of_patients(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,died\na,0\nb,1\n")
    (tmp_path / "drugs.csv").write_text("who,code,day\n")
    with pytest.raises(DataError, match=r"drugs\.csv: there is no patient column 'patient'"):
        load(tmp_path)
    (tmp_path / "drugs.csv").write_text("patient,code,day\na,A,1\n")
    (tmp_path / "patients.csv").write_text("patient,died\n")
    with pytest.raises(DataError, match=r"patients\.csv: there are no records below the header"):
        load(tmp_path)


def test_a_fault_in_one_of_several_tables_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,died\na,0\nb,1\n")
    (tmp_path / "drugs.csv").write_text("who,code,day\na,x,1\n")
    with pytest.raises(DataError, match=r"drugs\.csv: there is no patient column 'patient'"):
        load(tmp_path)


def test_tables_and_arrays_that_are_no_folder_of_records_are_told_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "patient.csv").write_text("patient,died\na,0\nb,1\n")
    (tmp_path / "drugs.csv").write_text("patient,code,day\na,x,1\n")
    with pytest.raises(DataError, match=r"a folder of tables needs patients\.csv"):
        load(tmp_path)
    np.save(tmp_path / "inputs.npy", np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"arrays are read from the file .*inputs\.npy"):
        load(tmp_path)


def histories() -> Histories:
    patients = Table.of({"patient": ["a", "b", "c"], "died": [0, 1, 0]}, patient_column="patient")
    drugs = Table.of({"patient": ["b", "zz", "a", "b"], "day": [1, 2, 3, 4]}, patient_column="patient")
    return Histories.with_events(patients, {"drugs": drugs})


def test_events_know_the_place_of_their_patient_also_after_a_choice() -> None:
    whole = histories()
    assert whole.owners("drugs").tolist() == [1, -1, 0, 1]
    some = whole.take([2, 1])
    assert some.patients == ("c", "b")
    assert some.columns["died"].tolist() == [0.0, 1.0]
    assert some.owners("drugs").tolist() == [1, -1, -1, 1]
    with pytest.raises(DataError, match="no table of events 'visits'"):
        whole.owners("visits")


def test_every_cell_of_every_table_is_in_the_digest() -> None:
    patients = Table.of({"patient": ["a"], "died": [0]}, patient_column="patient")

    def digest(name: str = "drugs", day: int = 1) -> str:
        events = Table.of({"patient": ["a"], "day": [day]}, patient_column="patient")
        return Histories.with_events(patients, {name: events}).digest()

    assert digest() == digest()
    assert len({digest(), digest(day=2), digest("ills"), Histories.with_events(patients, {}).digest()}) == 4


def test_a_patient_in_two_rows_and_tables_without_patients_are_refused() -> None:
    twice = Table.of({"patient": ["a", "a"]} | {"x": [1, 2]}, patient_column="patient")
    with pytest.raises(DataError, match="1 of 2 rows are of a patient who has another"):
        Histories.with_events(twice, {})
    with pytest.raises(DataError, match="tables drugs: say which column"):
        Histories.with_events(histories(), {"drugs": Table.of({"x": [1]})})


def test_a_folder_of_several_tables_with_one_of_patients_holds_histories(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient,died\na,0\n")
    assert not holds_histories(tmp_path)
    (tmp_path / "drugs.TSV.gz").touch()
    (tmp_path / "notes.txt").touch()
    assert holds_histories(tmp_path)
    assert [path.name for path in text_histories(tmp_path)] == ["drugs.TSV.gz", "patients.csv"]
    (tmp_path / "more").mkdir()
    assert not holds_histories(tmp_path)


def test_one_format_is_read_in_all_tables_and_tabs_in_those_of_tabs(tmp_path: Path) -> None:
    (tmp_path / "patients.csv").write_text("patient;age\na;50,5\n")
    (tmp_path / "drugs.tsv").write_text("patient\tdose\na\t1,25\n")
    records = read_histories(tmp_path, TableFormat("semicolon", decimal="comma"))
    assert read_numbers(records.columns["age"]).values.tolist() == [50.5]
    assert read_numbers(records.events["drugs"].columns["dose"]).values.tolist() == [1.25]
    assert records.declared
    undeclared = read_histories(tmp_path)
    assert undeclared.format == TableFormat("semicolon", decimal="comma")
    assert not undeclared.declared
