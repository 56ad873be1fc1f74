"""Training of a part of a task's model: its parameters, and the source of all others.

The task of a study stays itself but for its model. Parameters that are not trained must be the same at every hospital.
They come from the study's backbone file, or the task makes the same values whenever it makes its model.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from private_learning.errors import ConfigurationError
from private_learning.gradients.inspection import trainable
from private_learning.tasks.adapters import adapt, modules_of, within
from private_learning.tasks.backbone import place, tensors_in, verified_bytes
from private_learning.tasks.backbone_file import BackboneFile
from private_learning.tasks.on_module import ModuleFeatures
from private_learning.tasks.task import Task, new_model
from study_protocol.study.training import ALL, HEAD, PROGRAM_TASK, rank_of


@dataclass(frozen=True, repr=False)
class PartlyTrained:
    """Makes the model of a task of which a part is trained: the other parameters do not require gradients.

    trainable  as in the study's settings
    head       name of the module that is trained where only the head is, or adapters beside it
    tensors    of the backbone's file, or None where the study names none
    """

    task: Task
    name: str
    trainable: str | tuple[str, ...]
    head: str
    tensors: Mapping[str, Tensor] | None

    def __call__(self) -> nn.Module:
        """Return a new model. Raises ConfigurationError: the part does not fit the model."""
        model = new_model(self.task, self.name)
        begun = self._trained_names(model)
        if self.tensors is not None:
            # What the task itself never trains, it makes: the file need not have it.
            frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
            place(model, self.tensors, begun | frozen, {name for name in begun if within(name, self.head)})
        rank = rank_of(self.trainable)
        if rank is not None:
            adapt(model, rank, self.head)
            return model
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name in begun)
        return model

    def _trained_names(self, model: nn.Module) -> set[str]:
        """Return names of the task's own parameters that are trained: with adapters those of the head."""
        names = list(trainable(model))
        if isinstance(self.trainable, str):
            head_names = {name for name in names if within(name, self.head)}
            if not head_names:
                raise ConfigurationError(
                    f"the head {self.head!r} shares all its parameters with other layers: say with patterns what is "
                    "trained"
                )
            return head_names
        return {name for pattern in self.trainable for name in _matched(pattern, names)}

    def require_same_everywhere(self) -> None:
        """Raise ConfigurationError: values that are not trained differ from one new model to the next."""
        first, second = self(), self()
        states = [dict(model.named_parameters()) | dict(model.named_buffers()) for model in (first, second)]
        differing = [
            name
            for name, value in states[0].items()
            if not value.requires_grad and not torch.equal(value, states[1][name])
        ]
        if differing:
            raise ConfigurationError(
                f"{differing[0]!r} is not trained, and the task draws it anew at every hospital, so that each "
                "would train another model: name a file of public weights (training.backbone), or train everything"
            )


def of_part(
    task: Task,
    name: str,
    trainable: str | tuple[str, ...],
    sha256: str | None,
    backbone: BackboneFile | None,
) -> Task:
    """Return the same task with a model of which only a part is trained.

    name      the study's name for the task
    sha256    of the backbone that the study names, or None where it names none
    backbone  the file

    Raises:
        ConfigurationError: the file is missing, another one, or does not fit. A pattern has no match, or the rank is
        too
            large. Or values that are not trained would differ between hospitals.
    """
    if isinstance(task, ModuleFeatures):
        if trainable not in (ALL, HEAD):
            raise ConfigurationError("task features trains its linear layer alone: leave training.trainable out")
        if sha256 is not None and name != PROGRAM_TASK:
            # Site policies look for programs under this name.
            raise ConfigurationError(f"only the task {PROGRAM_TASK!r} runs a program, and the study's is {name!r}")
        task = task.with_program(None if sha256 is None else verified_bytes(backbone, sha256, program=True))
        trainable, sha256 = HEAD, None
    if trainable == ALL:
        raise ConfigurationError(
            "training.backbone is for what is not trained: say which part is (training.trainable). To begin with "
            "public weights and train all of them, open the study with --model FILE"
        )
    tensors = None if sha256 is None else tensors_in(verified_bytes(backbone, sha256))
    make_model = PartlyTrained(task, name, trainable, head_of(task, new_model(task, name)), tensors)
    make_model.require_same_everywhere()
    derived = copy.copy(task)
    # An attribute of this one object: everything else stays the task's own, and its class what it was.
    vars(derived)["model"] = make_model
    return derived


def part_of(task: Task) -> PartlyTrained | None:
    """Return the maker that `of_part` set, or None where all of the task's model is trained."""
    make_model = vars(task).get("model")
    return make_model if isinstance(make_model, PartlyTrained) else None


def head_of(task: Task, model: nn.Module) -> str:
    """Return the name of the module that `head` trains: the task's own word, or the last with parameters of its own.

    Raises:
        ConfigurationError: the model has no such module, or no parameter at all.
    """
    modules = [name for name, module in modules_of(model) if [*module.parameters(recurse=False)]]
    if not modules:
        raise ConfigurationError("the task's model has no parameter that could be trained")
    if task.head is None:
        return modules[-1]
    if not any(name == task.head or name.startswith(f"{task.head}.") for name in modules):
        raise ConfigurationError(f"the task names {task.head!r} as its head, and its model has no such module")
    return task.head


def _matched(pattern: str, names: list[str]) -> list[str]:
    matches = [name for name in names if fnmatchcase(name, pattern)]
    if not matches:
        near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.0)
        raise ConfigurationError(
            f"trainable: no parameter of the task's model is called {pattern!r}. Some that exist: {', '.join(near)}"
        )
    return matches
