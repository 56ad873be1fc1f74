"""A released model's file as a function of records."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client_sdk.released.layout import layout_of
from client_sdk.released.records import new_records
from private_learning.records import DataError, LazyTable, Table
from private_learning.tasks import Task, load
from private_learning.tasks.adapters import merge
from private_learning.tasks.backbone_file import BackboneFile, ProgramFile
from private_learning.tasks.inputs import Inputs, in_memory, parts
from private_learning.tasks.parts import part_of
from private_learning.tasks.reading import inputs_of
from private_learning.tasks.registry import load_part
from private_learning.tasks.size import OF_ITS_OWN, model_bytes
from private_learning.training.weights import load_weights, spec_of_model
from study_protocol.study.model_file import LONGEST_METADATA, ModelMetadata
from study_protocol.wire.tensors import TensorError, decode, metadata_in

_BATCH = 1024
# Numbers of the inputs of a batch: large images go a few at a time.
_BATCH_VALUES = 1 << 22


@dataclass(frozen=True)
class ReleasedModel:
    """A model whose model(records) is (n, classes) probabilities, or (n, k) predictions where the task is no
    classifier.

    metadata  what the file says of itself, or None where it has no metadata
    task      how records become inputs, and outputs predictions
    module    the torch model with its weights, in eval mode: (n, ...) inputs to (n, outputs) scores
    sha256    of the file
    """

    metadata: ModelMetadata | None
    task: Task
    module: nn.Module
    sha256: str

    def __call__(self, records: Any) -> NDArray[np.float64]:
        """(n, k) float64, one row for each record, in their order. A classifier's rows add up to 1.

        records: a data frame, a mapping of columns, a path, or Records. For images and features an array of inputs. A
        table's columns are found by their names, and others are ignored. A value out of its public range counts as the
        nearest bound, as in training.

        Raises:
            DataError: names the column that lacks or is of another type. Also for a matrix where a table is needed.
        """
        return self.predicted(self._inputs(records))

    def intervals(self, records: Any, level: float = 0.9) -> NDArray[np.float64]:
        """(n, 2) float64: between what the posterior holds each record's probability of class 1 to be, at `level`.

        They say how sure the model is of its weights, as far as records and prior tell: not how far the noise of a
        private study has moved them.

        Raises:
            DataError: as a call, for a model that has no posterior, such as of any task but
                bayesian-logistic-regression,
                and for a level outside (0, 1).
        """
        if not 0 < level < 1:
            raise DataError(f"level must lie between 0 and 1, such as 0.9, got {level!r}")
        intervals = self.task.intervals(self.outputs(self._inputs(records)), level)
        if intervals is None:
            raise DataError("this task's model has no posterior, so that its predictions have no intervals")
        return intervals.numpy()

    def inputs(self, records: Any) -> Tensor:
        """(n, ...) float32: the records as `module` takes them, all in memory. Raises as a call."""
        return in_memory(self._inputs(records))

    def _inputs(self, records: Any) -> Inputs:
        converted = new_records(records)
        if self.columns and not isinstance(converted, Table | LazyTable):
            raise DataError(
                "a matrix does not name its columns, which may lie in another order: give a data frame or a mapping "
                f"with the columns {', '.join(self.columns)}"
            )
        return inputs_of(self.task, converted)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of the columns of a table that the model looks at, in the order of its inputs, else none."""
        return tuple(str(described["column"]) for described in layout_of(self.task))

    def outputs(self, inputs: Inputs) -> Tensor:
        """Return (n, outputs) float64 scores of `module`, on its own device.

        Raises:
            DataError: a score that is not finite.
        """
        outputs = torch.cat(list(self._in_batches(inputs)))
        if not torch.isfinite(outputs).all():
            raise DataError("the model gives NaN or an infinity for some records: take the model of an earlier round")
        return outputs

    def predicted(self, inputs: Inputs) -> NDArray[np.float64]:
        """(n, k) as a call, of inputs instead of records."""
        return self.task.predictions(self.outputs(inputs)).numpy()

    def _in_batches(self, inputs: Inputs) -> Iterator[Tensor]:
        device = next((parameter.device for parameter in self.module.parameters()), torch.device("cpu"))
        with torch.no_grad():
            for part in parts(inputs):
                for some in torch.split(part, max(1, min(_BATCH, _BATCH_VALUES // max(1, part[:1].numel())))):
                    yield self.module(some.to(device)).double().cpu()


def load_model(path: str | Path, *, task: Task | None = None, backbone: BackboneFile | None = None) -> ReleasedModel:
    """The model in a file that `wardround study model` wrote.

    task: left out, the one that the file names, built in or installed. Needed for a file that names none, and for a
    task that no package offers.
    backbone: file of what was not trained, weights or a ProgramFile. Its digest is in `metadata`

    Raises:
        ConfigurationError: the backbone is missing or another file.
        TensorError: not a model's file, or not of this task. The text says what differs.
        TaskError: the file's task is not installed here.
        OSError: no such file.
    """
    path = Path(path)
    return model_of(path.read_bytes(), path.name, task, backbone)


def model_of(data: bytes, name: str, task: Task | None = None, backbone: BackboneFile | None = None) -> ReleasedModel:
    """Return the model as `load_model`, from the file's bytes. `name` stands in errors."""
    try:
        metadata = ModelMetadata.within(metadata_in(data))
        if task is None:
            if metadata is None:
                reason = (
                    "the file does not say of which task it is: fetch it with `wardround study model`, or give task="
                )
                raise TensorError("wrong-metadata", reason)
            task = load(metadata.task, metadata.task_parameters)
        _require_size(task, len(data), backbone)
        if metadata is not None and part_of(task) is None:
            task = load_part(task, metadata.task, metadata.trainable, metadata.backbone_sha256, backbone)
        module = task.model().eval()
        weights = decode(data, spec_of_model(module), metadata=LONGEST_METADATA)
        load_weights(module, task.for_prediction(weights))
    except TensorError as error:
        raise TensorError(error.code, f"{name} is no model to be used here: {error.detail}") from error
    # Adapters are for training: what they add goes into the weights of their layers.
    return ReleasedModel(metadata, task, merge(module), hashlib.sha256(data).hexdigest())


def _require_size(task: Task, file: int, backbone: BackboneFile | None) -> None:
    """Raise TensorError where the file's header asks for far more numbers than the files hold, before making any."""
    path = backbone.path if isinstance(backbone, ProgramFile) else backbone
    bytes_needed = file + (0 if path is None or not Path(path).is_file() else Path(path).stat().st_size)
    size = model_bytes(task)
    if size is not None and size > bytes_needed + OF_ITS_OWN:
        raise TensorError(
            "wrong-shape",
            f"its header asks for a model of {size / (1 << 30):,.1f} GiB, and the files hold {bytes_needed:,} bytes",
        )
