"""A coordinator and its hospitals as real processes on this machine, each with a log, none left behind."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol, Self

STOP_SECONDS = 10.0
TAIL_LINES = 25
# Windows has no SIGHUP.
INTERRUPTS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
WARDROUND = (str(Path(sys.executable).with_name("wardround")),)


class ProcessFailed(Exception):
    """A process ended that should not have, or with an error. `tail` is the end of its log."""

    def __init__(self, name: str, code: int | None, log: Path) -> None:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        self.name, self.code, self.log = name, code, log
        self.tail = "\n".join(lines[-TAIL_LINES:])
        state = "does not answer" if code is None else f"ended with code {code}"
        super().__init__(f"{name} {state}. The end of {log}:\n{self.tail}")


def environment(**settings: str | Path | None) -> dict[str, str]:
    """This process's environment without its WARDROUND_* names, and with those given here.

    One thread of linear algebra each: four hospitals share the cores of one machine.
    """
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("WARDROUND_")}
    variables = {f"WARDROUND_{key.upper()}": str(value) for key, value in settings.items() if value is not None}
    return {**inherited, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **variables}


class Running(Protocol):
    """What is asked of a process; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        ...

    def send_signal(self, sig: int) -> None: ...

    def kill(self) -> None: ...


class Process:
    """One process, which writes to `file`, the open log."""

    def __init__(self, name: str, running: Running, file: IO[str], log: Path) -> None:
        self.name, self.log, self.popen = name, log, running
        self._reported = False
        self._file = file

    def check(self) -> None:
        """Raise ProcessFailed if it has ended with an error, and nobody here asked it to end."""
        code = self.popen.poll()
        if not self._reported and code not in (None, 0):
            raise ProcessFailed(self.name, code, self.log)

    def ended(self) -> int | None:
        """Its exit code; None while it runs."""
        return self.popen.poll()

    def wait(self, seconds: float) -> int:
        """Its exit code.

        Raises:
            ProcessFailed: it still runs after `seconds`.
        """
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise ProcessFailed(self.name, None, self.log) from error

    def interrupt(self) -> None:
        """Ask it to end."""
        self._reported = True
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self._reported = True
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait()
        self._file.close()

    def stop(self, seconds: float = STOP_SECONDS) -> int:
        """Ask it to end, wait, kill it if it does not; returns its exit code."""
        self.interrupt()
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()
        finally:
            self._file.close()


class Processes:
    """The processes of one run; leaving the block stops all of them, the last started first."""

    def __init__(self) -> None:
        self._running: list[Process] = []

    def start(self, name: str, arguments: Sequence[str], *, env: Mapping[str, str], log: Path) -> Process:
        with _deferred():
            file = log.open("a")
            process = Process(name, self.launch(arguments, env=env, file=file), file, log)
            self._running.append(process)
        return process

    def launch(self, arguments: Sequence[str], *, env: Mapping[str, str], file: IO[str]) -> Running:
        """In a session of its own: Ctrl-C reaches the parent alone, which stops them in order."""
        return subprocess.Popen(  # noqa: S603 - the commands of this module's callers, no shell
            arguments, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )

    def run(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str],
        log: Path,
        command: Sequence[str] = WARDROUND,
    ) -> None:
        """Run `wardround` to its end. command: another version's.

        Raises:
            ProcessFailed: it ended with an error.
        """
        process = self.start(name, [*command, *arguments], env=env, log=log)
        process.popen.wait()
        code = process.stop()
        self.leave(process)
        if code:
            raise ProcessFailed(name, code, log)

    def check(self) -> None:
        """Raise ProcessFailed for the first that ended with an error."""
        for process in self._running:
            process.check()

    def leave(self, process: Process) -> None:
        """Let this one live on after the block, or have ended."""
        self._running.remove(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _uninterrupted():
            for process in self._running:
                process.interrupt()
            for process in reversed(self._running):
                process.stop()


@contextmanager
def _deferred() -> Generator[None]:
    """An interrupt takes effect after the block: in its midst a process could start that nobody knows of."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    late: list[int] = []
    before = {number: signal.signal(number, lambda number, _: late.append(number)) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for number in late:
        signal.raise_signal(number)


@contextmanager
def _uninterrupted() -> Generator[None]:
    """A second Ctrl-C must not leave half of the processes running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in INTERRUPTS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def until(answer: Callable[[], bool], *, seconds: float, check: Callable[[], None], every: float = 0.05) -> bool:
    """Ask until the answer is yes; False after `seconds`. `check` raises when waiting has become pointless."""
    end = time.monotonic() + seconds
    while not answer():
        check()
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def free_port() -> int:
    """A port of the loopback interface that no program listens on now.

    Below the ports that the system gives to outgoing connections: a client that calls a coordinator which is down
    could otherwise be given that very port, and talk to itself.
    """
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
