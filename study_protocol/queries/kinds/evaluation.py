"""How good a released model is on patients that were set aside for evaluation."""

from __future__ import annotations

import itertools
import math
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from accounting.plan.queries import Bears
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.centred import CENTRE, Centred, centred_where_open, protocol_of
from study_protocol.queries.counting import Floats, counts
from study_protocol.queries.evaluation import calibration
from study_protocol.queries.evaluation.binary import read_scores
from study_protocol.queries.evaluation.calibration import Recalibration
from study_protocol.queries.evaluation.classes import read_classes
from study_protocol.queries.evaluation.numbers import NumberScales, read_numbers
from study_protocol.queries.first_record import FirstRecord
from study_protocol.queries.groups import Partition, evenly, places_of, size_of, sums_by_group
from study_protocol.queries.kinds.table import require_columns_once
from study_protocol.queries.kinds.tables import root_up
from study_protocol.queries.phrases import listed, variable_in_words
from study_protocol.queries.question import BaseQuestion
from study_protocol.queries.tree import Tree
from study_protocol.queries.variables import LARGEST, NARROWEST, Patients, Places, UnreadableColumn, Variable, plain
from study_protocol.versions import MONITORING
from study_protocol.wire.values import Finite, Positive, Probability, Whole

# Beside the columns of the hospital's table. A control character can be in no column's name.
PREDICTION, OUTCOME = "\x00prediction", "\x00outcome"
MAX_BINS = 256
# More bins form a tree: areas and accuracy are sums of many bins, which it makes exact.
FLAT_BINS = 8
MAX_CLASSES = 64
# Each has its own figures and simulations: a coordinator makes an answer in minutes, not in hours.
MAX_GROUPS = 256
_NUMBERS = 5
_SPECIFIC_FIELDS = {
    "binary": ("bins", "edges", "calibration", "centre"),
    "classes": ("classes",),
    "number": ("low", "high", "largest_error"),
}


