"""The tasks a study can name."""

from client_sdk.tasks.dataset import TaskDataset
from client_sdk.tasks.registry import load, names
from client_sdk.tasks.task import Classification, Task, TaskError

__all__ = ["Classification", "Task", "TaskDataset", "TaskError", "load", "names"]
