"""Questions by hospital: every hospital has a block of its own in the same sum.

A patient's records at one hospital are counted in that hospital's block alone, so one patient changes the sum by as
much as in the pooled question. The sensitivity and the noise in each number are the same. There are more numbers, and
each has noise. The number of all patients is the sum of the blocks, with the noise of all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from study_protocol.queries.answer import NO_ANSWER, Answer, AnswerTable, NoisedSum, Plot
from study_protocol.queries.question import BaseQuestion
from study_protocol.versions import BLOCKS_BY_HOSPITAL, UNNUMBERED
from study_protocol.wire.values import Name

HOSPITAL: Literal["hospital"] = "hospital"
MAX_HOSPITALS = 1000
ByHospitalOnly = Annotated[
    Literal["hospital"] | None,
    Field(exclude_if=lambda by: by is None, description="hospital: every hospital has numbers of its own"),
]
FOREIGN = (
    "A hospital can write into another hospital's numbers. Under masks it is not seen which one did, and a hospital "
    "can only compare its numbers here with its own records, within the noise."
)


class HospitalQuestion(BaseQuestion):
    """A kind that can be asked by hospital. It defines the sum and the answer of one block.

    hospitals  the roster in the order of the blocks, filled in by the coordinator when the question is asked
    """

    hospitals: Annotated[tuple[Name, ...], Field(max_length=MAX_HOSPITALS)] = Field(
        default=(),
        exclude_if=lambda hospitals: not hospitals,
        description="with by = hospital: who has a block, in rising order. Left out: all members when it is asked",
    )

    @model_validator(mode="after")
    def _has_each_hospital_once(self) -> Self:
        if self.hospitals and not self.is_by_hospital:
            raise ValueError('hospitals: goes with by = "hospital"')
        if list(self.hospitals) != sorted(set(self.hospitals)):
            raise ValueError("hospitals: rising, each once. Leave them out, and the coordinator fills them in")
        return self

    @property
    def is_by_hospital(self) -> bool:
        # Every kind has the entry `by`. Some also take a column there.
        return getattr(self, "by", None) == HOSPITAL

    @property
    @abstractmethod
    def block(self) -> int:
        """Numbers of one hospital's block."""

    @property
    def cells(self) -> int:
        return max(1, len(self.hospitals)) * self.block

    @property
    def hospitals_asked(self) -> tuple[str, ...]:
        return self.hospitals

    @property
    def rounded_cells(self) -> int:
        return self.block

    @property
    def protocol(self) -> int:
        return BLOCKS_BY_HOSPITAL if self.is_by_hospital else UNNUMBERED

    def of_hospitals(self, hospitals: tuple[str, ...]) -> Self:
        if not self.is_by_hospital or self.hospitals:
            return self
        return self.model_validate({**self.model_dump(mode="json"), "hospitals": sorted(hospitals)})

    def placed(self, total: NDArray[np.int64], hospital: str) -> NDArray[np.int64]:
        if not self.hospitals:
            return total
        blocks = np.zeros((len(self.hospitals), self.block), np.int64)
        blocks[self.hospitals.index(hospital)] = total
        return blocks.ravel()

    def assumed(self, patients: int) -> NDArray[np.float64] | None:
        parts = max(1, len(self.hospitals))
        assumed = self.block_assumed(patients)
        return None if assumed is None else np.tile(assumed / parts, parts)

    def block_assumed(self, patients: int) -> NDArray[np.float64] | None:
        """Return an imagined block of so many patients as `assumed`, shape (block,)."""
        return None

    @abstractmethod
    def block_answer(self, noised: NoisedSum) -> Answer:
        """Return the answer of one block."""

    def compared(self, blocks: dict[str, NoisedSum]) -> Answer | None:
        """Return what follows from the blocks of those in the sum beside each other, if the kind compares them."""
        return None

    def _blocks(self, noised: NoisedSum) -> dict[str, NoisedSum]:
        """Return the block of each hospital that is in the sum."""
        rows = noised.total.reshape(len(self.hospitals), -1)
        return {
            hospital: replace(noised, total=row, seed=noised.seed + place)
            for place, (hospital, row) in enumerate(zip(self.hospitals, rows, strict=True), 1)
            if noised.answered is None or hospital in noised.answered
        }

    def answer(self, noised: NoisedSum) -> Answer:
        if not self.hospitals:
            return self.block_answer(noised)
        blocks = self._blocks(noised)
        silent = [hospital for hospital in self.hospitals if hospital not in blocks]
        in_all = np.sum([block.total for block in blocks.values()], axis=0) if blocks else np.zeros(self.block)
        pooled = self.block_answer(replace(noised, total=in_all, std=noised.std * np.sqrt(max(1, len(blocks)))))
        answers = {hospital: self.block_answer(block) for hospital, block in blocks.items()}
        by_hospital = [_joined(table, place, answers, silent) for place, table in enumerate(pooled.tables)]
        between = self.compared(blocks)
        first, more = ((), ()) if between is None else (between.tables, between.notes)
        notes = _notes([pooled, *answers.values()], silent)
        return Answer(tables=(*first, *by_hospital, *pooled.tables), notes=(*notes, *more))

    def who_in_words(self) -> str:
        words = super().who_in_words()
        return f"{words} Every hospital has numbers of its own." if self.is_by_hospital else words


def _notes(answers: list[Answer], silent: list[str]) -> list[str]:
    # Hospitals share most notes. Each stands there once.
    notes = dict.fromkeys([*(note for answer in answers for note in answer.notes), FOREIGN])
    missing = [f"{', '.join(silent)}: {NO_ANSWER}. These patients are in no number here."] if silent else []
    return [*notes, *missing]


def _joined(table: AnswerTable, place: int, answers: dict[str, Answer], silent: list[str]) -> AnswerTable:
    """Return one table of all hospitals. A hospital without an answer has a row that says so, and no number."""
    # A column of the data may be called as ours is.
    columns = tuple(map(_renamed, table.columns))
    labels = next((at for at, name in enumerate(columns) if name in _NUMBERS), 0)
    heads = columns[:labels] or ("who",)
    rows = [
        (hospital, *(row[:labels] or ("patients",)), *row[labels:])
        for hospital, answer in answers.items()
        for row in answer.tables[place].rows
    ]
    no_numbers = (*[NO_ANSWER] * len(heads), *[None] * (len(columns) - labels))
    rows += [(hospital, *no_numbers) for hospital in silent]
    return AnswerTable(
        name=f"{table.name}-by-hospital",
        title=f"{table.title}, by hospital",
        columns=(HOSPITAL, *heads, *columns[labels:]),
        rows=tuple(rows),
        counts=table.counts,
        plot=_plot(table.plot, has_interval=not labels and "low" in columns),
    )


def _plot(pooled: Plot | None, *, has_interval: bool) -> Plot | None:
    """Return the plot of a joined table: a panel for each hospital, or a point with its interval."""
    if pooled is not None:
        by = None if pooled.by is None else _renamed(pooled.by)
        return pooled.model_copy(update={"x": _renamed(pooled.x), "by": by, "panel": HOSPITAL})
    return Plot(kind="points", x=HOSPITAL, y="estimate", low="low", high="high") if has_interval else None


_NUMBERS = frozenset({"estimate", "statistic"})


def _renamed(name: str) -> str:
    return f"column {name}" if name == HOSPITAL else name
