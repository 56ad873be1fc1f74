"""`wardround demo`: its options, and how it ends where it cannot run. Whole runs are in tests/e2e."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner, Result

from wardround.demo import run as demonstration
from wardround.demo.command import demo
from wardround.demo.processes import ProcessFailed
from wardround.demo.run import Options


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """The command changes how this process is interrupted."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def _run(*words: str | Path) -> Result:
    app = Typer(pretty_exceptions_enable=False)
    app.command()(demo)
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--drop-out"], "--drop-out needs --hospitals 5 or more"),
        (["--drop-out", "--hospitals", "5", "--data", "mnist"], "--drop-out needs --hospitals 5 or more"),
        (["--rounds", "3", "--scheme", "client"], "--rounds needs --scheme parallel or sequential"),
        (["--rounds", "0"], "--rounds"),
        (["--epsilon", "nan"], "a finite number above 0 is expected"),
        (["--epsilon", "0"], "a finite number above 0 is expected"),
        (["--data", "nothing"], "breast-cancer"),
        (["--hospitals", "9"], "split among 4 to 8"),
        (["--data", "mnist", "--clients", "0"], "--clients"),
        (["--bayesian", "--epsilon", "1e-9"], "choose a larger --epsilon"),
        (["--scheme", "sequential", "--unmasked"], "these settings make no study"),
    ],
)
def test_what_cannot_run_ends_with_2_and_the_reason(words: list[str], reason: str, tmp_path: Path) -> None:
    done = _run(*words, "--home", tmp_path)
    assert (done.exit_code, reason in done.output) == (2, True), done.output
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = _run("--home", tmp_path / "notes.txt")
    assert done.exit_code == 1
    assert "notes.txt" in done.output
    assert isinstance(done.exception, SystemExit)


def test_missing_files_end_with_2(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARDROUND_DATA", str(tmp_path))
    done = _run("--data", "heart-disease", "--home", tmp_path)
    assert (done.exit_code, "set WARDROUND_DATA" in done.output.replace("\n", " ")) == (2, True), done.output


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "All processes have ended"),
        (ProcessFailed("city", 3, Path("none.log")), 1, "city ended with code 3"),
    ],
)
def test_a_run_that_is_cut_off_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int, said: str
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(demonstration, "run", broken)
    done = _run("--home", tmp_path)
    assert (done.exit_code, said in done.output) == (code, True), done.output


def test_the_options_reach_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    runs: list[tuple[object, ...]] = []
    monkeypatch.setattr(demonstration, "run", lambda *given: runs.append(given))
    options = ["--hospitals", "5", "--drop-out", "--postgres", "--keep", "--rounds", "4", "--home", tmp_path]
    done = _run(*options)
    assert done.exit_code == 0, done.output
    (given,) = runs
    assert given[2] == Options(tmp_path, postgres=True, keep=True, drop_out=True)
    assert "seconds" in done.output
