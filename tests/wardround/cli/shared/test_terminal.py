"""Real processes at terminals that lack letters, and with readers that go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.factories.commands import write_settings
from tests.factories.released import TABLE, write_model
from wardround.cli.shared import terminal

ENCODINGS = [
    {"PYTHONIOENCODING": "cp1252"},
    {"PYTHONIOENCODING": "ascii"},
    {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
]


def process(*words: str, home: Path, reads: int | None = None, **changed: str) -> tuple[int, bytes, bytes]:
    """Exit code, standard output and error. reads: bytes after which nobody reads standard output any more."""
    environment = {**os.environ, "WARDROUND_CLIENT_HOME": str(home / "home"), **changed}
    command = [sys.executable, "-m", "wardround.cli.main", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        read = running.stdout.read(reads) if reads is not None else running.stdout.read()
        running.stdout.close()
        errors = running.stderr.read()
    return running.returncode, read, errors


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
def test_no_command_ends_because_a_character_cannot_be_shown(tmp_path: Path, encoding: dict[str, str]) -> None:
    settings = str(write_settings(tmp_path / "study.json"))
    (tmp_path / "new.csv").write_text("Gr\u00f6\u00dfe,\u03b5\n1,2\n")
    for words, code, held in [
        (("--help",), 0, b"Federated"),
        (("plan", settings), 0, b"\\u03b5"),
        (("doctor",), 1, b"packages"),
        (("study", "template"), 0, b"[privacy]"),
    ]:
        done, out, errors = process(*words, home=tmp_path, **encoding)
        assert done == code, errors
        assert held in out
        assert b"Traceback" not in errors
        assert b"Error" not in errors
    words = ("data", "check", str(tmp_path / "new.csv"), "--settings", settings)
    done, _, errors = process(*words, home=tmp_path, **encoding)
    assert done == 1
    assert b"Traceback" not in errors


@pytest.mark.slow
def test_json_means_the_same_in_every_encoding(tmp_path: Path) -> None:
    settings = str(write_settings(tmp_path / "study.json"))
    wanted, *others = (
        json.loads(process("plan", settings, "--json", home=tmp_path, PYTHONIOENCODING=encoding)[1].decode(written))
        # Where a terminal says ASCII, JSON goes out in UTF-8.
        for encoding, written in (("utf-8", "utf-8"), ("ascii", "utf-8"), ("cp1252", "cp1252"))
    )
    assert all(other == wanted for other in others)
    mixed = "\u03b5 \u00f6 \U0001f600"
    assert json.loads(f'"{mixed.encode("ascii", "wardround-escapes-of-a-test").decode()}"') == mixed


@pytest.mark.slow
def test_predictions_are_never_printed_under_another_identifier(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "m.safetensors", "logistic-regression", TABLE))
    (tmp_path / "new.csv").write_text("patient,age,chol,thal\n\u03a9,40,200,3\n")
    words = ("predict", model, "--data", str(tmp_path / "new.csv"), "--id-column", "patient")
    done, out, errors = process(*words, home=tmp_path, PYTHONIOENCODING="cp1252")
    assert (done, out) == (1, b"")
    assert b"write a file with -o" in errors
    assert "\u03a9" in process(*words, home=tmp_path, PYTHONIOENCODING="utf-8")[1].decode()


@pytest.mark.quick("0-('--help',)")
@pytest.mark.parametrize("words", [("--help",), ("study", "template"), ("plan", "SETTINGS"), ("doctor",)], ids=str)
@pytest.mark.parametrize("reads", [0, 10])
def test_a_reader_that_goes_away_is_no_error_to_speak_of(tmp_path: Path, words: tuple[str, ...], reads: int) -> None:
    given = [str(write_settings(tmp_path / "study.json")) if word == "SETTINGS" else word for word in words]
    done, out, errors = process(*given, home=tmp_path, reads=reads, PYTHONIOENCODING="utf-8")
    assert len(out) == reads
    assert done in (0, 1)
    assert b"Broken pipe" not in errors
    assert b"BrokenPipe" not in errors
    assert b"Traceback" not in errors


@pytest.fixture(autouse=True)
def _handler() -> None:
    import codecs

    codecs.register_error("wardround-escapes-of-a-test", terminal._escaped)
