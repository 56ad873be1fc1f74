"""The initial model of a study: the task's own weights, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from private_learning.tasks.backbone_file import BackboneFile
    from study_protocol.study.settings import StudySettings
    from study_protocol.wire.tensors import Array


def initial_model(study: str, settings: StudySettings, path: Path | None, backbone: BackboneFile | None) -> bytes:
    """Return the model file of round 0: the task's own weights or those of a file, with the header of this study."""
    from study_protocol.study.model_file import ModelMetadata
    from study_protocol.wire.tensor_files import encode_model

    weights = initial_weights(settings, backbone) if path is None else _weights_in(path)
    return encode_model(weights, ModelMetadata.of(study, settings, 0).header())


def _weights_in(path: Path) -> dict[str, Array]:
    from study_protocol.study.model_file import ModelMetadata
    from study_protocol.wire.tensor_files import TensorFile, gather_tensors, read

    with path.open("rb") as file:
        tensors = TensorFile(file.fileno())
        if (metadata := ModelMetadata.within(tensors.metadata)) is not None:
            metadata.require_not_adapted()
        return gather_tensors(tensors.spec, read(tensors))


def initial_weights(settings: StudySettings, backbone: BackboneFile | None) -> dict[str, Array]:
    """Return the initial weights of the task. A built-in task needs no torch, unless only a part of it is trained.

    Raises:
        ConfigurationError: the task needs a package that is not installed here, or the backbone does not fit.
        TaskError: the task cannot be loaded, or its code failed.
    """
    from client_sdk.errors import ConfigurationError
    from private_learning import tasks
    from private_learning.tasks.task import new_model
    from private_learning.tasks.weights import drawn_weights

    training = settings.training
    try:
        task = tasks.load(training.task, training.task_parameters)
        weights = drawn_weights(task) if training.trainable == "all" else None
        if weights is None:
            from private_learning.training.weights import weights_of

            task = tasks.of_study(training, backbone)
            weights = weights_of(new_model(task, training.task))
    except (tasks.TaskError, ModuleNotFoundError) as error:
        missing = error if isinstance(error, ModuleNotFoundError) else error.__cause__
        if not isinstance(missing, ModuleNotFoundError):
            raise
        reason = f"{missing.name} is not installed" if error is missing else str(error)
        raise ConfigurationError(
            f"the initial weights of task {training.task!r} cannot be made here: {reason}. Pass --model FILE. On a "
            "machine with the task and its packages, `wardround study weights --settings FILE -o FILE` writes one"
        ) from error
    return weights
