"""A real MLflow server, of an environment of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tracking.md"
PROGRAM = Path(os.environ.get("MLFLOW_PROGRAM", ROOT / ".mlflow-venv" / "bin" / "mlflow"))
# Its runner of jobs is seven more processes, and no test uses it.
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


class MlflowProcess:
    """`mlflow server` in a folder, on one port, as docs/tracking.md starts it."""

    def __init__(self, folder: Path, *more: str, environment: dict[str, str] | None = None) -> None:
        self.folder, self.more, self.port = folder, more, _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = environment or {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [str(self.port) if word == "5000" else word for word in _command_of_the_page()]
        command = [str(PROGRAM), *words, "--workers", "1"]
        environment = outside() | QUIET | self.environment
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.more], cwd=self.folder, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        while not self._answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def stop(self) -> None:
        """Kill it with its workers, which are in its process group. Asked to stop, it may wait for a connection."""
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _command_of_the_page() -> list[str]:
    """Return the words that follow `mlflow` where docs/tracking.md starts a server."""
    (line,) = re.findall(r"^\$ mlflow (server .*)$", PAGE.read_text(), re.MULTILINE)
    return line.split()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def outside() -> dict[str, str]:
    """The environment without what belongs to this checkout, and without other logins."""
    return {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "MLFLOW", "WARDROUND"))}


@contextmanager
def serving(folder: Path, *more: str, **environment: str) -> Iterator[MlflowProcess]:
    server = MlflowProcess(folder, *more, environment=environment)
    try:
        server.start()
        yield server
    finally:
        server.stop()