class Evaluation(BaseQuestion):
    """How good a released model is: of every patient its prediction and the outcome, by group.

    binary   one-hot of (group × outcome × bin of the predicted probability). Above 8 bins they form a tree of
             `Tree.levels` levels, in each of which a patient is counted once: Δ = √levels
    classes  one-hot of (group × class of the outcome × class predicted): Δ = 1
    number   (1, y, 1 - y², e, e²) by group. y is the outcome in [low, high] scaled to [-1, 1], and e the prediction
             minus it over largest_error, both clipped: Δ = 2, because y² + (1 - y²)² ≤ 1 and e² + e⁴ ≤ 2. With
             `centred` it has e² - ½ in place of e²: Δ = √3.25, because e² + (e² - ½)² ≤ 5/4 (module `centred`)

    With `calibration` w, binary has two numbers more, of norm w at most: Δ = √(levels + w²) (module
    `calibration`).

    Several partitions (`apart`): Δ is √partitions times that. A patient whose prediction or outcome cannot be used is
    counted in the last cell alone. Such a value is a prediction that is not a number, an outcome that is not finite, or
    neither 0 nor 1 (binary), or a class that is none of 0 … classes - 1. A probability beyond [0, 1] counts as 0 or 1.
    """

    kind: Literal["evaluation"] = Field(description="what is asked")
    model: Annotated[Whole, Field(ge=0, le=2**31 - 1)] = Field(description="number of the released model")
    prediction: Literal["binary", "classes", "number"] = Field(
        description="it predicts the probability of outcome 1, one of several classes, or a number"
    )
    groups: Annotated[tuple[Variable, ...], Field(max_length=8)] = Field(
        default=(), description="also evaluated for each of these groups, crossed"
    )
    apart: bool = Field(
        default=False,
        description="groups of each column by itself: Δ is √columns times as large",
        strict=True,
    )
    bins: Annotated[Whole, Field(ge=2, le=MAX_BINS)] | None = Field(
        default=None, description="binary: so many equal bins of the probability"
    )
    edges: Annotated[tuple[Finite, ...], Field(min_length=1, max_length=MAX_BINS - 1)] | None = Field(
        default=None, description="binary, instead of bins: where they end inside (0, 1), rising. Neither: 0.5"
    )
    classes: Annotated[Whole, Field(ge=2, le=MAX_CLASSES)] | None = Field(
        default=None, description="classes: how many there are"
    )
    low: Finite | None = Field(default=None, description="number: smaller outcomes count as this one")
    high: Finite | None = Field(default=None, description="number: larger outcomes count as this one")
    largest_error: Positive | None = Field(default=None, description="number: larger errors count as this one")
    centred: Centred = False
    calibration: Annotated[Positive, Field(ge=0.1, le=10)] | None = Field(
        default=None,
        exclude_if=lambda weight: weight is None,
        description="binary: also ask for the calibration slope, with this weight beside the bins, such as 2. Δ grows "
        "to √(1 + weight²)",
    )
    centre: Probability | None = Field(
        default=None,
        exclude_if=lambda centre: centre is None,
        description="with calibration: a usual probability, such as 1.5 times the share with the outcome",
    )
    first_record: FirstRecord | None = Field(
        default=None,
        exclude_if=lambda window: window is None,
        description="only of patients whose first record lies in these days. Set by the schedule of [monitoring]",
    )

    @model_validator(mode="after")
    def _says_what_it_needs(self) -> Self:
        self._require_fields()
        require_columns_once(self.groups)
        if sum(map(size_of, self.partitions)) > MAX_GROUPS:
            raise ValueError(f"groups: at most {MAX_GROUPS}, those of other and missing values among them")
        self._require_sound_bins()
        self._require_sound_range()
        self._require_sound_calibration()
        return self

    def _require_fields(self) -> None:
        needed, stated = _SPECIFIC_FIELDS[self.prediction], self._stated_fields()
        if odd := [name for name in stated if name not in needed]:
            raise ValueError(f"{odd[0]}: is not for predictions of the form {self.prediction}")
        lacking = [name for name in needed if name not in stated]
        if lacking and self.prediction != "binary":
            raise ValueError(f"{lacking[0]}: is needed for predictions of the form {self.prediction}")
        if self.centred and self.prediction != "number":
            raise ValueError(f"centred: is not for predictions of the form {self.prediction}, which sum no squares")

    def _stated_fields(self) -> list[str]:
        names = itertools.chain.from_iterable(_SPECIFIC_FIELDS.values())
        return [name for name in names if getattr(self, name) is not None]

    def _require_sound_bins(self) -> None:
        if self.bins is not None and self.edges is not None:
            raise ValueError("bins: has bins or edges, not both")
        ends = (0.0, *(self.edges or ()), 1.0)
        if any(low >= high for low, high in itertools.pairwise(ends)):
            raise ValueError("edges: rise from one to the next, all above 0 and below 1")

    def _require_sound_calibration(self) -> None:
        if (self.calibration is None) != (self.centre is None):
            raise ValueError("calibration and centre come together")
        if self.calibration is not None and (self.groups or self.apart):
            raise ValueError("groups: a question with calibration is of all patients together")

    def _require_sound_range(self) -> None:
        if self.low is None or self.high is None or self.largest_error is None:
            return
        if not self.low < self.high:
            raise ValueError("low: is below high")
        widths = (self.high - self.low, self.largest_error)
        if max(abs(self.low), abs(self.high), self.largest_error) > LARGEST or min(widths) < NARROWEST:
            raise ValueError(f"low, high, largest_error: lie within ±{LARGEST:g}, ranges at least {NARROWEST:g} wide")

    @property
    def model_number(self) -> int:
        return self.model

    @property
    def bears(self) -> Bears:
        return "evaluated"

    @property
    def whole(self) -> bool:
        return self.prediction != "number" and self.calibration is None

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple((variable,) for variable in self.groups) if self.apart and self.groups else (self.groups,)

    @property
    def ends(self) -> tuple[float, ...]:
        """Ends of the bins of a probability, 0 and 1 included."""
        if self.bins is not None:
            return tuple(place / self.bins for place in range(self.bins + 1))
        return (0.0, *(self.edges or (0.5,)), 1.0)

    @property
    def tree(self) -> Tree:
        return Tree(len(self.ends) - 1, flat=FLAT_BINS)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one group's numbers."""
        if self.prediction == "binary":
            return 2, sum(self.tree.sizes)
        return (self.classes or 0, self.classes or 0) if self.prediction == "classes" else (_NUMBERS,)

    @property
    def recalibration(self) -> Recalibration | None:
        if self.calibration is None or self.centre is None:
            return None
        return Recalibration(self.calibration, self.centre, self.ends)

    @property
    def cells(self) -> int:
        more = 0 if self.calibration is None else calibration.CELLS
        return sum(map(size_of, self.partitions)) * math.prod(self.shape) + more + 1

    @property
    def rounded_cells(self) -> int:
        return self.cells if self.calibration is None else calibration.CELLS

    @property
    def sensitivity(self) -> float:
        if self.calibration is not None:
            # Squares and the root round by less than the factor.
            return math.sqrt(self.tree.levels + self.calibration**2) * (1 + 2.0**-50)
        quarters = {"binary": 4 * self.tree.levels, "classes": 4, "number": 13 if self.centred else 16}[self.prediction]
        # Half of a float is exact.
        return root_up(len(self.partitions) * quarters) / 2

    @property
    def protocol(self) -> int:
        return (
            MONITORING if self.calibration is not None or self.first_record is not None else protocol_of(self.centred)
        )

    def in_form_for(self, protocol: int) -> Self:
        return centred_where_open(self, protocol) if self.prediction == "number" else self

    @property
    def columns(self) -> tuple[str, ...]:
        window = () if self.first_record is None else (self.first_record.column,)
        return self.with_conditions(*(variable.column for variable in self.groups), *window)

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included = self.included(patients)
        predicted, outcome = (_of_the_model(patients, name)[included] for name in (PREDICTION, OUTCOME))
        usable = self._usable(predicted, outcome)
        parts: list[NDArray[np.int64]] = []
        for partition in self.partitions:
            groups = places_of(partition, patients, len(included))[included][usable]
            parts.append(self._summed(predicted[usable], outcome[usable], groups, size_of(partition), spacing).ravel())
        if self.recalibration is not None:
            rows = self.recalibration.vectors(predicted[usable], outcome[usable])
            parts.append(np.rint(rows / spacing).astype(np.int64).sum(axis=0))
        unusable = int((~usable).sum()) * round(1 / spacing)
        return np.concatenate([*parts, np.array([unusable], np.int64)])

    def _usable(self, predicted: Floats, outcome: Floats) -> NDArray[np.bool_]:
        if self.prediction == "binary":
            return ~np.isnan(predicted) & np.isin(outcome, (0.0, 1.0))
        if self.prediction == "number":
            return ~np.isnan(predicted) & np.isfinite(outcome)
        classes = np.arange(self.classes or 0)
        return np.isin(predicted, classes) & np.isin(outcome, classes)

    def _summed(
        self, predicted: Floats, outcome: Floats, groups: Places, count: int, spacing: float
    ) -> NDArray[np.int64]:
        """Return the usable patients' vectors, in grid steps, shape (count, *shape)."""
        if self.prediction == "number":
            sums = np.zeros((count, _NUMBERS), np.int64)
            np.add.at(sums, groups, np.rint(self._vectors(predicted, outcome) / spacing).astype(np.int64))
            return sums
        if self.prediction == "classes":
            places = (groups, outcome.astype(np.int64), predicted.astype(np.int64))
            return counted_in(places, (count, *self.shape)) * round(1 / spacing)
        bins = np.searchsorted(self.ends[1:-1], np.clip(predicted, 0.0, 1.0), side="right")
        places = (groups, outcome.astype(np.int64), bins.astype(np.int64))
        return self.tree.grown(counted_in(places, (count, 2, self.tree.leaves))) * round(1 / spacing)

    def _vectors(self, predicted: Floats, outcome: Floats) -> Floats:
        """Return 1, y, 1 - y², e and e² (less ½ if centred) of each patient, shape (n, 5)."""
        low, high, largest = self._range
        clipped = np.clip(outcome, low, high)
        # Halves: the difference of the largest floats overflows, and infinity is clipped as well.
        error = np.clip((predicted / 2 - clipped / 2) / (largest / 2), -1.0, 1.0)
        y = np.clip((clipped - (low + high) / 2) / ((high - low) / 2), -1.0, 1.0)
        return np.stack([np.ones_like(y), y, 1 - y * y, error, error * error - self._centre], axis=1)

    @property
    def _centre(self) -> float:
        return CENTRE if self.centred else 0.0

    @property
    def _range(self) -> tuple[float, float, float]:
        return self.low or 0.0, self.high or 0.0, self.largest_error or 1.0

    def assumed(self, patients: int) -> NDArray[np.float64]:
        """Return assumed sums with as many patients in each group.

        Probabilities are spread evenly and right on average. All classes are as frequent, and 3 of 4 are right. Numbers
        as outcomes are spread evenly, and errors have a quarter of the largest as deviation.
        """
        parts = [evenly(partition, patients)[:, None] * self._assumed().ravel() for partition in self.partitions]
        more = np.zeros(0)
        if self.recalibration is not None:
            ends = np.array(self.ends)
            more = patients * self.recalibration.assumed((ends[:-1] + ends[1:]) / 2, np.diff(ends))
        return np.concatenate([*(part.ravel() for part in parts), more, [0.0]])

    def _assumed(self) -> Floats:
        """Return the average vector of one patient, shape (*shape)."""
        if self.prediction == "number":
            return np.array([1.0, 0.0, 2 / 3, 0.0, 1 / 16 - self._centre])
        if self.prediction == "classes":
            count = self.classes or 1
            wrong = np.full(self.shape, 1 / 4 / (count - 1) / count)
            return np.where(np.eye(count) > 0, 3 / 4 / count, wrong)
        ends = np.array(self.ends)
        middles, widths = (ends[:-1] + ends[1:]) / 2, np.diff(ends)
        return self.tree.grown(np.stack([(1 - middles) * widths, middles * widths]))

    def answer(self, noised: NoisedSum) -> Answer:
        sizes = [size_of(partition) * math.prod(self.shape) for partition in self.partitions]
        *parts, last = np.split(noised.total, np.cumsum(sizes))
        scores, unusable = last[:-1], last[-1:]
        shaped = [part.reshape(-1, *self.shape) for part in parts]
        left_out = counts(unusable, np.array([noised.std**2]))
        if self.prediction == "binary":
            shaped = [self.tree.least_squares(part) for part in shaped]
        sums = sums_by_group(self.partitions, shaped, noised.std)
        if self.prediction == "binary":
            more = None if self.recalibration is None else (self.recalibration, scores)
            return read_scores(sums, self.tree, self.ends, left_out, noised.generator(), more)
        if self.prediction == "classes":
            return read_classes(sums, left_out, noised.generator())
        return read_numbers(sums, NumberScales(*self._range, self._centre), left_out, noised.generator())

    def in_words(self) -> str:
        groups = [variable_in_words(variable) for variable in self.groups]
        by = f", by {listed(groups)}{', each by itself' if self.apart and len(groups) > 1 else ''}" if groups else ""
        window = "" if self.first_record is None else f" {self.first_record.in_words()}"
        patients = f"of patients{window}{self.who_in_words()}"
        return f"How good model {self.model} of this study is: {self._asked_in_words()}{by}, {patients}"

    def _asked_in_words(self) -> str:
        if self.prediction == "number":
            low, high, largest = (plain(bound) for bound in self._range)
            return (
                f"mean and spread of the outcome (clipped to {low} to {high}) and of the error of its prediction "
                f"(clipped to {largest} in size)"
            )
        if self.prediction == "classes":
            return f"how many patients there are by outcome and prediction ({self.classes} classes each)"
        inner = ", ".join(plain(end) for end in self.ends[1:-1])
        bins = f"{len(self.ends) - 1} equal bins" if self.bins is not None else f"bins that end at {inner}"
        slope = "" if self.calibration is None else ", and sums of p - y for the calibration slope"
        return f"how many patients there are by outcome (yes, no) and predicted probability ({bins}){slope}"


def counted_in(places: tuple[Places, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return how many patients are in each cell, with this shape. places: (n,) of each axis."""
    return np.bincount(np.ravel_multi_index(places, shape), minlength=math.prod(shape)).astype(np.int64).reshape(shape)


def _of_the_model(patients: Patients, name: str) -> Floats:
    """Raises UnreadableColumn: no model was run."""
    if name not in patients:
        raise UnreadableColumn("a model is evaluated on its predictions, and there are none")
    return patients[name].astype(np.float64)
