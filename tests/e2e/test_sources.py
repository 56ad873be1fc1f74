"""A masked study of four hospitals over HTTP, whose records come from SQL, OMOP, FHIR and a workbook.

Each hospital is one region of the eICU demo. It takes a snapshot with the command, and joins with the snapshot's name.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import duckdb
import pytest
from sqlalchemy import create_engine

from research.omop_demo.__main__ import STUDY as SETTINGS
from research.omop_demo.__main__ import main as build
from tests.conftest import Postgres
from wardround.cli.shared.settings_file import read_settings
from wardround.demo.live import LiveCoordinator, LiveHospital, open_study
from wardround.demo.processes import Processes, environment

DATA = Path(os.environ.get("WARDROUND_DATA", ".")) / "eicu_demo"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not DATA.is_dir(), reason="WARDROUND_DATA holds no eicu_demo"),
]
STUDY = "deaths"
KINDS = {"sql": "Midwest", "omop": "South", "fhir": "West", "workbook": "Northeast"}


def describe(folder: Path, kind: str, url: str) -> None:
    """Write a hospital's store and source.toml. Every hospital also gets its rows as CSV, for comparison."""
    options = ["--data", DATA, "--region", KINDS[kind], "--csv", folder / "rows.csv"]
    if kind == "sql":
        lines = f'url = "{url}"\nquery = "cohort.sql"'
        (folder / "cohort.sql").write_text("SELECT * FROM stay WHERE age >= 18\n")
    elif kind == "omop":
        options += ["--url", f"sqlite:///{folder / 'omop.db'}"]
        lines = 'url = "sqlite:///omop.db"'
    elif kind == "fhir":
        options += ["--fhir", folder / "export", "--vocabulary", folder / "athena"]
        lines = 'folder = "export"\nvocabulary = "athena"'
    else:
        options += ["--workbook", folder / "stays.xlsx"]
        lines = 'file = "stays.xlsx"\nsheet = "patients"'
    assert build(list(map(str, options))) == 0
    if kind == "sql":
        engine = create_engine(url)
        written_rows(folder / "rows.csv").df().to_sql("stay", engine, index=False)
        engine.dispose()
    (folder / "source.toml").write_text(f'[source]\nkind = "{kind}"\n{lines}\n')


def written_rows(path: Path) -> duckdb.DuckDBPyRelation:
    # The parser of pandas rounds some numbers in their last bit.
    return duckdb.read_csv(str(path), dtype={"patient": "VARCHAR"})


def require_same_rows(snapshot: Path, rows: Path, kind: str) -> None:
    """Compare a snapshot with the CSV of the same hospital, cell by cell."""
    # The library that writes the workbook keeps 16 digits.
    digits = ".15g" if kind == "workbook" else ".17g"
    expected = written_rows(rows)
    found = duckdb.read_parquet(str(snapshot)).project(", ".join(expected.columns))
    in_words = [
        [[format(cell, digits) if isinstance(cell, int | float) else cell for cell in row] for row in table.fetchall()]
        for table in (found, expected)
    ]
    assert in_words[0] == in_words[1]


def test_four_hospitals_train_on_snapshots_of_four_kinds_of_source(tmp_path: Path, postgres: Postgres) -> None:
    url = postgres.url(postgres.create("template1")).render_as_string(hide_password=False)
    chosen = read_settings(SETTINGS)
    with Processes() as processes:
        coordinator = LiveCoordinator(tmp_path / "coordinator", processes)
        coordinator.prepare()
        coordinator.serve()
        sites = dict[str, LiveHospital]()
        for kind in KINDS:
            folder = tmp_path / kind
            folder.mkdir()
            describe(folder, kind, url)
            sites[kind] = LiveHospital(kind, folder / "home", Path(f"{kind}-2026-11"), None, processes)
            cohort = ["--settings", str(SETTINGS)] if kind in ("omop", "fhir") else []
            target = folder / f"{kind}-2026-11.parquet"
            command = ["data", "snapshot", str(folder / "source.toml"), *cohort, "-o", str(target)]
            env = environment(client_home=sites[kind].home)
            processes.run("snapshot", command, env=env, log=folder / "snapshot.log")
            require_same_rows(target, folder / "rows.csv", kind)
        with coordinator.operator() as operator:
            open_study(operator, STUDY, "Deaths in intensive care", chosen, sites, coordinator.origin)
            joined = [site.join(STUDY, coordinator.origin) for site in sites.values()]
            assert [process.wait(300.0) for process in joined] == [0, 0, 0, 0]
            assert operator.study(STUDY).state == "finished"
            report = operator.budget(STUDY)
        limit = chosen.privacy.limits[0]
        assert 0 < (report.limits[0].spent or 0) <= limit.epsilon
        lead = environment(server=coordinator.origin, api_key_file=coordinator.operator_key_file)
        log = tmp_path / "lead.log"
        model, certificate, ledger = (tmp_path / name for name in ("m.safetensors", "c.json", "l.jsonl"))
        for command in (
            ["study", "model", STUDY, "-o", str(model)],
            ["certificate", "show", STUDY, "-o", str(certificate)],
            ["ledger", "export", STUDY, "--out", str(ledger)],
            ["ledger", "verify", STUDY],
        ):
            processes.run(command[0], command, env=lead, log=log)
        for kind, site in sites.items():
            own = environment(server=coordinator.origin, client_home=site.home)
            proofs = ["--ledger", str(ledger), "--model", str(model)]
            processes.run("verify", ["certificate", "verify", str(certificate), *proofs], env=own, log=log)
            listed = tmp_path / kind / "list.log"
            processes.run("list", ["data", "list", f"{kind}-2026-11", "--json"], env=own, log=listed)
            entry = json.loads(listed.read_text())
            assert STUDY in json.dumps(entry)
            snapshot = tmp_path / kind / f"{kind}-2026-11.parquet"
            assert hashlib.sha256(snapshot.read_bytes()).hexdigest() in json.dumps(entry)
