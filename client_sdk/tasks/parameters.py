"""Task parameters as they come over the wire: checked, and nothing unknown passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from client_sdk.tasks.task import TaskError


class TaskParameters(BaseModel):
    """Base of a task's parameters: strict types, no unknown names, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def read(cls, task: str, values: Mapping[str, Any]) -> Self:
        """The parameters of `task`.

        Raises:
            TaskError: a parameter is unknown, missing, or out of its range.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'parameters'}: {e['msg']}" for e in error.errors())
            raise TaskError(f"task {task}: {problems}") from error
