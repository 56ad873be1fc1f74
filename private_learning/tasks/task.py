"""The interface of a task: a model, a loss per record, and the way from a hospital's records to tensors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from private_learning.errors import ConfigurationError
from private_learning.records import DataError, Records, WrongRows
from study_protocol.cells import column_name
from study_protocol.wire.wrong_entries import wrong_entries

# Opening a study names a task and draws first weights without torch, which is imported where it computes.
if TYPE_CHECKING:
    from torch import Tensor, nn

    from private_learning.tasks.dataset import TaskDataset
    from study_protocol.wire.tensors import Array


class TaskError(ValueError):
    """A task that does not exist or was given parameters that it does not take. The text names the parameter."""


@dataclass(frozen=True)
class InputUse:
    """Counts of one input of the records, for the hospital's own eyes: they are about the records themselves.

    values     in all
    missing    of them
    clipped    drawn back into a public range
    other      outside a public list of codes
    of_others  events of persons outside these patients, which are left out. They are none of `values`.
    wrong      neither a value nor a declared code
    """

    name: str
    values: int
    missing: int
    clipped: int
    other: int = 0
    of_others: int = 0
    wrong: int = 0


ColumnText = Annotated[str, AfterValidator(column_name), Field(min_length=1)]
"""The name of a column, its letters composed in one way."""


class TaskParameters(BaseModel):
    """Base of a task's parameters: strict types, no unknown names, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @property
    def targets(self) -> tuple[str, ...]:
        """Columns of a table that are predicted."""
        return ()

    @classmethod
    def read(cls, task: str, values: Mapping[str, Any]) -> Self:
        """The parameters of `task`.

        Raises:
            TaskError: a parameter is unknown, missing, or out of its range.
        """
        try:
            return cls.model_validate(dict(values))
        except ValidationError as error:
            raise TaskError(f"task {task}: {'; '.join(wrong_entries(error, cls))}") from error


