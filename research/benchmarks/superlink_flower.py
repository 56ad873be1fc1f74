"""Rounds through Flower's SuperLink, for `research.benchmarks.superlink`.

Runs in an environment of its own, with flwr 1.42.0 installed, as `PYTHON research/benchmarks/superlink_flower.py`: one
JSON request on standard input, one JSON answer as the last line of output. SuperLink, its ServerApp with FedAvg, and
the Fleet API are Flower's own. All three speak HTTP in 1.42: protocol buffers to one uvicorn process on port 8000,
without TLS here. The nodes are threads of this process that send what a SuperNode sends through Flower's own client for
that API. A real SuperNode starts a process for every message, and a hundred of them do not fit on a small machine. None
of that is counted for or against Flower.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supernode.fleet_http_connection import http_request_response

BIN = Path(sys.executable).parent
# Of all rounds of one run, on a machine that does other work as well.
MAX_SECONDS = 1800
APP = """
[project]
name = "rounds"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "nobody"

[tool.flwr.app.components]
serverapp = "rounds.server_app:app"
clientapp = "rounds.client_app:app"

[tool.flwr.app.config]
rounds = 1
clients = 1
parameters = 1
times = ""
"""
SERVER_APP = """
import json, time
import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Timed(FedAvg):
    at = []

    def configure_train(self, *given, **named):
        Timed.at.append(["begin", time.time()])
        return super().configure_train(*given, **named)

    def aggregate_train(self, *given, **named):
        made = super().aggregate_train(*given, **named)
        Timed.at.append(["end", time.time()])
        return made


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    arrays = ArrayRecord([np.zeros(config["parameters"], np.float32)])
    strategy = Timed(fraction_evaluate=0.0, min_available_nodes=config["clients"], min_train_nodes=config["clients"])
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=config["rounds"])
    open(config["times"], "w").write(json.dumps(Timed.at))
"""
CLIENT_APP = """
from flwr.clientapp import ClientApp

app = ClientApp()
"""


def below(pid: int) -> list[int]:
    """A process and everything that it has started and that still runs."""
    try:
        children = [int(c) for t in Path(f"/proc/{pid}/task").glob("*/children") for c in t.read_text().split()]
    except OSError:
        return [pid]
    return [pid, *(descendant for child in children for descendant in below(child))]


def processor_seconds(pid: int) -> float:
    """Of SuperLink and its ServerApp, those parts included that have ended."""
    total = 0
    for process in below(pid):
        with suppress(OSError):
            total += sum(map(int, Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


class WatchedProcess:
    """What a process has used, every now and then until `stop`."""

    def __init__(self, pid: int) -> None:
        self._pid, self._stopping, self._seen = pid, threading.Event(), list[tuple[float, float]]()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.wait(0.1):
            self._seen.append((time.time(), processor_seconds(self._pid)))

    def between(self, begin: float, end: float) -> float:
        self._stopping.set()
        self._thread.join()
        used = [cpu for at, cpu in self._seen if begin <= at <= end]
        return used[-1] - used[0]


@contextmanager
def superlink(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Flower's SuperLink on its usual ports."""
    (home / "config.toml").write_text(
        '[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:8000"\ninsecure = true\n'
    )
    os.environ |= {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PATH": f"{BIN}:{os.environ['PATH']}"}
    with (home / "superlink.log").open("w") as log:
        command = [BIN / "flower-superlink", "--insecure", "--disable-runtime-dependency-installation"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            # With the ServerApp's processes, which outlive the one that started them.
            for child_process in below(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child_process, signal.SIGKILL)
            process.wait(30)


class Nodes:
    """So many nodes that answer every message with the same update, until `stop`."""

    def __init__(self, clients: int, parameters: int, poll_seconds: float, address: str) -> None:
        self._update = Array(np.full(parameters, 1e-9, np.float32))
        self._poll_seconds, self._address = poll_seconds, address
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self) -> None:
        with http_request_response(self._address, True) as (_, receive, send, get_run, get_fab, pull, push, confirm):
            pids: set[int] = set()
            while not self._stopping.is_set():
                received_message = receive()
                if received_message is None:
                    self._stopping.wait(self._poll_seconds)
                    continue
                message, tree = received_message
                run = message.metadata.run_id
                if run not in pids:
                    get_fab(get_run(run).fab_hash, run)
                    pids.add(run)
                object_ids = [object_node.object_id for object_node in iterate_object_tree(tree)]
                contents = pull_objects(object_ids, pull_object_fn=lambda id, run=run: pull(run, id))
                confirm(run, message.metadata.message_id)
                content = inflate_object_from_contents(message.metadata.message_id, contents)
                self._answer(message, list(content.content["arrays"]), send, push)

    def _answer(self, message, keys, send, push) -> None:
        arrays = ArrayRecord(dict.fromkeys(keys, self._update))
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 1})})
        reply = Message(content, reply_to=message)
        run = message.metadata.run_id
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            missing_ids, session = send(reply, get_object_tree(reply), 0.1)
            objects = {
                id: nested_object for id, nested_object in get_all_nested_objects(reply).items() if id in missing_ids
            }
            push_objects(objects, push_object_fn=lambda id, content: push(run, session, id, content))


def rounds(clients: int, parameters: int, count: int, poll_seconds: float) -> dict:
    home = Path(tempfile.mkdtemp(prefix="superlink-"))
    app = home / "app"
    (app / "rounds").mkdir(parents=True)
    (app / "pyproject.toml").write_text(APP)
    for name, text in (("__init__", ""), ("server_app", SERVER_APP), ("client_app", CLIENT_APP)):
        (app / "rounds" / f"{name}.py").write_text(text)
    times = home / "times.json"
    try:
        with superlink(home) as process:
            time.sleep(5)
            nodes = Nodes(clients, parameters, poll_seconds, "127.0.0.1:8000")
            time.sleep(2)
            watched = WatchedProcess(process.pid)
            config = f'rounds={count} clients={clients} parameters={parameters} times="{times}"'
            subprocess.run([BIN / "flwr", "run", app, "here", "-c", config], check=True, stdout=sys.stderr)
            begun = time.monotonic()
            while not times.exists():
                if time.monotonic() - begun > MAX_SECONDS:
                    raise RuntimeError((home / "superlink.log").read_text()[-3000:])
                time.sleep(0.2)
            nodes.stop()
            at = json.loads(times.read_text())
            used = watched.between(at[0][1], at[-1][1])
    finally:
        shutil.rmtree(home, ignore_errors=True)
    begins, ends = ([moment for event, moment in at if event == boundary] for boundary in ("begin", "end"))
    return {"seconds": [end - begin for begin, end in zip(begins, ends, strict=True)], "cpu_seconds": used / count}


def main() -> None:
    request = json.loads(sys.stdin.readline())
    result = rounds(**request)
    print(json.dumps({**result, "flwr": version("flwr"), "python": sys.version.split()[0]}), flush=True)


if __name__ == "__main__":
    main()
