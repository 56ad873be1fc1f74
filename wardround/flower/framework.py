"""What is used of Flower, imported when it is first needed, so that ledgers can be read where it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    contents, before = [answer.content for answer in answers], _values_of(sent)
    updates = _updates_in(contents, before)
    if updates is None:
        return False
    app, mean = flower("flwr.app"), dict[str, Any]()
    for name, values in before.items():
        total = np.sum([update[name].astype(np.float64) for update in updates], axis=0)
        # Beyond the type it becomes an infinity.
        with np.errstate(over="ignore"):
            mean[name] = app.Array((total / len(updates)).astype(values.dtype))
    for content in contents:
        content[next(iter(content.array_records))] = app.ArrayRecord(mean)
    return True


def _updates_in(contents: Sequence[Any], before: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the arrays of every answer, or None if an answer has not one record with these names and shapes."""
    records = [list(content.array_records.values()) for content in contents]
    updates = [_values_of(record[0]) for record in records if len(record) == 1]
    shapes = _shapes_of(before)
    return updates if len(updates) == len(records) and all(_shapes_of(update) == shapes for update in updates) else None


def _values_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array.numpy() for name, array in arrays.items()}


def _shapes_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array.shape for name, array in values.items()}
