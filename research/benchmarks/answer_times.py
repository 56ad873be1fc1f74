"""Time from a request to a hospital's vector, over real HTTP, for few and for many patients, with slots and without.

    python -m research.benchmarks.answer_times --out research/benchmarks/results/answer_times.json

A coordinator and one hospital of so many patients, which trains a logistic regression of two columns on all of them.
The time is what the coordinator sees: from its last answer before the update until the update comes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from client_sdk.api.config import Connection
from client_sdk.api.transport import Call, HttpAnswer, Transport
from client_sdk.study.hospital import Hospital
from private_learning import tasks
from private_learning.training.weights import weights_of
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import plain_policy, records
from tests.factories.live_coordinator import live
from tests.factories.settings import settings

COUNTS, ROUNDS, SLOT = (1_000, 100_000), 3, 20.0


class TimedTransport(Transport):
    """Notes how long after the last answer each update is sent."""

    def __init__(self, connection: Connection, seconds: list[float]) -> None:
        super().__init__(connection)
        self._seconds, self._answered = seconds, time.monotonic()

    def send(self, call: Call[Any], headers: dict[str, str]) -> HttpAnswer:
        if call.method == "PUT" and "/updates/" in call.target:
            self._seconds.append(time.monotonic() - self._answered)
        answer = super().send(call, headers)
        self._answered = time.monotonic()
        return answer


def measured(count: int, slots: Sequence[float]) -> list[float]:
    """Seconds of each round."""
    schedule = {"min_clients": 1, "slots": list(slots)}
    study_settings = settings(
        sampling_rate=1.0,
        expected_batch_size=float(min(COUNTS)),
        expected_clients=1.0,
        max_steps=ROUNDS,
        schedule=schedule,
    )
    seconds: list[float] = []
    with TemporaryDirectory() as folder, live(Path(folder) / "home", long_poll_seconds=1.0) as coordinator:
        coordinator.open_study("sepsis", study_settings, model=False)
        model = tasks.load(study_settings.training.task, study_settings.training.task_parameters).model()
        coordinator.operator("PUT", "/v1/studies/sepsis/models/0", content=encode(weights_of(model)))

        def connection(_: str) -> Connection:
            return Connection(url=coordinator.url)

        def transport(connection: Connection) -> Transport:
            return TimedTransport(connection, seconds)

        home = Path(folder) / "hospital"
        Hospital.enrol(coordinator.url, coordinator.invite("sepsis", "mercy"), directory=home, connection=connection)
        coordinator.operator("POST", "/v1/studies/sepsis/start")
        hospital = Hospital.open(home, connection=connection, transport=transport)
        joined = threading.Thread(target=lambda: hospital.join("sepsis", None, records(count), policy=plain_policy()))
        joined.start()
        while joined.is_alive():
            coordinator.work()
            time.sleep(0.01)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    results: dict[str, Any] = {}
    for name, slots in (("without slots", []), (f"a slot of {SLOT:g} s", [SLOT])):
        for count in COUNTS:
            # The first round also warms up.
            seconds = measured(count, slots)[1:]
            row = {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds)}
            results[f"{name}, {count} patients"] = {key: round(value, 4) for key, value in row.items()}
            print(f"{name:16} {count:7,} patients: " + ", ".join(f"{key} {value:.4f} s" for key, value in row.items()))
    if out is not None:
        out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
