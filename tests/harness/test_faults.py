"""Every injected fault is what it says: the campaign's counts rest on it."""

from __future__ import annotations

import errno
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.harness import chaos
from tests.harness.faults import JumpingClock, SmallDisk, UnreliableNetwork, can_mount, paused
from wardround.demo.processes import Processes, environment


@pytest.fixture
def behind() -> Iterator[tuple[str, list[str]]]:
    """A server that notes what reaches it."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            requests.append(self.rfile.read(int(self.headers["content-length"])).decode())
            self.send_response(201)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", requests
        server.shutdown()


def _put(address: str, text: str) -> bytes | None:
    """The answer; None where there was none."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    try:
        connection.request("PUT", "/", text.encode())
        return connection.getresponse().read()
    except http.client.HTTPException:
        return None
    finally:
        connection.close()


@pytest.mark.quick("dropped request-None-0")
@pytest.mark.parametrize(
    ("fault", "answer", "arrived"),
    [
        (None, b"ok", 1),
        ("dropped request", None, 0),
        ("dropped answer", None, 1),
        ("repeated request", b"ok", 2),
        ("delayed request", b"ok", 1),
    ],
)
def test_what_the_network_does(
    behind: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    fault: str | None,
    answer: bytes | None,
    arrived: int,
) -> None:
    address, requests = behind
    network = UnreliableNetwork((address,), seed=1, rate=0.0)
    monkeypatch.setattr(network, "fault", lambda path: fault)
    assert _put(network.address, "x") == answer
    assert requests == ["x"] * arrived
    network.close()


@pytest.mark.slow
def test_faults_begin_when_armed_and_are_counted(behind: tuple[str, list[str]]) -> None:
    network = UnreliableNetwork((behind[0],), seed=1, rate=0.5)
    assert [network.fault("/") for _ in range(50)] == [None] * 50
    network.armed = True
    faults = [network.fault("/") for _ in range(200)]
    assert sum(network.counts.values()) == sum(fault is not None for fault in faults) > 50
    assert len(network.counts) == 4
    network.close()


def test_a_coordinator_that_is_away_is_not_the_end(behind: tuple[str, list[str]]) -> None:
    address, requests = behind
    network = UnreliableNetwork(("http://127.0.0.1:9", address), seed=1, rate=0.0)
    for _ in range(6):
        assert _put(network.address, "x") == b"ok"
    assert len(requests) == 6
    network.close()


def test_a_paused_process_stands_still(tmp_path: Path) -> None:
    counting = "import time\nwhile True: print('x', flush=True); time.sleep(0.01)"
    with Processes() as processes:
        process = processes.start("counter", [sys.executable, "-c", counting], env=environment(), log=tmp_path / "log")
        while not (tmp_path / "log").stat().st_size:
            time.sleep(0.01)
        with paused(process):
            time.sleep(0.1)
            size = (tmp_path / "log").stat().st_size
            time.sleep(0.3)
            assert (tmp_path / "log").stat().st_size == size
        time.sleep(0.3)
        assert (tmp_path / "log").stat().st_size > size


@pytest.mark.skipif(not can_mount(), reason="mounting needs root")
def test_a_full_disk_takes_no_byte(tmp_path: Path) -> None:
    try:
        disk = SmallDisk(tmp_path / "disk", 1)
    except subprocess.CalledProcessError:
        pytest.skip("this container allows no mount")
    try:
        with disk.full(), pytest.raises(OSError) as full:
            (disk.folder / "more").write_bytes(b"x")
        assert full.value.errno == errno.ENOSPC
        (disk.folder / "more").write_bytes(b"x")
    finally:
        disk.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the library in the wheel is of Linux")
def test_the_clock_of_a_running_process_jumps_and_monotonic_time_does_not(tmp_path: Path) -> None:
    clock = JumpingClock(tmp_path / "clock")
    program = "import sys, time\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    command = [sys.executable, "-c", program]
    variables = {**os.environ, **clock.variables}
    with subprocess.Popen(command, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for seconds in (0, 120, -120):
            clock.jump(seconds)
            # It is read again when more than a whole second has passed, counted in whole seconds.
            time.sleep(2.2)
            process.stdin.write("\n")
            process.stdin.flush()
            wall, steady = map(float, process.stdout.readline().split())
            assert wall - time.time() == pytest.approx(seconds, abs=5)
            assert steady == pytest.approx(time.monotonic(), abs=5)
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the library in the wheel is of Linux")
def test_two_threads_take_turns_under_a_clock_as_without_one(tmp_path: Path) -> None:
    # Where waits for Python's lock return at once, the one thread does a hundredth and less of what it does otherwise:
    # on one processor, for on two it depends on which thread wakes first.
    turns = """
import os, threading, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
ends = time.monotonic() + 1
def spin():
    while time.monotonic() < ends: pass
threading.Thread(target=spin).start()
done = 0
while time.monotonic() < ends: os.stat("."); done += 1
print(done)
"""

    def turned(variables: Mapping[str, str]) -> int:
        command, environment = [sys.executable, "-c", turns], {**os.environ, **variables}
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    clock = JumpingClock(tmp_path / "clock").variables
    assert turned(clock) > turned({}) / 10


def test_runs_add_up_in_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chaos, "RECORD", tmp_path / "chaos.json")
    for seed in (1, 2):
        chaos.record({"seed": seed, "faults": {"kill": 3, "pause": seed}})
    recorded = json.loads((tmp_path / "chaos.json").read_text())
    assert [run["seed"] for run in recorded["runs"]] == [1, 2]
    assert recorded["faults"] == {"kill": 6, "pause": 3}


def test_the_page_shows_the_sums_of_all_recorded_runs() -> None:
    root = Path(chaos.__file__).parents[2]
    record = json.loads((root / "research/benchmarks/results/chaos.json").read_text())
    page = (root / "docs/reliability.md").read_text()
    lines = [line for line in page.splitlines() if line.startswith("|")]
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heading = next(at for at, cells in enumerate(table) if cells[:2] == ["studies, masked / clear", "rounds"])
    row = dict(zip(table[heading], table[heading + 2], strict=True))
    studies = [sum(run["studies"].get(kind, 0) for run in record["runs"]) for kind in ("masked", "clear")]
    assert row.pop("studies, masked / clear") == " / ".join(map(str, studies))
    assert int(row.pop("rounds")) == sum(run["charged rounds"] for run in record["runs"])
    assert int(row.pop("all")) == sum(record["faults"].values())
    assert {kind: int(number) for kind, number in row.items()} == record["faults"]
    assert f"(`chaos.json`): {len(record['runs'])} runs" in page
