"""Processes of the demonstration: their logs, their ends, and that none is left behind."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from wardround.demo.processes import Process, Processes, ProcessFailed, environment, free_port, until

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]


def start(processes: Processes, folder: Path, program: str) -> Process:
    return processes.start("city", [sys.executable, "-c", program], env=dict(os.environ), log=folder / "city.log")


def test_names_of_this_program_are_not_inherited_and_given_ones_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARDROUND_SERVER", "https://elsewhere.example")
    monkeypatch.setenv("OTHER", "kept")
    made = environment(port="7", home=Path("/x"), origin=None)
    assert (made["WARDROUND_PORT"], made["WARDROUND_HOME"], made["OTHER"]) == ("7", "/x", "kept")
    assert not {"WARDROUND_SERVER", "WARDROUND_ORIGIN"} & set(made)
    assert made["OMP_NUM_THREADS"] == "1"


def test_a_process_that_fails_is_told_with_the_end_of_its_log(tmp_path: Path) -> None:
    with Processes() as processes:
        failing = start(processes, tmp_path, "import sys; [print(n) for n in range(40)]; sys.exit(3)")
        assert failing.wait(20) == 3
        with pytest.raises(ProcessFailed, match="city ended with code 3") as failed:
            processes.check()
        # 25 lines of forty.
        assert failed.value.tail == "\n".join(str(number) for number in range(15, 40))


def test_one_that_was_asked_to_end_or_ended_well_is_no_failure(tmp_path: Path) -> None:
    with Processes() as processes:
        sleeping = processes.start("city", SLEEP, env=dict(os.environ), log=tmp_path / "a.log")
        assert sleeping.ended() is None
        assert sleeping.stop() == -signal.SIGTERM
        fine = start(processes, tmp_path, "pass")
        assert fine.wait(20) == 0
        processes.check()


def test_one_that_does_not_end_in_time_does_not_answer(tmp_path: Path) -> None:
    with Processes() as processes:
        sleeping = processes.start("city", SLEEP, env=dict(os.environ), log=tmp_path / "a.log")
        with pytest.raises(ProcessFailed, match="city does not answer"):
            sleeping.wait(0.05)
        sleeping.kill()
        assert sleeping.ended() == -signal.SIGKILL


def test_leaving_the_block_ends_every_process_but_those_that_are_left(tmp_path: Path) -> None:
    with Processes() as processes:
        ended, kept = (
            processes.start(name, SLEEP, env=dict(os.environ), log=tmp_path / f"{name}.log") for name in ("a", "b")
        )
        processes.leave(kept)
    assert ended.ended() == -signal.SIGTERM
    assert kept.ended() is None
    kept.kill()


def test_a_command_is_run_to_its_end(tmp_path: Path) -> None:
    log, python = tmp_path / "run.log", [sys.executable, "-c"]
    with Processes() as processes:
        processes.run("greet", ["print('done')"], env=dict(os.environ), log=log, command=python)
        assert log.read_text() == "done\n"
        with pytest.raises(ProcessFailed, match="greet ended with code 1"):
            processes.run("greet", ["raise SystemExit(1)"], env=dict(os.environ), log=log, command=python)
        processes.check()


def test_waiting_ends_with_the_answer_the_time_or_what_makes_it_pointless() -> None:
    answers = iter([False, False, True])
    assert until(lambda: next(answers), seconds=5, check=lambda: None, every=0.001)
    assert not until(lambda: False, seconds=0.02, check=lambda: None, every=0.001)

    def dead() -> None:
        raise ProcessFailed("city", 1, Path("none.log"))

    with pytest.raises(ProcessFailed):
        until(lambda: False, seconds=5, check=dead)


def test_a_port_is_free_and_below_those_of_outgoing_connections() -> None:
    port = free_port()
    assert 20_000 <= port < 32_000
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