class Task(ABC):
    """One trainable thing. Preprocessing reads public parameters only, never a statistic of the records.

    predicts: the predicted property of a record. A question can evaluate predictions of "classes" and of one "number".
        Any
    other word names them in the plural, such as "labels".
    target_columns: the predicted columns of a table.
    """

    predicts: str = "number"
    target_columns: tuple[str, ...] = ()

    head: str | None = None
    """Name of the module within `model` that a study trains with `trainable = "head"`; None: the last of
    `named_modules()` that has parameters of its own."""

    @abstractmethod
    def model(self) -> nn.Module:
        """Return a new model. No layer may mix the records of a batch (no batch normalisation)."""

    def initial_weights(self, random: np.random.Generator) -> dict[str, Array] | None:
        """Return parameter name -> float32 array, as in a new model, but drawn without torch.

        It holds for the class that defines it alone, because a derived class may have another model. None: only `model`
        makes them.
        """
        return None

    @classmethod
    def example(cls) -> dict[str, Any]:
        """Return example parameters for templates, documents and tests. Raises TaskError: the task has none."""
        raise TaskError(f"task {cls.__name__} has no example of its own")

    def synthetic_records(self, count: int, seed: int = 0) -> Records:
        """Return random records of `count` patients, one of each, with targets that depend on the inputs.

        Raises:
            TaskError: the task does not say what its records look like.
        """
        raise TaskError("the task has no synthetic_records of its own")

    def evaluation(self) -> dict[str, Any] | None:
        """Return entries of a question that evaluates the predictions. None: no question evaluates them yet."""
        return None

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return (batch,) losses, each of one record alone."""

    @abstractmethod
    def dataset(self, data: Records) -> TaskDataset:
        """Return the records as tensors, row by row: a patient may have several.

        Raises:
            DataError: missing columns, NaN or ∞ where none may be, labels out of range.
        """

    def inspect(self, data: Records) -> tuple[InputUse, ...]:
        """Return the counts that `wardround data check` shows of the records that `dataset` took, by default none."""
        return ()

    def warnings(self, data: Records) -> tuple[str, ...]:
        """Return facts that a person at the hospital should know before round 1, in words without a value of a record.

        The warnings decide no step: the records are read in the same way with and without a warning.
        """
        return ()

    def inputs(self, data: Records) -> Tensor:
        """Return (n, ...) float32: the records as the model takes them. A prediction needs no labels.

        By default a task reads them as for training, with labels.

        Raises:
            DataError: as `dataset`.
        """
        from private_learning.tasks.inputs import in_memory

        return in_memory(self.dataset(data).inputs)

    def targets(self, data: Records) -> Tensor:
        """Return (n, ...) the targets alone, as `dataset` has them.

        A task that looks at labels only never touches the inputs.

        Of records that are read on demand (`LazyExamples`) a task without `targets` of its own has the inputs read
        once for it.

        Raises:
            DataError: as `dataset`.
        """
        return self.dataset(data).targets

    def for_prediction(self, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        """Return the weights that predictions are made with, out of released ones: by default the same.

        It is post-processing: training goes on from the released weights themselves.
        """
        return weights

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return (n, k) predictions of each record, out of the model's outputs: by default the outputs themselves."""
        return outputs

    def prediction_names(self, count: int) -> tuple[str, ...]:
        """Return the names in a file of the `count` columns of `predictions`."""
        return tuple(f"prediction_{place}" for place in range(count))

    def outcomes(self, targets: Tensor) -> Tensor:
        """Return (n, ...) targets in the unit of `predictions`: by default the targets themselves."""
        return targets

    def target_counts(self, targets: Tensor) -> dict[str, int]:
        """Return the counts that `wardround data check` shows of the targets, by name, for the hospital's own eyes.

        targets: (rows, ...) as `loss` takes them. Whole numbers are counted by value, others are not counted.
        """
        if targets.is_floating_point():
            return {}
        values, counts = np.unique(targets.numpy(), return_counts=True)
        return dict(zip(map(str, values.tolist()), counts.tolist(), strict=True))

    def intervals(self, outputs: Tensor, level: float) -> Tensor | None:
        """Return (n, 2) bounds on the probability of class 1, at `level`, or None where the model has none.

        outputs: (n, k) of the model. level: above 0 and below 1.
        """
        return None

    def example_inputs(self, count: int, generator: np.random.Generator) -> Tensor:
        """Return (count, ...) float32: random inputs as `inputs` can give them, made of no record.

        Before the first round the model is tried on them. Without this method the model is tried on numbers and whole
        numbers of several kinds.

        Raises:
            TaskError: the task does not say what its inputs look like.
        """
        raise TaskError("the task has no example_inputs of its own: give records at hand (--data FILE)")

    def example_targets(self, count: int, generator: np.random.Generator) -> Tensor:
        """Return (count, ...) random targets as `dataset` can give them, made of no record.

        Before the first round the loss is tried on them. Needed only where it takes no classes and no plain numbers.

        Raises:
            TaskError: the task does not say what its targets look like.
        """
        raise TaskError("the task has no example_targets of its own")

    @abstractmethod
    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        """Return named finite numbers for a declared evaluation set outside the guarantee.

        outputs, targets: as `loss` takes them.
        """


