"""Processes of `wardround` forked from one that has everything imported: real ones, without the seconds of a start.

The process that forks is a fresh interpreter of its own, not the caller's: it has no threads, no event loop and no
open database.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from subprocess import TimeoutExpired
from typing import IO

from wardround.demo.processes import WARDROUND, Processes, Running

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "wardround.cli.main",
        "client_sdk.study.hospital",
        "client_sdk.study.participation",
        "pandas",
        "wardround.cli.coordinator.coordinator",
        "server.app",
    ]
)


def become_wardround(arguments: list[str], env: dict[str, str], log: str) -> None:
    """Run the command `wardround` in this process, a fork."""
    # As `Processes` starts them: a signal to the caller's group must not reach it.
    os.setsid()
    # The fork's environment is that of the process that forks, not the one that was asked for.
    os.environ.clear()
    os.environ.update(env)
    with open(log, "a") as file, open(os.devnull) as nothing:
        # Descriptors, not sys.stdout: what a library or a child writes belongs in the log, too.
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = arguments

    # Not at the top: the caller's own process needs neither, and the one that forks has both.
    import torch

    from wardround.cli.main import main

    torch.set_num_threads(int(env["OMP_NUM_THREADS"]))
    main()


def become_wardround_with_room(arguments: list[str], env: dict[str, str], log: str) -> None:
    """Run the command as a hospital whose own limit had room for the whole study when it joined."""
    from client_sdk.study import agreed

    # Another study on these records has spent it since: rounds are refused one by one.
    agreed.admit = lambda *_: None
    become_wardround(arguments, env, log)


class ForkedProcesses(Processes):
    """As `Processes`; only what runs `wardround` is forked.

    variables  of the environment in which the process that forks starts, such as a library to load before all others;
               of no effect where this interpreter has started it before
    """

    # What the fork does with arguments, environment and log. Pickled by its name.
    become: Callable[[list[str], dict[str, str], str], None] = staticmethod(become_wardround)

    def __init__(self, variables: Mapping[str, str] | None = None) -> None:
        super().__init__()
        before = dict(os.environ)
        os.environ.update(variables or {})
        try:
            ensure_running()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def launch(self, arguments: Sequence[str], *, env: Mapping[str, str], file: IO[str]) -> Running:
        command = len(WARDROUND)
        if tuple(arguments[:command]) != WARDROUND:
            return super().launch(arguments, env=env, file=file)
        request = (list(arguments), dict(env), file.name)
        process = _CONTEXT.Process(target=self.become, args=request)
        process.start()
        return Forked(process)


class Forked:
    """What `subprocess.Popen` offers, for a forked process."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise TimeoutExpired("wardround", timeout or 0.0)
        return code

    def send_signal(self, sig: int) -> None:
        os.kill(self.pid, sig)

    def kill(self) -> None:
        self._process.kill()
