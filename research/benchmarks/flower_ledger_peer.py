"""Rounds of Flower's own strategy with one of two accountants, for `research.benchmarks.flower_ledger`.

Runs in an environment of its own, with flwr[dp] and what `pip install 'wardround[flower]'` brings, as
`PYTHON flower_ledger_peer.py flower|ledger FOLDER ROUNDS [KILLED_IN]`. One JSON object a line on standard output: what
is spent before the run and after each round, and the milliseconds that the accountant took in the round. The strategy,
its clipping and its noise are Flower's. Messages are passed within this process, which dies by SIGKILL while the
hospitals train in round KILLED_IN.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import NeighboringRelation, PrivacyConfig, RdpAccountant, SamplingMethod
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

from wardround.flower import LedgerAccountant

HOSPITALS, NUMBERS, NOISE, CLIP = 4, 1_000, 8.0, 1.0
EPSILON, DELTA = 2.0, 1e-5


class LocalGrid:
    """Passes messages to hospitals in this process."""

    def __init__(self, killed_in: int | None) -> None:
        self.killed_in, self.rounds = killed_in, 0
        self.draws = np.random.default_rng(0)

    def get_node_ids(self) -> list[int]:
        return list(range(1, HOSPITALS + 1))

    def send_and_receive(self, messages: Iterable[Message], timeout: float | None = None) -> list[Message]:
        requests = list(messages)
        self.rounds += bool(requests)
        if requests and self.rounds == self.killed_in:
            os.kill(os.getpid(), signal.SIGKILL)
        return [self._answer(message) for message in requests]

    def _answer(self, message: Message) -> Message:
        values = message.content["arrays"]["w"].numpy() + self.draws.normal(size=NUMBERS) * 0.01
        records = {
            "arrays": ArrayRecord({"w": Array(values)}),
            "metrics": MetricRecord({"num-examples": 1.0}),
        }
        return Message(RecordDict(records), reply_to=message)


class TimedAccountant:
    """An accountant, and the milliseconds of its calls."""

    def __init__(self, accountant: Any) -> None:
        self.accountant, self.milliseconds = accountant, 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.accountant, name)
        if not callable(value):
            return value

        def timed(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            answer = value(*arguments, **named)
            self.milliseconds += 1000 * (time.perf_counter() - start)
            return answer

        return timed


def accountant_of(name: str, folder: Path) -> Any:
    """Return Flower's accountant, or the one over a ledger in the folder."""
    if name == "ledger":
        return LedgerAccountant(folder / "runs.db", epsilon=EPSILON, delta=DELTA, population=HOSPITALS)
    relation, sampling = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION
    return RdpAccountant(PrivacyConfig(DELTA, HOSPITALS, relation, sampling, EPSILON))


def main() -> None:
    """Run the rounds that the command line names."""
    name, folder, rounds, *killed_in = sys.argv[1:]
    # As Flower's own processes do before they run an app.
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    logging.getLogger("flwr").setLevel(logging.ERROR)
    accountant = TimedAccountant(accountant_of(name, Path(folder)))
    average = FedAvg(fraction_evaluate=0.0, min_train_nodes=HOSPITALS, min_available_nodes=HOSPITALS)
    strategy = DifferentialPrivacyServerSideFixedClipping(average, NOISE, CLIP, HOSPITALS, accountant=accountant)
    _print(round=0, epsilon=accountant.get_epsilon(DELTA), releases=accountant.num_releases, flwr=version("flwr"))
    grid, arrays = LocalGrid(int(killed_in[0]) if killed_in else None), ArrayRecord({"w": Array(np.zeros(NUMBERS))})
    for number in range(1, int(rounds) + 1):
        accountant.milliseconds = 0.0
        try:
            result = strategy.start(grid, arrays, num_rounds=1)  # type: ignore[arg-type]
        except PrivacyBudgetExhausted as error:
            _print(round=number, refused=str(error), epsilon=accountant.get_epsilon(DELTA))
            break
        arrays, spent = result.arrays, accountant.milliseconds
        _print(round=number, epsilon=accountant.get_epsilon(DELTA), milliseconds=spent)


def _print(**values: Any) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    main()
