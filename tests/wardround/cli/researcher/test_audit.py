"""`wardround audit` as a person types it: the files that it writes, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner, Result

from simulation.audit import run as audit_run
from tests.factories.record_files import write_records
from tests.wardround.cli.researcher.test_simulate import write_settings
from wardround.cli.main import build


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _audit(*arguments: str | Path) -> Result:
    return CliRunner().invoke(build(), ["audit", *map(str, arguments)], env={"COLUMNS": "160"})


@pytest.mark.slow
def test_it_writes_a_page_and_names_its_digest_for_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_run, "STEPS", 6)
    study = write_settings(tmp_path / "study.toml")
    done = _audit(
        study, "--data", write_records(tmp_path / "records.csv", 160, 1), "-o", tmp_path / "audit", "--studies", "4"
    )
    assert done.exit_code == 0, done.output
    page = (tmp_path / "audit" / "audit.html").read_bytes()
    digest = hashlib.sha256(page).hexdigest()
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["page_sha256"] == digest
    assert f'audit_sha256 = "{digest}"' in " ".join(done.output.split())
    assert "One run with canaries: no alarm" in done.output


def test_what_cannot_be_audited_is_refused_in_words_and_writes_nothing(tmp_path: Path) -> None:
    study = write_settings(tmp_path / "study.toml")
    few = write_records(tmp_path / "few.csv", 12, 1)
    refused = _audit(study, "--data", few, "-o", tmp_path / "audit")
    assert refused.exit_code == 1
    assert "10 patients are too few for an audit" in " ".join(refused.output.split())
    assert not (tmp_path / "audit").exists()
    (tmp_path / "file").write_text("")
    records = write_records(tmp_path / "records.csv", 160, 1)
    assert "is a file: name a folder" in _audit(study, "--data", records, "-o", tmp_path / "file").output
