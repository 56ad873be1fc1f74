"""`certificate dossier` and `certificate dpia` as an officer types them: what they write, and what they refuse."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import typer
from pypdf import PdfReader
from typer.testing import CliRunner

from tests.factories.certificates import ONE, PUBLIC, text_of


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WARDROUND_CLIENT_HOME", str(tmp_path / "nobody"))
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(ONE.raw))
    return path


def call(app: typer.Typer, *arguments: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["certificate", *arguments])
    assert done.exit_code == code, done.output
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(("command", "line"), [("dossier", "3.3.07"), ("dpia", "35(7)(d)")])
def test_markdown_and_pdf_have_the_lines_and_say_what_the_signature_is(
    app: typer.Typer, certificate: Path, command: str, line: str
) -> None:
    markdown, pdf = certificate.with_suffix(".md"), certificate.with_suffix(".pdf")
    assert "Signature: not known" in call(app, command, str(certificate), "-o", str(markdown))
    assert "This proves nothing about who made it" in markdown.read_text()
    assert f"| {line} | mandatory |" in markdown.read_text()
    said = call(app, command, str(certificate), "-o", str(pdf), "--coordinator-key", PUBLIC)
    assert "Signature: good" in said
    assert line in text_of(pdf.read_bytes())
    attached = PdfReader(io.BytesIO(pdf.read_bytes())).attachments["certificate.json"][0]
    assert json.loads(attached) == ONE.raw


@pytest.mark.parametrize("command", ["dossier", "dpia"])
def test_a_changed_certificate_another_key_and_another_file_make_no_document(
    app: typer.Typer, certificate: Path, command: str
) -> None:
    out = certificate.with_suffix(".md")
    changed = json.loads(certificate.read_text())
    changed["certificate"]["limits"][1]["spent"] = 0.1
    other = certificate.with_name("changed.json")
    other.write_text(json.dumps(changed))
    assert "No document was written" in call(app, command, str(other), "-o", str(out), code=4)
    call(app, command, str(certificate), "-o", str(out), "--coordinator-key", "a" * 64, code=4)
    assert "neither .md nor .pdf" in call(app, command, str(certificate), "-o", "dossier.doc", code=1)
    other.write_text("{}")
    assert "no certificate" in call(app, command, str(other), "-o", str(out), code=1)
    call(app, command, str(certificate.with_name("nowhere.json")), "-o", str(out), code=1)
    assert not out.exists()
