"""Text tables take part only by a format that a person declared, which the hospital's ledger keeps."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.records import Table, TableFormat, load
from tests.factories.hospitals import coordinator, hospital, plain_policy, records

COMMAS, SEMICOLONS = TableFormat("comma", decimal="point"), TableFormat("semicolon", decimal="comma")


def written(path: Path, format: TableFormat = COMMAS) -> Path:
    """The factory's records as a text table."""
    table = records()
    names = ("age", "rate", "ill")
    rows = zip(*(table.numbers(name).tolist() for name in names), table.patients, strict=True)
    lines = ["\t".join((*names, "patient")), *("\t".join(map(str, row)) for row in rows)]
    text = "\n".join(lines).replace(".", "," if format.decimal == "comma" else ".")
    path.write_text(text.replace("\t", ";" if format.separator == "semicolon" else ",") + "\n")
    return path


def kept(directory: Path) -> TableFormat | None:
    with HospitalLedger.open(ledger_path(directory, "icu"), read_only=True) as ledger:
        return ledger.table_format


def test_records_that_were_read_by_a_mere_proposal_are_refused_before_anything_is_sent(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    proposed = load(written(tmp_path / "a.csv"), patient_column="patient")
    with pytest.raises(
        ConfigurationError, match=r"load_records\(path, TableFormat\(separator='comma'.*decimal='point'"
    ):
        here.join("sepsis", None, proposed, policy=plain_policy(), dataset="icu")
    assert kept(tmp_path) is None
    assert not any(other.updates.values())


def test_a_declared_format_is_kept_and_later_records_are_read_by_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv")
    table = load(path, COMMAS, patient_column="patient")
    assert (
        hospital(coordinator(), tmp_path).join("sepsis", None, table, policy=plain_policy(), dataset="icu").rounds_sent
    )
    assert kept(tmp_path) == COMMAS
    # The file proposes what was declared.
    again = hospital(coordinator(study="stroke"), tmp_path)
    proposed = load(path, patient_column="patient")
    assert isinstance(proposed, Table)
    assert not proposed.declared
    assert again.join("stroke", None, proposed, policy=plain_policy(), dataset="icu").rounds_sent
    other = load(written(tmp_path / "b.csv", SEMICOLONS), SEMICOLONS, patient_column="patient")
    with pytest.raises(ConfigurationError, match="the data set is declared with comma between cells"):
        again.join("stroke", None, other, policy=plain_policy(), dataset="icu")


def test_tables_of_programs_need_no_declaration(tmp_path: Path) -> None:
    hospital(coordinator(), tmp_path).join("sepsis", None, records(), policy=plain_policy(), dataset="icu")
    assert kept(tmp_path) is None


def test_texts_of_other_tables_are_declared_before_a_round_and_stay(tmp_path: Path) -> None:
    texts = {name: records().columns[name].tolist() for name in ("age", "rate", "ill")}
    commas = {name: [str(value).replace(".", ",") for value in values] for name, values in texts.items()}
    declared = TableFormat(None, decimal="comma")
    table = load(commas, declared)
    assert (
        hospital(coordinator(), tmp_path).join("sepsis", None, table, policy=plain_policy(), dataset="icu").rounds_sent
    )
    assert kept(tmp_path) == declared


def test_the_hospital_s_log_counts_cells_that_fit_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    table = load(written(tmp_path / "a.csv"), COMMAS, patient_column="patient")
    hospital(coordinator(), tmp_path).join("sepsis", None, table, policy=plain_policy(), dataset="icu")
    assert "study sepsis: every cell of 2 columns is a value or a declared code" in caplog.text


def test_the_hospital_s_log_counts_no_cell_of_a_patient_who_objects_in_other_capitals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "a.csv")
    path.write_text(path.read_text() + "perhaps,1,0,Xaver\n")
    table = load(path, COMMAS, patient_column="patient")
    caplog.set_level(logging.INFO)
    policy = plain_policy(excluded_patients=["xaver"])
    hospital(coordinator(), tmp_path).join("sepsis", None, table, policy=policy, dataset="icu")
    assert "study sepsis: every cell of 2 columns is a value or a declared code" in caplog.text
    assert "neither a value" not in caplog.text
