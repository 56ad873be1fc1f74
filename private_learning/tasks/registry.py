"""Names a study may use, and the code that a hospital has installed under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from typing import Any

from private_learning.errors import ConfigurationError
from private_learning.tasks.additive import AdditiveModel
from private_learning.tasks.arrays import LastLayer, SmallCnn
from private_learning.tasks.backbone_file import BackboneFile
from private_learning.tasks.bayesian import BayesianLogisticRegression
from private_learning.tasks.multilabel import TableMultiLabel
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.regression import TableRegression
from private_learning.tasks.residual import ImageLabels, ResidualNetwork
from private_learning.tasks.segmentation import Segmentation
from private_learning.tasks.sequences import CodeSequences
from private_learning.tasks.signals import SignalNetwork
from private_learning.tasks.survival import DiscreteTime, PiecewiseConstant
from private_learning.tasks.tables import LogisticRegression, MultilayerPerceptron
from private_learning.tasks.task import Task, TaskError, reason
from private_learning.tasks.vae import ClassAutoencoder
from study_protocol.study.training import ALL, Training

GROUP = "wardround.tasks"

_KINDS = (
    LogisticRegression,
    BayesianLogisticRegression,
    AdditiveModel,
    MultilayerPerceptron,
    TableRegression,
    TableMultiLabel,
    DiscreteTime,
    PiecewiseConstant,
    CodeSequences,
    SmallCnn,
    ResidualNetwork,
    ImageLabels,
    Segmentation,
    SignalNetwork,
    ClassAutoencoder,
    LastLayer,
    ModuleFeatures,
)
BUILT_IN: Mapping[str, Callable[[Mapping[str, Any]], Task]] = {kind.name: kind for kind in _KINDS}
EXAMPLES: Mapping[str, Mapping[str, Any]] = {kind.name: kind.example() for kind in _KINDS}
# Names that a reader may look for, and the reasons why no task can offer them.
REFUSED: Mapping[str, str] = {
    "cox": "Cox's partial likelihood sets every patient against all who are still at risk, so that one patient's "
    "gradient depends on the others and no bound on one patient holds. Take piecewise-exponential: its likelihood is a "
    "sum over patients, and with finer cuts its hazard ratios come to Cox's",
}


def load(name: str, parameters: Mapping[str, Any]) -> Task:
    """Return the task that a study names, with its parameters.

    Code never travels: the task is built in or installed here. An installed package offers a task of its own by an
    entry point in the group `wardround.tasks` whose object is called with the parameters and returns a `Task`.

    Raises:
        TaskError: no package offers or has installed it under this name, two packages did, a parameter is unknown or
            out of range, the package fails, or the result of its entry point is not a Task.
    """
    if name in REFUSED:
        raise TaskError(f"task {name!r}: {REFUSED[name]}")
    # Built in first: no installed package can take a name over that studies count on.
    make = BUILT_IN.get(name)
    task = _installed(name, parameters) if make is None else make(parameters)
    if not isinstance(task, Task):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TaskError(f"the entry point for task {name!r} did not return a Task")
    return task


def of_study(training: Training, backbone: BackboneFile | None = None, custom: Task | None = None) -> Task:
    """Return the task of a study's settings. If a part is trained, `model` makes one of which only this part is.

    backbone  the file that the study names, on this machine: weights, or a ProgramFile
    custom    to be taken instead of the task that `load` finds

    Raises:
        TaskError: as `load`.
        ConfigurationError: the file is missing or another one, or the part does not fit the task's model. Or the model
            takes more memory than this machine has, and no part of it was made.
    """
    from private_learning.tasks.size import memory_of_machine, require_size

    backbone_digest = training.backbone
    if training.task == ModuleFeatures.name and training.augmentation is not None:
        raise ConfigurationError(
            "augmentation makes new views of a record in every step, and task features computes the features of the "
            "record itself once: leave training.augmentation out"
        )
    task = load(training.task, training.task_parameters) if custom is None else custom
    require_size(task, memory_of_machine(), "the study")
    return load_part(
        task, training.task, training.trainable, None if backbone_digest is None else backbone_digest.sha256, backbone
    )


def load_part(
    task: Task, name: str, trainable: str | tuple[str, ...], sha256: str | None, backbone: BackboneFile | None
) -> Task:
    """Return the result of `of_study` for a task at hand.

    trainable, sha256: training.trainable and training.backbone.sha256.
    """
    if trainable == ALL and sha256 is None and not isinstance(task, ModuleFeatures):
        return task
    from private_learning.tasks.parts import of_part

    return of_part(task, name, trainable, sha256, backbone)


def names() -> list[str]:
    """Every task that can be loaded here."""
    return sorted({*BUILT_IN, *(point.name for point in entry_points(group=GROUP))})


def example_of(name: str) -> dict[str, Any]:
    """Return example parameters of a task that is built in or installed here.

    Raises:
        TaskError: there is no such task, it has no example, or its package fails.
    """
    if name in BUILT_IN:
        return dict(EXAMPLES[name])
    subject, make = _maker(name)
    if not isinstance(make, type) or not issubclass(make, Task):
        raise TaskError(f"task {name!r} has no example of its own")
    try:
        example = dict(make.example())
    except TaskError:
        raise
    # Of foreign code, as in `_installed`.
    except Exception as error:
        raise TaskError(f"{subject} cannot give its example: {reason(error)}") from error
    if not all(isinstance(value, str | int | float) for value in example.values()):
        raise TaskError(f"{subject} has an example with values that are neither numbers, Booleans nor texts")
    return example


def _installed(name: str, parameters: Mapping[str, Any]) -> Task:
    subject, make = _maker(name)
    try:
        return make(parameters)
    except TaskError:
        raise
    # Foreign code may raise any error, which a person has to look at.
    except Exception as error:
        raise TaskError(f"{subject} cannot be made with these parameters: {reason(error)}") from error


def _maker(name: str) -> tuple[str, Callable[[Mapping[str, Any]], Task]]:
    """Return an installed task in words, and what its package makes it with."""
    points = list(entry_points(group=GROUP, name=name))
    if len(points) != 1:
        problem = f"no package here offers it: there are {names()}" if not points else "several packages here offer it"
        raise TaskError(f"task {name!r}: {problem}")
    (point,) = points
    subject = f"task {name!r} of package {point.dist.name if point.dist else point.module}"
    try:
        return subject, point.load()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f"{subject} cannot be imported: {reason(error)}") from error
