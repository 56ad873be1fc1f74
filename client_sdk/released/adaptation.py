"""A released model that a hospital fits to its own patients, after release and at home.

The fit is made without noise. So the adapted file says something of single patients, and stays at the hospital. It
costs no ε, because nothing leaves. Only the model's last layer changes, so the same programs read the adapted file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import load
from torch import Tensor, nn

from client_sdk.errors import ConfigurationError
from client_sdk.released.local_scores import LocalScores, local_scores
from client_sdk.released.model import ReleasedModel, model_of
from client_sdk.released.recalibration import (
    Floats,
    HeadFit,
    NoFit,
    ScoreLine,
    fit_classes,
    fit_head,
    fit_logit,
    fit_number,
    losses,
)
from private_learning.records import DataError, Records
from private_learning.tasks import Classification, dataset_of
from private_learning.tasks.backbone_file import BackboneFile
from private_learning.tasks.inputs import Inputs, parts
from private_learning.tasks.parts import head_of
from private_learning.tasks.regression import Regression
from study_protocol.cells.identity import patient_identity
from study_protocol.wire.tensor_files import encode_model
from study_protocol.wire.tensors import Array

MIN_PER_CLASS, MIN_FOR_SLOPE, MIN_NUMBERS = 10, 20, 40
"""Patients of each class, or in all for a number, that a fit needs: ten for each fitted value."""
RIDGES = (0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
_FOLDS = 5
_HOLD_OUT, _FOLD = "wardround adapt: hold-out", "wardround adapt: fold"
_STAYS = "fitted to patients of one hospital without noise: it stays there, is never sent and has no certificate"


class TooFewPatients(DataError):
    """The local records cannot carry the fit, or the comparison on the hold-out. The text says what is missing."""


@dataclass(frozen=True)
class Adaptation:
    """An adapted model beside the released one.

    data      the adapted file
    fitted    what was fitted, in words
    patients  of the fit, and of the hold-out
    before, after  scores on the hold-out
    gain      mean decrease of the loss on the hold-out, by patient. Negative: the adapted model is worse
    gain_error     its standard error
    notes     what a reader should know of these numbers
    """

    data: bytes
    fitted: str
    patients: tuple[int, int]
    before: LocalScores
    after: LocalScores
    gain: float
    gain_error: float
    notes: tuple[str, ...]


@dataclass(frozen=True, repr=False)
class _LocalPart:
    """Rows of some patients: what the last layer sees, its outputs, the targets, and who the patients are."""

    features: Floats
    outputs: Floats
    targets: NDArray[Any]
    patients: NDArray[np.str_]

    def take(self, rows: NDArray[np.bool_]) -> _LocalPart:
        return _LocalPart(self.features[rows], self.outputs[rows], self.targets[rows], self.patients[rows])

    @property
    def count(self) -> int:
        """Return the number of patients."""
        return len(np.unique(self.patients))

    def per_class(self, classes: int) -> list[int]:
        """Return the number of patients with a record of each class."""
        return [len(np.unique(self.patients[self.targets == label])) for label in range(classes)]


def adapt(
    data: bytes,
    name: str,
    records: Records,
    *,
    head: bool = False,
    hold_out: float = 0.3,
    backbone: BackboneFile | None = None,
) -> Adaptation:
    """Fit a released model to local patients, and compare both on patients that the fit does not see.

    Args:
        data: the released model's file. `name` stands in errors.
        records: with labels and named patients, who may have several rows.
        head: fit the whole last layer, drawn to the released one. Otherwise intercept and slope, or temperature and a
            bias for each class.
        hold_out: share of the patients that is held out. A patient's identity alone decides it.

    Raises:
        ConfigurationError: this task or model cannot be adapted, or `hold_out` is no share.
        TooFewPatients: too few patients or outcomes.
        DataError, TensorError, TaskError: as `load_model` and `wardround evaluate`.
    """
    if not 0.1 <= hold_out <= 0.9:
        raise ConfigurationError(f"the share of patients that is held out lies between 0.1 and 0.9, got {hold_out!r}")
    released = model_of(data, name, backbone=backbone)
    if released.metadata is None:
        raise ConfigurationError(f"{name} does not say of which study it is: fetch it with `wardround study model`")
    released.metadata.require_not_adapted()
    layer_name, layer = _last_layer(released)
    train, test = _sides(_local_part(released, layer, records), hold_out)
    head_fit, fitted, notes = _fit(released, _layer_of(layer), train, head=head)
    notes += _require_comparable(released, test)
    header = {"adapted_from": released.sha256, "adapted": f"{fitted}, {_STAYS}"}
    body = _file_with(data, layer_name, head_fit, released.metadata.model_copy(update=header).header())
    # What is compared is what the written file computes, in its own precision.
    adapted_layer = _last_layer(model_of(body, f"the adapted {name}", backbone=backbone))[1]
    after = replace(test, outputs=_layer_of(adapted_layer).outputs(test.features))
    gains = _by_patient(test, _losses(released, test) - _losses(released, after))
    return Adaptation(
        body,
        fitted,
        (train.count, test.count),
        before=local_scores(released.task, test.outputs, test.targets),
        after=local_scores(released.task, after.outputs, after.targets),
        gain=float(gains.mean()),
        gain_error=float(gains.std(ddof=1) / np.sqrt(len(gains))),
        notes=notes,
    )


def share_of(purpose: str, patient: str) -> float:
    """Return a number in [0, 1) that the patient's identity alone decides, for one purpose."""
    digest = hashlib.sha256(f"{purpose}\0{patient_identity(patient)}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / (1 << 56)


def _last_layer(model: ReleasedModel) -> tuple[str, nn.Linear]:
    """Return the linear layer that makes the outputs, with its name. Raises ConfigurationError."""
    if type(model.task).predictions not in (Classification.predictions, Regression.predictions):
        raise ConfigurationError(
            "only models of classes and of one number can be adapted, whose predictions come from a linear last layer"
        )
    name = head_of(model.task, model.module)
    layer = model.module.get_submodule(name)
    if not isinstance(layer, nn.Linear) or layer.bias is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise ConfigurationError("the model's last layer is not linear with a bias, so it cannot be adapted")
    return name, layer


def _layer_of(layer: nn.Linear) -> HeadFit:
    return HeadFit(*(parameter.detach().cpu().double().numpy() for parameter in (layer.weight, layer.bias)))


def _sides(local: _LocalPart, hold_out: float) -> tuple[_LocalPart, _LocalPart]:
    """Return the rows of the patients to fit, and of those who are held out. Raises TooFewPatients."""
    is_held_out = np.array([share_of(_HOLD_OUT, patient) < hold_out for patient in local.patients])
    train, test = local.take(~is_held_out), local.take(is_held_out)
    if not train.count or test.count < 2:
        raise TooFewPatients(f"{local.count} patients are too few to hold some of them out")
    return train, test


def _local_part(model: ReleasedModel, layer: nn.Linear, records: Records) -> _LocalPart:
    if not records.named:
        raise DataError("which rows are one patient? Name the column (--patient-column): patients are held out whole")
    dataset = dataset_of(model.task, records)
    features = _features(model, layer, dataset.inputs)
    outputs = _layer_of(layer).outputs(features)
    reference = model.outputs(dataset.inputs).numpy()
    if outputs.shape != reference.shape or not np.allclose(outputs, reference, rtol=1e-4, atol=1e-4):
        raise ConfigurationError("the model goes on after its last layer, so it cannot be adapted")
    patients = np.array([patient_identity(patient) for patient in dataset.patients])
    return _LocalPart(features, outputs, dataset.targets.numpy(), patients)


def _features(model: ReleasedModel, layer: nn.Linear, inputs: Inputs) -> Floats:
    """Return (n, features) float64: what the last layer sees."""
    batches = list[Tensor]()
    handle = layer.register_forward_pre_hook(lambda _, args: batches.append(args[0].detach().double().cpu()))
    try:
        for part in parts(inputs):
            model.outputs(part)
    finally:
        handle.remove()
    if any(batch.ndim != 2 for batch in batches) or sum(map(len, batches)) != len(inputs):
        raise ConfigurationError("the model does not call its last layer once for each record, so it cannot be adapted")
    return torch.cat(batches).numpy()


def _fit(
    model: ReleasedModel, layer: HeadFit, train: _LocalPart, *, head: bool
) -> tuple[HeadFit, str, tuple[str, ...]]:
    """Return the adapted last layer, what was fitted in words, and notes. Raises TooFewPatients."""
    smallest = _smallest_class(model, train)
    if smallest < (MIN_NUMBERS if _is_number(model) else MIN_PER_CLASS):
        raise TooFewPatients(_too_few(model, train))
    if head:
        ridge = _chosen_ridge(model, layer, train)
        head_fit = fit_head(layer, train.features, train.targets, ridge, is_number=_is_number(model))
        return head_fit, f"the last layer, drawn to the released one with ridge {ridge:g}", ()
    with_all = _is_number(model) or smallest >= MIN_FOR_SLOPE
    notes = list[str]()
    try:
        line, fitted = _line(model, train, with_all=with_all)
        if not with_all:
            notes.append(f"a class has fewer than {MIN_FOR_SLOPE} patients in the fit, so only the {fitted} was fitted")
        if line.slope <= 0:
            # A slope of other sign would turn the order of all patients around.
            line, fitted = _level(model, train), "intercept"
            notes.append("the model does not order these patients: the slope would not be positive, so it stays 1")
    except NoFit as error:
        raise TooFewPatients(f"nothing could be fitted: {error}") from error
    return HeadFit(line.slope * layer.weight, line.slope * layer.bias + line.offsets), fitted, tuple(notes)


def _level(model: ReleasedModel, train: _LocalPart) -> ScoreLine:
    """Return a line of slope 1. Raises NoFit: several classes have no single level."""
    if _is_number(model):
        return ScoreLine(1.0, np.array([float((train.targets - train.outputs[:, 0]).mean())]))
    if train.outputs.shape[1] > 1:
        raise NoFit("the model does not order these patients. --head fits the whole last layer")
    return fit_logit(train.outputs[:, 0], train.targets, with_slope=False)


def _line(model: ReleasedModel, train: _LocalPart, *, with_all: bool) -> tuple[ScoreLine, str]:
    """Return the fitted line, and what was fitted in words. Raises NoFit."""
    if _is_number(model):
        return fit_number(train.outputs[:, 0], train.targets), "intercept and slope"
    if train.outputs.shape[1] == 1:
        line = fit_logit(train.outputs[:, 0], train.targets, with_slope=with_all)
        return line, "intercept and slope" if with_all else "intercept"
    line = fit_classes(train.outputs, train.targets, with_offsets=with_all)
    return line, "temperature and a bias for each class" if with_all else "temperature"


def _chosen_ridge(model: ReleasedModel, layer: HeadFit, train: _LocalPart) -> float:
    """Return the ridge of the least loss in cross-validation. A patient's identity alone decides the fold."""
    # By patient, so that two rows of one are never on both sides.
    fold = np.array([int(_FOLDS * share_of(_FOLD, patient)) for patient in train.patients])
    totals = dict.fromkeys(RIDGES, 0.0)
    for number in np.unique(fold):
        rest, part = train.take(fold != number), train.take(fold == number)
        for ridge in RIDGES if rest.count else ():
            head_fit = fit_head(layer, rest.features, rest.targets, ridge, is_number=_is_number(model))
            outputs = head_fit.outputs(part.features)
            totals[ridge] += float(losses(outputs, part.targets, is_number=_is_number(model)).sum())
    return min(RIDGES, key=lambda ridge: totals[ridge])


def _require_comparable(model: ReleasedModel, test: _LocalPart) -> tuple[str, ...]:
    """Return notes on a small hold-out. Raises TooFewPatients: both models could not be told apart at all."""
    smallest = _smallest_class(model, test)
    if smallest < MIN_PER_CLASS:
        raise TooFewPatients("the hold-out cannot judge the fit: " + _too_few(model, test))
    # Vergouwe et al. 2005: with fewer a validation misses even large differences.
    return (
        (f"the hold-out is small ({_counts_in_words(model, test)}): its numbers are rough",) if smallest < 100 else ()
    )


def _smallest_class(model: ReleasedModel, part: _LocalPart) -> int:
    """Return the patients of the rarest class, or all of them for a number. Temperature alone needs two classes."""
    if not isinstance(model.task, Classification):
        return part.count
    counts = sorted(part.per_class(model.task.classes), reverse=True)
    return counts[-1] if model.task.classes == 2 or counts[-1] >= MIN_FOR_SLOPE else min(counts[1], MIN_FOR_SLOPE - 1)


def _too_few(model: ReleasedModel, part: _LocalPart) -> str:
    if isinstance(model.task, Classification) and sum(count > 0 for count in part.per_class(model.task.classes)) < 2:
        return f"its {part.count} patients have one class only, so there is nothing to fit. Add records of others"
    need = f"{MIN_NUMBERS} patients" if _is_number(model) else f"{MIN_PER_CLASS} patients of each of two classes"
    return (
        f"too few patients ({_counts_in_words(model, part)}), and at least {need} are needed. Keep the released model"
    )


def _counts_in_words(model: ReleasedModel, part: _LocalPart) -> str:
    if not isinstance(model.task, Classification) or model.task.classes > 10:
        return f"{part.count} in all"
    counts = part.per_class(model.task.classes)
    return ", ".join(f"{n} of class {name}" for n, name in zip(counts, model.task.class_names, strict=True))


def _is_number(model: ReleasedModel) -> bool:
    return not isinstance(model.task, Classification)


def _losses(model: ReleasedModel, part: _LocalPart) -> Floats:
    return losses(part.outputs, part.targets, is_number=_is_number(model))


def _by_patient(part: _LocalPart, values: Floats) -> Floats:
    """Return (patients,) the mean of each patient's rows."""
    _, place = np.unique(part.patients, return_inverse=True)
    return np.bincount(place, values) / np.bincount(place)


def _file_with(data: bytes, name: str, head_fit: HeadFit, header: dict[str, str]) -> bytes:
    """Return the file with another last layer. Raises ConfigurationError: the released file does not hold it."""
    arrays: dict[str, Array] = load(data)
    for part, values in (("weight", head_fit.weight), ("bias", head_fit.bias)):
        full_name = f"{name}.{part}" if name else part
        if full_name not in arrays:
            raise ConfigurationError("the released file does not hold the model's last layer, so it cannot be adapted")
        # As the released file has it, so that whatever loads that one loads this one.
        arrays[full_name] = values.reshape(arrays[full_name].shape).astype(arrays[full_name].dtype)
    return encode_model(arrays, header)
