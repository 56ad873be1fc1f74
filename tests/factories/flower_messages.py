"""The few types of Flower's messages that a modifier and a strategy touch, for tests without Flower."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest


@dataclass
class Array:
    values: np.ndarray[Any, Any]

    def numpy(self) -> np.ndarray[Any, Any]:
        return self.values


class ArrayRecord(dict[str, Array]):
    pass


class MetricRecord(dict[str, float]):
    pass


class ConfigRecord(dict[str, Any]):
    pass


class RecordDict(dict[str, Any]):
    def _of(self, kind: type) -> dict[str, Any]:
        return {name: record for name, record in self.items() if isinstance(record, kind)}

    @property
    def array_records(self) -> dict[str, ArrayRecord]:
        return self._of(ArrayRecord)

    @property
    def metric_records(self) -> dict[str, MetricRecord]:
        return self._of(MetricRecord)

    @property
    def config_records(self) -> dict[str, ConfigRecord]:
        return self._of(ConfigRecord)


@dataclass
class Error:
    code: int
    reason: str


@dataclass
class Message:
    body: RecordDict | Error
    reply_to: Message | None = None
    kind: str = "train"
    metadata: Any = field(init=False)

    def __post_init__(self) -> None:
        self.metadata = SimpleNamespace(message_type=self.kind, run_id=7)

    def has_error(self) -> bool:
        return isinstance(self.body, Error)

    @property
    def content(self) -> RecordDict:
        assert isinstance(self.body, RecordDict)
        return self.body

    @property
    def error(self) -> Error:
        assert isinstance(self.body, Error)
        return self.body


def install(patch: pytest.MonkeyPatch) -> None:
    """Put these types where a program imports Flower's."""
    app = ModuleType("flwr.app")
    for kind in (Array, ArrayRecord, MetricRecord, ConfigRecord, RecordDict, Error, Message):
        setattr(app, kind.__name__, kind)
    patch.setitem(sys.modules, "flwr", ModuleType("flwr"))
    patch.setitem(sys.modules, "flwr.app", app)


def request(weights: np.ndarray[Any, Any], config: dict[str, Any], kind: str = "train") -> Message:
    """Return the message that asks a hospital to train from these weights."""
    arrays = ArrayRecord({"w": Array(weights)})
    return Message(RecordDict({"arrays": arrays, "config": ConfigRecord(config)}), kind=kind)


def trained(step: np.ndarray[Any, Any], **metrics: float) -> Callable[[Any, Any], Message]:
    """Return an app that moves the weights by a step, and answers with metrics, too."""

    def app(message: Message, context: Any) -> Message:
        moved = ArrayRecord({"w": Array(message.content["arrays"]["w"].numpy() + step)})
        return Message(RecordDict({"arrays": moved, "metrics": MetricRecord(metrics)}), reply_to=message)

    return app


class MeanStrategy:
    """An average of the answers of `nodes` hospitals, and the loop over rounds of Flower's strategies."""

    def __init__(self, nodes: int) -> None:
        self.nodes, self.averaged = nodes, 0

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Message]:
        return [request(arrays["w"].numpy(), dict(config)) for _ in range(self.nodes)]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[Any, Any]:
        answers = [reply.content["arrays"]["w"].numpy() for reply in replies]
        self.averaged += 1
        return ArrayRecord({"w": Array(np.mean(answers, axis=0))}), None

    def start(self, grid: Callable[[Message], Message], initial_arrays: Any, num_rounds: int) -> Any:
        arrays = initial_arrays
        for number in range(1, num_rounds + 1):
            replies = [grid(message) for message in self.configure_train(number, arrays, ConfigRecord(), grid)]
            arrays = self.aggregate_train(number, replies)[0] or arrays
        return arrays
