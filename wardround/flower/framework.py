"""What is used of Flower, imported when it is first needed, so that ledgers can be read where it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from client_sdk.errors import ConfigurationError

# Flower's own number for a modifier that cannot go on.
MOD_FAILED_PRECONDITION = 6


class FlowerEvent(Protocol):
    """Flower's event: one noised sum of clipped updates of sampled clients."""

    @property
    def noise_multiplier(self) -> float: ...
    @property
    def sample_size(self) -> int: ...
    @property
    def population_size(self) -> int: ...


class FlowerMetadata(Protocol):
    """Flower's facts about a message."""

    @property
    def message_type(self) -> str: ...
    @property
    def run_id(self) -> int: ...


class FlowerMessage(Protocol):
    """Flower's message. Its content has records by their kinds, as mappings."""

    @property
    def metadata(self) -> FlowerMetadata: ...
    @property
    def content(self) -> Any: ...
    def has_error(self) -> bool: ...


class FlowerStrategy(Protocol):
    """The part of Flower's strategies that is called in every round."""

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]: ...
    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]: ...


NextApp = Callable[[Any, Any], Any]


def flower(module: str) -> Any:
    """Return a module of Flower. Raises ConfigurationError: Flower is missing, or is another version."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{module} is missing: pip install 'wardround[flower]'") from error


def error_reply(message: FlowerMessage, reason: str) -> FlowerMessage:
    """Return Flower's answer of a node that cannot do what a message asks."""
    app = flower("flwr.app")
    return app.Message(app.Error(code=MOD_FAILED_PRECONDITION, reason=reason), reply_to=message)


def update_reply(
    message: FlowerMessage, key: str, arrays: Mapping[str, Any], metrics: Mapping[str, float]
) -> FlowerMessage:
    """Return Flower's answer with one record of arrays, by name, and one of metrics."""
    app = flower("flwr.app")
    records = {key: app.ArrayRecord({name: app.Array(values) for name, values in arrays.items()})}
    content = app.RecordDict({**records, "metrics": app.MetricRecord(dict(metrics))})
    return app.Message(content, reply_to=message)


def give_mean(answers: Iterable[FlowerMessage], sent: Mapping[str, Any]) -> bool:
    """Put the mean of all answers' arrays in place of each one's, in the types of the arrays that were sent.

    Return False, and change nothing, if an answer has not one record of arrays with their names and shapes.
    """
    contents, before = [answer.content for answer in answers], {name: array.numpy() for name, array in sent.items()}
    records = [list(content.array_records.values()) for content in contents]
    received = [{name: array.numpy() for name, array in record[0].items()} for record in records if len(record) == 1]
    shapes = {name: values.shape for name, values in before.items()}
    if len(received) != len(records) or any({n: v.shape for n, v in one.items()} != shapes for one in received):
        return False
    app, mean = flower("flwr.app"), dict[str, Any]()
    for name, values in before.items():
        total = np.sum([one[name].astype(np.float64) for one in received], axis=0)
        # Beyond the type it becomes an infinity.
        with np.errstate(over="ignore"):
            mean[name] = app.Array((total / len(received)).astype(values.dtype))
    for content in contents:
        content[next(iter(content.array_records))] = app.ArrayRecord(mean)
    return True
