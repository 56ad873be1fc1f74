"""The tasks a study can name. torch is imported with `TaskDataset`, or when a task makes a model."""

from typing import TYPE_CHECKING, Any

from private_learning.tasks.registry import load, names, of_study
from private_learning.tasks.task import Classification, Task, TaskError

if TYPE_CHECKING:
    from private_learning.tasks.dataset import TaskDataset
    from private_learning.tasks.reading import dataset_of

__all__ = ["Classification", "Task", "TaskDataset", "TaskError", "dataset_of", "load", "names", "of_study"]


def __getattr__(name: str) -> Any:
    if name not in ("TaskDataset", "dataset_of"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from private_learning.tasks import reading

    return getattr(reading, name)
