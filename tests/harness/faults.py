"""Faults for processes that really run: pauses, full disks, jumping clocks, and a network that loses and repeats."""

from __future__ import annotations

import errno
import hashlib
import http.client
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from urllib.parse import urlsplit

from wardround.demo.processes import Process

NETWORK = ("dropped request", "dropped answer", "repeated request", "delayed request")
# Of its own: threads of a relay move no generator that a test beside them draws from.
_PAUSES = random.Random()
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@contextmanager
def paused(process: Process) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end: to everybody else the process is there and says nothing."""
    process.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)


class SmallDisk:
    """A disk of its own at `folder`, so small that it can be filled. Needs root, for a mount in memory."""

    def __init__(self, folder: Path, mebibytes: int = 256) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m,mode=0700", "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Not a byte is free within."""
        ballast = self.folder / ".ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                _fill(file.fileno())
            yield
        finally:
            ballast.unlink(missing_ok=True)

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)


def _fill(descriptor: int) -> None:
    for size in (1 << 20, 1 << 12, 1):
        try:
            while True:
                os.write(descriptor, bytes(size))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def can_mount() -> bool:
    """Whether this machine lets us mount: root, and a container that allows it."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


def lock_sqlite(path: Path, seconds: float) -> None:
    """Hold the write lock of a database's file, as another program would that copies it."""
    with closing(sqlite3.connect(path, timeout=5.0, isolation_level=None)) as second_connection:
        second_connection.execute("BEGIN IMMEDIATE")
        time.sleep(seconds)
        second_connection.execute("ROLLBACK")


class JumpingClock:
    """The wall clock of whatever is started with `variables`, through libfaketime; monotonic time goes on as it is."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump(0)

    @property
    def variables(self) -> Mapping[str, str]:
        library = resources.files("libfaketime") / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            # A running process jumps within two seconds. Reading the file at every call takes a tenth of a core.
            "FAKETIME_CACHE_DURATION": "1",
            # Times of files stay what they are: else Python compiles every module again at every start.
            "NO_FAKE_STAT": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
            # Otherwise every wait for Python's lock with a second thread returns at once, and all becomes slow.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }

    def jump(self, seconds: int) -> None:
        """Put the clock so many seconds from this machine's."""
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{seconds:+d}s\n")
        temporary.replace(self._file)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Hospitals that are killed hang up in the midst of an answer."""


class UnreliableNetwork:
    """An HTTP proxy between hospitals and coordinators that loses, repeats and delays a part of the requests.

    rate  probability of a fault, while `armed`
    """

    def __init__(self, addresses: Sequence[str], seed: int, rate: float) -> None:
        self.addresses, self.rate, self.armed = tuple(addresses), rate, False
        self.counts: Counter[str] = Counter()
        # SHA-256 of every body that was sent to the address of an update or of masked vectors.
        self.sent: dict[str, set[str]] = defaultdict(set)
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fault(self, path: str) -> str | None:
        """What happens to this request; counted."""
        with self._lock:
            if not self.armed or self._random.random() >= self.rate:
                return None
            fault = self._random.choice(NETWORK)
            # A long poll twice would be half a minute of nothing.
            if "wait=" in path and fault == "repeated request":
                fault = "delayed request"
            self.counts[fault] += 1
            return fault

    def note(self, method: str, path: str, body: bytes) -> None:
        """Remember what was uploaded."""
        address = path.partition("?")[0]
        if method == "PUT" and {"updates", "masked"} & set(address.split("/")):
            with self._lock:
                self.sent[address].add(hashlib.sha256(body).hexdigest())

    def forward(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes] | None:
        """The answer of the first coordinator that gives one."""
        for address in _PAUSES.sample(self.addresses, len(self.addresses)):
            parts = urlsplit(address)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
            try:
                connection.request(method, path, body or None, dict(headers))
                answer = connection.getresponse()
                return answer.status, answer.getheaders(), answer.read()
            except (OSError, http.client.HTTPException):
                continue
            finally:
                connection.close()
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        network = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                network.note(self.command, self.path, body)
                fault = network.fault(self.path)
                if fault == "delayed request":
                    time.sleep(_PAUSES.uniform(0.05, 0.5))
                answer = None
                if fault != "dropped request":
                    headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
                    for _ in range(2 if fault == "repeated request" else 1):
                        answer = network.forward(self.command, self.path, headers, body)
                if answer is None or fault == "dropped answer":
                    self.close_connection = True
                    return
                status, header_values, content = answer
                self.send_response_only(status)
                for name, value in header_values:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                if status not in (204, 304):
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - the library's names

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: thousands of lines."""

        return Handler
