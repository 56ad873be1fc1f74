"""A question: the patients it asks about, one patient's part of the sum, and the noise of the sum.

A question says public things only. The common part of all kinds is here. `kinds` has one file for each of them.
"""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from accounting.plan.queries import Bears, QueryCost
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.phrases import who_in_words
from study_protocol.queries.variables import Condition, Patients, UnreadableColumn
from study_protocol.versions import UNNUMBERED
from study_protocol.wire.signing import canonical_json
from study_protocol.wire.text import Text
from study_protocol.wire.values import Finite, Message

MAX_CELLS = 1 << 17
# Within these bounds 2³¹ patients on the finest grid are less than 2⁶³ steps.
MIN_NOISE, MAX_NOISE = 1e-3, 1e6
# Steps of the grid to the standard deviation of the noise: so many that the discrete law is as good as the continuous
# one in every account, for every limit and any number of cells.
_STD_STEPS = 2.0**20
# Rounding a vector adds 2⁻¹⁵ of its sensitivity at most.
_ROUNDING_BITS = 14


@dataclass(frozen=True)
class Grid:
    """The public grid of one question's sum.

    spacing      a power of two, on the scale of one patient's vector
    sensitivity  Δ′ in grid steps, rounded up. The L2 norm of one patient's rounded vector is at most this
    std          s in grid steps, the noise that is sure to be in the sum: noise_multiplier · Δ′, rounded up
    """

    spacing: float
    sensitivity: float
    std: float


class BaseQuestion(Message):
    """The common fields of every question.

    A kind adds its own fields and defines `cells`, `sensitivity`, `columns`, `total`, `answer`.
    """

    title: Annotated[Text, Field(max_length=200)] = Field(default="", description="for people")
    noise_multiplier: Finite = Field(
        ge=MIN_NOISE,
        le=MAX_NOISE,
        description="standard deviation of the whole noise / the most that one patient changes. More: less ε",
    )
    where: Annotated[tuple[Condition, ...], Field(max_length=16)] = Field(
        default=(), description="only patients that meet all of these. Left out: all patients"
    )
    rows: Literal["first", "last", "mean", "any"] = Field(
        default="first",
        description="of a patient with several: first, last, the mean of numbers (first of categories), or any: the "
        "largest number, the category last in the question's list",
    )

    @model_validator(mode="after")
    def _is_of_bounded_size(self) -> Self:
        if self.cells > MAX_CELLS:
            raise ValueError(f"the question has {self.cells} cells, and at most {MAX_CELLS} are allowed")
        return self

    @property
    @abstractmethod
    def cells(self) -> int:
        """Numbers in the sum."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Δ, rounded up: the L2 norm of one patient's vector is at most this."""

    @property
    def whole(self) -> bool:
        """Whether every patient's vector is of whole numbers, so that no rounding is needed."""
        return True

    @property
    def bears(self) -> Bears:
        """The level that bears the loss."""
        return "all"

    @property
    def protocol(self) -> int:
        """The least number of the protocol with which a program reads the question."""
        return UNNUMBERED

    def in_form_for(self, protocol: int) -> Self:
        """Return the question in the form that needs the least noise, where its document leaves the form open.

        Args:
            protocol: the number that all programs of the study speak.
        """
        return self

    @property
    def is_by_hospital(self) -> bool:
        """Whether every hospital has a block of its own in the sum."""
        return False

    @property
    def hospitals_asked(self) -> tuple[str, ...]:
        """The hospitals of the blocks, in order. Empty: one block for all, or not filled in yet."""
        return ()

    def of_hospitals(self, hospitals: tuple[str, ...]) -> Self:
        """Return the question with these blocks, if it is by hospital and its document leaves them open."""
        return self

    def placed(self, total: NDArray[np.int64], hospital: str) -> NDArray[np.int64]:
        """Return a hospital's sum in its block of the whole vector, zeros elsewhere: (block,) to (cells,)."""
        return total

    def at_hospital(self, hospital: str) -> Self:
        """Return the question as this hospital computes its sum, where that depends on which one it is."""
        return self

    @property
    def sums(self) -> int:
        """How many sums an approval covers: this question and those that follow from it."""
        return 1

    @property
    def least_noise(self) -> float:
        """The smallest noise multiplier of any of these sums."""
        return self.noise_multiplier

    def costs_after(self) -> tuple[QueryCost, ...]:
        """Return the costs of all questions that follow from this one, from public numbers."""
        return ()

    def next_question(self, answer: Answer) -> Self | None:
        """Return the question that follows from this one's published answer, by a public rule. None: it is the last."""
        return None

    def approved_form(self) -> Self:
        """Return the question as people at a hospital approve it: the same for all that follow from the first."""
        return self

    @property
    def rounded_cells(self) -> int:
        """Numbers of one patient's vector that may need rounding."""
        return self.cells

    @property
    def model_number(self) -> int | None:
        """The released model that a hospital runs on its patients first, or None without a model."""
        return None

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """Every column that is read, those of `where` among them, each once."""

    @abstractmethod
    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        """Return the sum over patients of their vectors, each rounded to the grid, in grid steps.

        The shape is (cells,), or (block,) of a question by hospital.

        Raises:
            UnreadableColumn: a column is not what is asked for.
        """

    @abstractmethod
    def answer(self, noised: NoisedSum) -> Answer:
        """Return the answer of the noised sum."""

    @abstractmethod
    def in_words(self) -> str:
        """Return the question in a sentence for a person who decides whether to answer."""

    def assumed(self, patients: int) -> NDArray[np.float64] | None:
        """Return an imagined sum over so many patients, to say how exact an answer will be, shape (cells,).

        None: the kind does not say.
        """
        return None

    def assumed_last(self, patients: int) -> Self:
        """Return the question whose answer is the result, were the answers before it those of the imagined sums."""
        return self

    def grid(self) -> Grid:
        """Return the grid of the sum and its noise."""
        coarsest = self.noise_multiplier * self.sensitivity / _STD_STEPS
        if self.whole:
            # One patient is a whole number of steps, so that no rounding is needed.
            spacing = 2.0 ** min(0, math.floor(math.log2(coarsest)))
            rounding = 0.0
        else:
            fine = self.sensitivity * 2.0**-_ROUNDING_BITS / math.sqrt(self.rounded_cells)
            spacing = 2.0 ** math.floor(math.log2(min(coarsest, fine)))
            rounding = math.sqrt(self.rounded_cells) / 2
        sensitivity = _up(self.sensitivity / spacing + rounding)
        return Grid(spacing, sensitivity, _up(self.noise_multiplier * sensitivity))

    def who_in_words(self) -> str:
        """Return the patients that it is about, and which row of each, in words."""
        return who_in_words(self.where, self.rows)

    def with_conditions(self, *columns: str) -> tuple[str, ...]:
        """Return these columns and those of `where`, each once."""
        return tuple(dict.fromkeys([*(condition.column for condition in self.where), *columns]))

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the canonical JSON, over which an assignment is signed."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json"))).hexdigest()

    def included(self, patients: Patients) -> NDArray[np.bool_]:
        """Return the patients that meet every condition of `where`, shape (n,).

        Raises:
            UnreadableColumn: the table lacks a column, also without a condition, so that no column says how many there
                are.
        """
        if not patients:
            raise UnreadableColumn("a table without columns does not say how many patients it has")
        keep = np.ones(len(next(iter(patients.values()))), bool)
        for condition in self.where:
            keep &= condition.holds(patients)
        return keep


def _up(value: float) -> float:
    # Two relative ulps cover the roundings above.
    return math.nextafter(value * (1 + 2.0**-51), math.inf)
