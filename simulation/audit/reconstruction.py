"""What a coordinator can make of an update: a patient's record, reconstructed from gradients.

closed form        a linear layer that reads the record has for one record the gradient (δ·xᵀ, δ), so that the record
                   is their quotient (Phong et al. 2018; Zhu & Blaschko 2021). Under noise, the best rank-one
                   approximation of the two, which is the likeliest record
gradient matching  a record is sought whose gradient points where the update does, with its label known and the image
                   smooth (Geiping et al. 2020, "Inverting Gradients", equation 4)

Updates are those of the first step, with the attacker's best case: the gradient that an average patient has is known,
and is subtracted for all other patients of a batch.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from client_sdk.errors import ConfigurationError
from private_learning.gradients.inspection import trainable
from private_learning.tasks import Task, TaskDataset
from private_learning.tasks.inputs import in_memory
from simulation.audit.cost import SECOND_PASS, seconds_of
from simulation.audit.png import png
from simulation.audit.releases import RecordGradients
from simulation.engine import initial_weights
from simulation.population import Population
from study_protocol.study.settings import StudySettings

Floats = NDArray[np.float64]
RECORDS, _PICTURED = 32, 8
# Of candidates, whose gradients are kept together.
_MOST_NUMBERS = 40_000_000
_STEPS, _RATE, _SMOOTH = 120, 0.1, 1e-3
# Seconds on one core for all views, and records at least.
_SECONDS, _FEWEST, _VIEWS = 100.0, 4, 5
# A closed form that is right gives a bare gradient's record to this cosine.
_EXACT = 0.99
# Of the inputs, at least so many must change the gradient.
_REACHED, _LEAST_SIDE = 0.5, 8
PATIENT, HOSPITAL, NOISED_PATIENT, NOISED_HOSPITAL, MASKED = (
    "one patient's gradient, in the clear",
    "one hospital's sum, in the clear",
    "one patient's gradient, clipped and noised",
    "one hospital's sum, clipped and noised",
    "the masked sum of all hospitals",
)


class View(BaseModel):
    """What can be made of one kind of update, as means over the attacked records.

    seen    the coordinator of this study sees updates of this kind
    cosine  of the reconstruction and the record, each less the mean record. 1: the record. 0: no part of it
    error   length of their difference beside the record's own distance from the mean record
    rank    median place of the record among all records, by how well each explains the update. 1: it is found
    found   share of the records at place 1
    """

    model_config = ConfigDict(frozen=True)

    name: str
    seen: bool
    cosine: float
    error: float
    rank: float
    found: float


class ReconstructionReport(BaseModel):
    """Reconstructions of records from updates.

    records     attacked. candidates: among which the rank is
    picture     PNG in base64 where records are images: the records in the first line, then a line for each view
    """

    model_config = ConfigDict(frozen=True)

    method: Literal["closed form", "gradient matching"]
    records: int
    candidates: int
    noise_multiplier: float
    views: tuple[View, ...]
    picture: str | None


def reconstruction(
    settings: StudySettings, task: Task, population: Population, *, records: int = RECORDS, seed: int = 0
) -> ReconstructionReport:
    """Attack the first step of a study on so many patients, drawn at random.

    Raises:
        ConfigurationError: the study clips no patient's gradient, or the model has too many parameters.
    """
    if settings.privacy.rules.clips_updates:
        raise ConfigurationError(
            f"privacy.scheme {settings.privacy.rules.id} protects whole hospitals, and the update of one holds many "
            "steps: reconstruction is tried in schemes that clip every patient's gradient"
        )
    scene = _Scene.of(settings, task, population, records, np.random.default_rng([seed, 37]))
    targets = scene.targets
    updates = scene.updates()
    attack, method = scene.attack(updates[PATIENT])
    rows = [scene.inputs[targets]]
    views: list[View] = []
    masked = settings.privacy.masking is not None
    for name, update in updates.items():
        guess = attack(update)
        rows.append(guess)
        visible = name == (MASKED if masked else NOISED_HOSPITAL)
        views.append(scene.view(name, visible, guess, update))
    return ReconstructionReport(
        method=method,
        records=len(targets),
        candidates=len(scene.inputs),
        noise_multiplier=settings.privacy.noise_multiplier,
        views=tuple(views),
        picture=scene.picture(rows),
    )


@dataclass(frozen=True, repr=False)
class _Scene:
    """The first step of a study.

    inputs     (candidates, ...) of all patients
    bare       (candidates, coordinates) gradients. clipped: to the study's norm
    targets    places of the attacked
    """

    settings: StudySettings
    population: Population
    gradients: RecordGradients
    dataset: TaskDataset
    inputs: Floats
    bare: Floats
    clipped: Floats
    targets: NDArray[np.int64]
    draw: np.random.Generator

    @classmethod
    def of(
        cls, settings: StudySettings, task: Task, population: Population, records: int, draw: np.random.Generator
    ) -> _Scene:
        dataset = population.dataset.in_memory()
        weights = initial_weights(settings, int(draw.integers(2**31)), task)
        size = sum(array.size for array in weights.values())
        if len(dataset) * size > _MOST_NUMBERS:
            raise ConfigurationError(
                f"{size:,} parameters and {len(dataset):,} patients are too many for one audit: give fewer records, "
                f"at most {_MOST_NUMBERS // size:,}"
            )
        gradients = RecordGradients(task, settings.training.task, grouped=dataset.grouped)
        bare = gradients.of(dataset, weights, np.inf)
        norms = np.sqrt(np.square(bare).sum(axis=1))
        clipped = bare * np.minimum(1.0, settings.privacy.clip_norm / np.maximum(norms, 1e-300))[:, None]
        inputs = in_memory(dataset.inputs).double().numpy()
        # A gradient of zero, such as that of a failed record, shows nothing.
        places = np.unique(np.concatenate(population.rows))
        places = places[norms[places] > 0]
        if not len(places):
            raise ConfigurationError("all gradients of the first step are zero: there is nothing to reconstruct from")
        targets = draw.permutation(places)[: min(records, _affordable(task, dataset))]
        return cls(settings, population, gradients, dataset, inputs, bare, clipped, targets, draw)

    def updates(self) -> dict[str, Floats]:
        """Return name of a view -> (targets, coordinates): what is seen, less what other patients add on average."""
        privacy = self.settings.privacy
        hospital_rows = [next(rows for rows in self.population.rows if target in rows) for target in self.targets]
        everybody = np.concatenate(self.population.rows)
        noise = privacy.noise_multiplier * privacy.clip_norm
        single_rows = [np.array([target]) for target in self.targets]
        return {
            PATIENT: self._sums(self.bare, single_rows, 0.0),
            HOSPITAL: self._sums(self.bare, hospital_rows, 0.0),
            NOISED_PATIENT: self._sums(self.clipped, single_rows, noise * privacy.honest_adders**0.5),
            NOISED_HOSPITAL: self._sums(self.clipped, hospital_rows, noise),
            MASKED: self._sums(self.clipped, [everybody] * len(self.targets), noise * len(self.population) ** 0.5),
        }

    def _sums(self, each: Floats, pools: Sequence[NDArray[np.int64]], noise: float) -> Floats:
        rate, usual = self.settings.privacy.sampling_rate, each.mean(axis=0)
        sums = np.zeros((len(pools), each.shape[1]))
        for place, (target, pool) in enumerate(zip(self.targets, pools, strict=True)):
            rest = pool[pool != target]
            batch = rest[self.draw.random(len(rest)) < rate]
            sums[place] = each[target] + each[batch].sum(axis=0) - rate * len(rest) * usual
        return sums + noise * self.draw.normal(size=sums.shape)

    def attack(self, bare: Floats) -> tuple[Callable[[Floats], Floats], Literal["closed form", "gradient matching"]]:
        """Return (updates) -> reconstructed inputs, the closed form where bare gradients show that it is right."""
        place = _first_layer(self.gradients.model, self.inputs[0].size)
        if place is not None:

            def closed(updates: Floats) -> Floats:
                return self._in_range(_rank_one(updates, *place).reshape(-1, *self.inputs.shape[1:]))

            if float(np.mean(self._cosines(closed(bare)))) > _EXACT:
                return closed, "closed form"
        return self._matched, "gradient matching"

    def _matched(self, updates: Floats) -> Floats:
        low, high = (torch.as_tensor(edge, dtype=torch.float32) for edge in self._range())
        targets = self.dataset.targets[torch.as_tensor(self.targets)]
        start = torch.as_tensor(self.inputs.mean(axis=0), dtype=torch.float32).expand(len(updates), *low.shape)
        return _match(self.gradients, torch.as_tensor(updates).float(), targets, start, low, high)

    def _range(self) -> tuple[Floats, Floats]:
        return self.inputs.min(axis=0), self.inputs.max(axis=0)

    def _in_range(self, guess: Floats) -> Floats:
        return np.clip(np.nan_to_num(guess), *self._range())

    def _cosines(self, guess: Floats) -> Floats:
        mean = self.inputs.mean(axis=0)
        guess_offsets, true_offsets = (
            (each - mean).reshape(len(guess), -1) for each in (guess, self.inputs[self.targets])
        )
        lengths = np.linalg.norm(guess_offsets, axis=1) * np.linalg.norm(true_offsets, axis=1)
        return (guess_offsets * true_offsets).sum(axis=1) / np.maximum(lengths, 1e-300)

    def view(self, name: str, visible: bool, guess: Floats, updates: Floats) -> View:
        """Return how near the guesses are."""
        true, mean = self.inputs[self.targets], self.inputs.mean(axis=0)
        distances = np.linalg.norm((guess - true).reshape(len(true), -1), axis=1)
        spreads = np.linalg.norm((true - mean).reshape(len(true), -1), axis=1)
        each = self.bare if name in (PATIENT, HOSPITAL) else self.clipped
        scores = updates @ each.T - np.square(each).sum(axis=1) / 2
        # Equal records share a place, up to rounding.
        margin = 1e-9 * np.abs(scores).max()
        ranks = 1 + (scores > scores[np.arange(len(true)), self.targets][:, None] + margin).sum(axis=1)
        return View(
            name=name,
            seen=visible,
            cosine=float(self._cosines(guess).mean()),
            error=float((distances / np.maximum(spreads, 1e-300)).mean()),
            rank=float(np.median(ranks)),
            found=float((ranks == 1).mean()),
        )

    def picture(self, rows: Sequence[Floats]) -> str | None:
        """Return a grid of the first records and what was made of them. None: they are no images."""
        shape = self.inputs.shape[1:]
        if self.dataset.grouped or len(shape) not in (2, 3) or min(shape[-2:]) < _LEAST_SIDE:
            return None
        low, high = self.inputs.min(), self.inputs.max()
        lines = [np.concatenate(list(_grey(row[:_PICTURED])), axis=1) for row in rows]
        grid = (np.concatenate(lines, axis=0) - low) / max(high - low, 1e-300)
        return base64.b64encode(png(np.clip(grid, 0, 1))).decode()


def _affordable(task: Task, dataset: TaskDataset) -> int:
    """Return for how many records, at least 4, gradients can be matched in the time for it."""
    each = _VIEWS * _STEPS * SECOND_PASS * seconds_of(task, dataset)
    return max(_FEWEST, int(_SECONDS / max(each, 1e-9)))


def _grey(images: Floats) -> Floats:
    """Return (count, height, width): the mean over channels."""
    return images.mean(axis=1) if images.ndim == 4 else images


def _first_layer(model: nn.Module, size: int) -> tuple[int, int, int, int] | None:
    """Return (start of the weights, start of the constants, outputs, inputs) in a flat gradient.

    None: the first layer with parameters is not linear with a constant, on so many inputs.
    """
    names = sorted(trainable(model))
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    name, layer = next((pair for pair in modules if list(pair[1].parameters(recurse=False))), ("", None))
    prefix = f"{name}." if name else ""
    if not isinstance(layer, nn.Linear) or layer.in_features != size:
        return None
    if not {f"{prefix}weight", f"{prefix}bias"} <= set(names):
        return None
    sizes = [trainable(model)[each].numel() for each in names]
    starts = dict(zip(names, np.cumsum([0, *sizes[:-1]]).tolist(), strict=True))
    return starts[f"{prefix}weight"], starts[f"{prefix}bias"], layer.out_features, layer.in_features


def _rank_one(updates: Floats, weights: int, constants: int, outputs: int, inputs: int) -> Floats:
    """Return (updates, inputs) quotients of the best rank-one approximation of every layer gradient."""
    layer = updates[:, weights : weights + outputs * inputs].reshape(-1, outputs, inputs)
    constant = updates[:, constants : constants + outputs, None]
    rows = np.linalg.svd(np.concatenate([layer, constant], axis=2), full_matrices=False)[2][:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        return rows[:, :-1] / rows[:, -1:]


def _match(
    gradients: RecordGradients, updates: Tensor, targets: Tensor, start: Tensor, low: Tensor, high: Tensor
) -> Floats:
    """Return records whose gradients point where the updates do, by signed steps of Adam.

    Raises:
        ConfigurationError: the model's gradients cannot be differentiated by its inputs, such as codes of events.
    """
    model, names = gradients.model, sorted(trainable(gradients.model))
    fixed = {name: parameter.detach() for name, parameter in trainable(model).items()}

    def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return gradients.loss(functional_call(model, parameters, (x[None],)), y[None])[0]

    each = vmap(grad(loss), in_dims=(None, 0, 0), randomness="different")
    x = start.clone().requires_grad_()
    optimiser = torch.optim.Adam([x], lr=float((high - low).max()) * _RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, _STEPS)

    def slopes() -> Tensor:
        by_name = each(fixed, x, targets)
        flat = torch.cat([by_name[name].flatten(1) for name in names], dim=1)
        distance = 1 - nn.functional.cosine_similarity(flat, updates, dim=1)
        return torch.autograd.grad((distance + _SMOOTH * _roughness(x)).sum(), x)[0]

    _require_slopes(slopes)
    for _ in range(_STEPS):
        slope = slopes()
        x.grad = slope.nan_to_num().sign()
        optimiser.step()  # pyright: ignore[reportUnknownMemberType]
        schedule.step()
        with torch.no_grad():
            x.copy_(x.clamp(low, high))
    return x.detach().double().numpy()


def _require_slopes(slopes: Callable[[], Tensor]) -> None:
    """Raise ConfigurationError: there are none, or only of few inputs. Records would stay as they began."""
    try:
        reached = float((slopes() != 0).any(0).float().mean())
    # What a model or loss raises under vmap may have any type.
    except Exception as error:
        raise ConfigurationError(f"gradients of this model cannot be matched ({error})") from error
    if reached < _REACHED:
        raise ConfigurationError("gradients of this model do not change with its inputs: records cannot be sought")


def _roughness(x: Tensor) -> Tensor:
    """Return (records,) mean differences of neighbouring pixels of images, 0 of other records."""
    if x.ndim < 4 and not (x.ndim == 3 and min(x.shape[1:]) >= _LEAST_SIDE):
        return x.new_zeros(len(x))
    return x.diff(dim=-1).abs().flatten(1).mean(1) + x.diff(dim=-2).abs().flatten(1).mean(1)
