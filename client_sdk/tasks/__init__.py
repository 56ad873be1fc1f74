"""The tasks a study can name. torch is imported with `TaskDataset`, or when a task makes a model."""

from typing import TYPE_CHECKING, Any

from client_sdk.tasks.registry import load, names, of_study
from client_sdk.tasks.task import Classification, Task, TaskError

if TYPE_CHECKING:
    from client_sdk.tasks.dataset import TaskDataset
    from client_sdk.tasks.reading import dataset_of

__all__ = ["Classification", "Task", "TaskDataset", "TaskError", "dataset_of", "load", "names", "of_study"]


def __getattr__(name: str) -> Any:
    if name not in ("TaskDataset", "dataset_of"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from client_sdk.tasks import reading

    return getattr(reading, name)
