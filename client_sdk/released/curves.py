"""The curves of an additive model: what each value of a column adds to the score, and how far noise may have moved it.

Pure of records: a released model and the study's settings come in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from client_sdk.errors import ConfigurationError
from client_sdk.released.model import ReleasedModel
from private_learning.tasks.additive import AdditiveModel
from private_learning.tasks.curves import CurveColumn, scores
from private_learning.tasks.declared_columns import CategoryColumn, Declared
from private_learning.training.weights import weights_of
from study_protocol.study.settings import StudySettings

Floats = NDArray[np.float64]
LEVEL = 0.95


@dataclass(frozen=True)
class Curve:
    """One column's part of the score, 0 in the mean over bins or categories.

    edges       (bins + 1,) in the column's unit, dates as days since 1970-01-01. Empty for categories
    categories  their names. Empty for a number
    values      (bins or categories,) what each adds to the log-odds
    missing     what a missing cell adds, or None where none may be missing
    half        (bins or categories,) half the width of a band, or None where the settings were not given
    """

    name: str
    edges: tuple[float, ...]
    categories: tuple[str, ...]
    values: Floats
    missing: float | None
    half: Floats | None
    trend: str | None = None
    dates: bool = False


@dataclass(frozen=True)
class Curves:
    """The whole model: log-odds are intercept + the value of every column's curve.

    words    the names of both classes
    adapted  what a hospital fitted to its own patients, if the model must stay there
    """

    intercept: float
    curves: tuple[Curve, ...]
    label: str
    words: tuple[int | str, ...]
    adapted: str | None = None


def curves_of(model: ReleasedModel, settings: StudySettings | None = None) -> Curves:
    """Return the curves that the model's predictions are made of.

    settings: of the model's study, for bands. Half of a band is the normal quantile times a standard deviation that the
    noise of all rounds has at most. It covers the curve that the same rounds would have made without noise, at each bin
    by itself, with a chance of LEVEL or more. What other patients would have changed is not in it.

    Raises:
        ConfigurationError: a model of another task, or settings of another study or without a known noise.
    """
    task = additive_task(model)
    deviation = None if settings is None else _deviation(model, settings)
    weights = weights_of(model.module)
    intercept, curves = float(weights["bias"][0]), list[Curve]()
    for column, part in task.weights_of_columns(weights):
        values, missing = scores(column, part)
        centre = float(values.mean())
        intercept += centre
        may_lack = column.missing is not None if isinstance(column, CurveColumn) else column.missing
        half = None if deviation is None else NormalDist().inv_cdf((1 + LEVEL) / 2) * deviation * _lengths(column)
        curves.append(_curve(column, values - centre, missing - centre if may_lack else None, half))
    adapted = None if model.metadata is None else model.metadata.adapted
    return Curves(intercept, tuple(curves), task.parameters.label, task.class_names, adapted)


def additive_task(model: ReleasedModel) -> AdditiveModel:
    """Return the model's task. Raises ConfigurationError: it is another one."""
    if isinstance(model.task, AdditiveModel):
        return model.task
    raise ConfigurationError("only a model of task additive has curves")


def _curve(column: Declared, values: Floats, missing: float | None, half: Floats | None) -> Curve:
    if isinstance(column, CategoryColumn):
        return Curve(column.name, (), column.categories, values, missing, half)
    assert isinstance(column, CurveColumn)
    edges = (column.low, *column.edges.tolist(), column.high)
    return Curve(column.name, edges, (), values, missing, half, column.trend, column.dates)


def _lengths(column: Declared) -> Floats:
    """Return (bins or categories,) by how much noise of deviation 1 on every weight moves each centred value."""
    count = column.bins if isinstance(column, CurveColumn) else column.width
    rows = np.stack([scores(column, unit)[0] for unit in np.eye(column.width)[:count]], axis=1)
    return np.linalg.norm(rows - rows.mean(axis=0), axis=1)


def _deviation(model: ReleasedModel, settings: StudySettings) -> float:
    """Return a standard deviation of the noise in each weight that is not exceeded where steps shrink differences.

    A step of noise ξ moves later weights by at most itself: the loss is convex, and a step that is not too long brings
    two models nearer to each other. To first order the noises then add up to at most rate · √Σ_s A_s² · deviation of
    ξ, with A_s the share of the averaged rounds from round s on.
    """
    metadata, training, privacy = model.metadata, settings.training, settings.privacy
    if metadata is None or metadata.settings_sha256 != settings.digest():
        raise ConfigurationError("these are not the settings of the model's study: their digest differs")
    if metadata.adapted_from is not None:
        raise ConfigurationError("no bands: a hospital adapted this model to its own patients. Take the released one")
    changing = {
        "training.algorithm = fedavg": training.algorithm != "fedsgd",
        f"training.optimiser.name = {training.optimiser.name}": training.optimiser.name != "plain",
        "privacy.adaptive_clip": privacy.adaptive_clip is not None,
        "privacy.noise_schedule": privacy.noise_schedule is not None,
        f"robustness.aggregation = {settings.robustness.aggregation}": settings.robustness.aggregation != "mean",
    }
    for setting, is_set in changing.items():
        if is_set:
            raise ConfigurationError(f"no bands: with {setting} the noise in a curve has no simple bound")
    rounds = metadata.mean_of or (metadata.round,)
    shares = dict(zip(rounds, metadata.mean_weights or [1 / len(rounds)] * len(rounds), strict=True))
    size = sum(array.size for array in weights_of(model.module).values())
    return training.optimiser.learning_rate * step_deviation(settings, size) * accumulated(shares)


def step_deviation(settings: StudySettings, coordinates: int) -> float:
    """Return the standard deviation of the noise in each coordinate of a round's mean gradient.

    expected_clients hospitals add noise, as the settings say. Where more take part, it is larger.

    coordinates: parameters of the model.
    """
    privacy = settings.privacy
    clients = privacy.expected_clients
    # On the sum of updates, which are means already. Shares are so large that the fewest honest ones are enough.
    if (noise := privacy.noise_of_updates(coordinates)) is not None:
        std = noise.std_of(math.ceil(clients)) if privacy.rules.divides_noise else noise.std
        return std / clients
    deviation = privacy.noise_multiplier * privacy.clip_norm
    return deviation * math.sqrt(clients) / clients / privacy.expected_batch_size


def accumulated(shares: Mapping[int, float]) -> float:
    """Return √Σ_s A_s² over all rounds s up to the newest, with A_s the shares of rounds from s on.

    >>> accumulated({4: 1.0})
    2.0
    """
    rounds = range(1, max(shares) + 1)
    return math.sqrt(math.fsum(math.fsum(s for at, s in shares.items() if at >= number) ** 2 for number in rounds))