class Classification(Task):
    """Loss and metrics of a classifier: one logit for two classes, one per class otherwise.

    A task of your own needs `classes`, `model` and `dataset` only. `integer_labels` checks labels.
    """

    predicts = "classes"
    classes: int
    # Of the loss, as `private_learning.tasks.losses` says them: gamma of the focal one, and a weight for each class.
    gamma: float = 0.0
    class_weights: tuple[float, ...] = ()

    def linear(self, features: int) -> nn.Linear:
        """Return one layer to the outputs, zero at the start."""
        from torch import nn

        layer = nn.Linear(features, self.outputs)
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
        return layer

    def predictions(self, outputs: Tensor) -> Tensor:
        """Return (n, classes) probabilities, in the precision of the outputs."""
        import torch

        if self.classes == 2:
            return torch.cat([torch.sigmoid(-outputs), torch.sigmoid(outputs)], dim=1)
        return torch.softmax(outputs, dim=1)

    def prediction_names(self, count: int) -> tuple[str, ...]:
        return tuple(f"probability_{name}" for name in self.class_names)

    def target_counts(self, targets: Tensor) -> dict[str, int]:
        values, counts = np.unique(targets.numpy(), return_counts=True)
        names = self.class_names
        return {str(names[int(value)]): int(count) for value, count in zip(values, counts, strict=True)}

    def evaluation(self) -> dict[str, Any]:
        return {} if self.classes == 2 else {"prediction": "classes", "classes": self.classes}

    @property
    def class_names(self) -> tuple[int | str, ...]:
        """Return the names of the classes in predictions, in their order."""
        return tuple(range(self.classes))

    @property
    def outputs(self) -> int:
        """Return the number of columns that the model must give."""
        return 1 if self.classes == 2 else self.classes

    # Not a method of its own: the closed forms know their losses by what they are.
    @property
    def loss(self) -> Callable[[Tensor, Tensor], Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return loss(outputs, targets) -> (batch,), one of those whose gradient is known in closed form."""
        from private_learning.gradients.losses import class_loss

        self.require_classes()
        return class_loss(self.classes, self.gamma, self.class_weights)

    def require_classes(self) -> None:
        """Raise TaskError: the number of classes is not set."""
        if getattr(self, "classes", 0) < 2:
            raise TaskError(f"{type(self).__name__} sets no number of classes: write classes = 2, or more")

    def metrics(self, outputs: Tensor, targets: Tensor) -> dict[str, float]:
        from private_learning.gradients.losses import class_loss

        require_metrics(outputs, targets)
        predicted = (outputs.squeeze(-1) > 0).long() if self.classes == 2 else outputs.argmax(-1)
        return {
            "accuracy": (predicted == targets).double().mean().item(),
            # The plain one, also after training with another one.
            "log_loss": class_loss(self.classes)(outputs.double(), targets).mean().item(),
        }

    def integer_labels(self, labels: np.ndarray, where: str = "labels") -> Tensor:
        """Return (n,) int64 out of labels that are 0, 1, …, classes − 1.

        Raises:
            DataError: anything else, NaN included.
        """
        import torch

        try:
            numbers = np.asarray(labels, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{where}: whole numbers from 0 to {self.classes - 1} are expected, not text") from error
        if numbers.ndim != 1:
            raise DataError(
                f"{where}: one whole number per record is expected, and there are {numbers.ndim - 1} more axes"
            )
        # NaN compares as false, and so is counted as wrong.
        with np.errstate(invalid="ignore"):
            wrong = ~((numbers >= 0) & (numbers < self.classes) & (numbers == np.floor(numbers)))
        if wrong.any():
            text = f"{where}: {int(wrong.sum())} of {len(numbers)} are not whole numbers from 0 to {self.classes - 1}"
            raise WrongRows(text, wrong)
        return torch.as_tensor(numbers.astype(np.int64))


def require_metrics(outputs: Tensor, targets: Tensor) -> None:
    """Raise DataError: no record, or a model that has left the finite numbers."""
    import torch

    if len(targets) == 0 or not torch.isfinite(outputs).all():
        raise DataError("metrics need at least one record and finite outputs")


def new_model(task: Task, name: str = "") -> nn.Module:
    """Return a new model of the task, which a study calls `name`.

    Raises:
        TaskError: with the error of the task's own code.
    """
    if isinstance(task, Classification):
        task.require_classes()
    try:
        return task.model()
    except (TaskError, ConfigurationError):
        raise
    except Exception as error:
        raise TaskError(f"task {name or type(task).__name__!r} could not make its model: {reason(error)}") from error


def reason(error: Exception) -> str:
    """Return the error of a task's code, for one line."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
