"""docs/sources.md, word for word: from a database to `data check` without a CSV, on SQLite and on PostgreSQL."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from typer.testing import CliRunner

from private_learning.tasks.columns import read_columns
from record_sources.source_file.description import OmopDescription, read_description
from study_protocol.study.cohort import Cohort
from tests.conftest import Postgres
from tests.factories.settings import settings
from wardround.cli.lead.templates import study_text
from wardround.cli.main import build

PAGE = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)
SOURCES = [block for language, block in BLOCKS if language == "toml" and block.startswith("[source]")]
FILES = ("icu.sql", "patients.sql", "diagnoses.sql", "registry.xlsx", "password.txt", "clinic.duckdb", "clinic.db")
COLUMNS = {
    "column.age": "18..90",
    "column.sex": "male|female",
    "column.lactate": "0..20; missing=1",
    "column.sodium": "110..170; missing=138; site-may-lack",
}
STAYS = "CREATE TABLE stays (patient TEXT, age INTEGER, gender TEXT, lactate FLOAT, admitted TEXT, died TEXT)"
INSERT = text("INSERT INTO stays VALUES (:p, :age, :gender, :lactate, :admitted, :died)")


def stays() -> Iterable[dict[str, Any]]:
    """300 patients of 2025, and as many of 2024."""
    for k in range(600):
        yield {
            "p": f"p{k:03}",
            "age": 20 + k * 7 % 60,
            "gender": "MF"[k // 2 % 2],
            "lactate": None if k % 5 == 0 else k % 11 + 0.5,
            "admitted": f"202{4 + k % 2}-05-01",
            "died": "yes" if k % 6 == 1 else "no",
        }


def typed() -> list[list[str]]:
    """The commands of the first section in their order, but pip and join."""
    section = PAGE.partition("## Ten minutes")[2].partition("\n## ")[0]
    lines = "".join(re.findall(r"^```console\n(.*?)^```", section, re.M | re.S)).splitlines()
    return [shlex.split(line.removeprefix("$ "))[1:] for line in lines if line.startswith("$ wardround data")]


@pytest.mark.quick("sqlite")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_ten_minutes_lead_from_a_database_to_a_check(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    url, source = f"sqlite:///{tmp_path}/clinic.db", SOURCES[0]
    if kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = server.url(server.create(template="template0")).render_as_string(hide_password=False)
        # The one word that a reader changes.
        source = SOURCES[1].replace("postgresql+psycopg://reader@db.example/clinic", url)
        (tmp_path / "password.txt").write_text("not asked for\n")
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(STAYS))
        connection.execute(INSERT, list(stays()))
    engine.dispose()
    (tmp_path / "icu.sql").write_text(next(block for language, block in BLOCKS if language == "sql"))
    (tmp_path / "source.toml").write_text(source)
    (tmp_path / "columns.toml").write_text(next(block for _, block in BLOCKS if block.startswith("[columns]")))
    parameters = {"label": "died", "label-values": "no|yes", **COLUMNS}
    study = settings(training={"task": "logistic-regression", "task_parameters": parameters})
    (tmp_path / "study.toml").write_text(study_text(study.as_json()))

    outputs = [CliRunner().invoke(build(), command) for command in typed()]
    assert [done.exit_code for done in outputs] == [0, 0, 0], [done.output for done in outputs]
    taken, listed, checked = (done.output for done in outputs)
    assert "300" in taken
    assert "icu-2026-11" in listed
    rows = [row for row in stays() if row["admitted"] >= "2025"]
    missing = sum(row["lactate"] is None for row in rows)
    assert re.search(rf"lactate\s*│\s*300\s*│\s*{missing}\b", checked), checked
    assert "no: 200, yes: 100" in checked
    assert "there is no column 'sodium' to read" in checked


def test_every_source_of_the_page_is_read(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / name).write_text("SELECT 1")
    for name in ("export", "athena"):
        (tmp_path / name).mkdir()
    kinds: list[str] = []
    for place, block in enumerate(SOURCES):
        (tmp_path / f"{place}.toml").write_text(block)
        description = read_description(tmp_path / f"{place}.toml")
        kinds.append(description.kind)
        assert not isinstance(description, OmopDescription) or description.cdm_schema == "cdm"
    assert kinds == ["sql", "sql", "sql", "omop", "fhir", "workbook"]


def test_the_cohort_and_the_column_of_the_page_are_read() -> None:
    block = next(block for _, block in BLOCKS if block.startswith("[cohort.index_event]"))
    cohort = Cohort.model_validate_json(json.dumps(tomllib.loads(block)["cohort"]))
    assert set(cohort.columns) == {"age", "died", "glucose"}
    (line,) = re.findall(r'`("column\..*?")`', PAGE)
    (column,) = read_columns(tomllib.loads(line))
    assert column.may_lack
