"""Whether the hospitals record alike: missing values, impossible ones, heaping, units, codes. One block each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from study_protocol.cells import read_numbers, read_presence
from study_protocol.queries.answer import ERRORS, ESTIMATE, PATIENTS, Answer, AnswerTable, NoisedSum, rows_of
from study_protocol.queries.by_hospital import HOSPITAL, HospitalQuestion
from study_protocol.queries.counting import Floats, counts, join_estimates, shares_of
from study_protocol.queries.odd_hospitals import (
    TOLERANCE,
    NoisedShare,
    OutsideCount,
    outside_found,
    shares_found,
    together,
)
from study_protocol.queries.phrases import listed
from study_protocol.queries.variables import (
    MISSING,
    Patients,
    Range,
    Variable,
    column_of,
    plain,
    require_columns_once,
)

# Of a patient with an impossible value: the weight of it, and of everything else. Their squares add up to 1.
_OUTSIDE, _ELSE = math.sqrt(63) / 8, 1 / 8
# A sum of squares of rounded numbers stays below 1.
_BELOW = 1 - 2.0**-50
_LEAST_STEPS = 5


class Sites(HospitalQuestion):
    """Of every hospital and column: missing values, impossible ones, round numbers, the upper half of the range.

    A patient's vector has (a, b·s₁, …, b·s_r): s is 1 with a property, -1 without it, 0 where it has no meaning, with
    a² = 1 / (1 + √r) and a² + r·b² = 1, by which the noise of a share is least. A patient with k impossible values has
    √63/8 / √k in the cell of each, and an eighth of the rest. So Δ = 1, whatever the number of columns, and an error
    of coding that one column has shows nearly undiminished.
    """

    kind: Literal["sites"] = Field(description="what is asked")
    variables: Annotated[tuple[Range | Variable, ...], Field(min_length=1, max_length=256)] = Field(
        description="the columns, each with its public range, edges or categories"
    )
    by: Literal["hospital"] = Field(default=HOSPITAL, description="every hospital has numbers of its own")

    @field_validator("variables")
    @classmethod
    def _have_each_column_once(cls, variables: tuple[Range | Variable, ...]) -> tuple[Range | Variable, ...]:
        require_columns_once(variables)
        return variables

    @property
    def block(self) -> int:
        return 1 + len(self._outside) + len(self._properties)

    @property
    def sensitivity(self) -> float:
        return 1.0

    @property
    def whole(self) -> bool:
        return False

    @property
    def columns(self) -> tuple[str, ...]:
        return self.with_conditions(*(variable.column for variable in self.variables))

    @property
    def _outside(self) -> list[_Cell]:
        return [cell for variable in self.variables for cell in _outside_of(variable)]

    @property
    def _properties(self) -> list[_Cell]:
        return [cell for variable in self.variables for cell in _properties_of(variable)]

    @property
    def _weights(self) -> tuple[float, float]:
        """a and b."""
        root = math.sqrt(len(self._properties))
        return _BELOW / math.sqrt(1 + root), _BELOW / math.sqrt(root * (1 + root))

    def total(self, patients: Patients, spacing: float) -> NDArray[np.int64]:
        included, (a, b) = self.included(patients), self._weights
        read = [_Read.of(variable, patients) for variable in self.variables]
        outside = [mask[included] for column in read for mask in column.outside]
        times = np.sum(outside, axis=0, dtype=np.float64) if outside else np.zeros(int(included.sum()))
        common = np.where(times > 0, _ELSE, 1.0) * _BELOW
        outside_weight = _OUTSIDE * _BELOW / np.sqrt(np.maximum(times, 1.0))
        signs = [sign[included] for column in read for sign in column.signs]
        vectors = [a * common, *(mask * outside_weight for mask in outside), *(b * sign * common for sign in signs)]
        # Whole numbers before they are added: a sum of floats is rounded above 2⁵³.
        return np.array([np.rint(cells / spacing).astype(np.int64).sum() for cells in vectors], np.int64)

    def block_answer(self, noised: NoisedSum) -> Answer:
        outside, shares, patients = self._outside, self._shares(noised), self._patients(noised)
        everybody = counts(np.array([patients.patients]), np.array([patients.patients_variance]))
        sums = self._outside_sums(noised)
        cells = counts(sums, np.full(len(sums), (noised.std / _OUTSIDE) ** 2))
        rates = join_estimates(
            [
                shares_of(
                    np.array([(share.difference + share.patients) / 2]),
                    np.array([share.value * max(share.patients, 0.0)]),
                    share.patients,
                    (share.difference_variance + share.patients_variance) / 4,
                    share.patients_variance / 2,
                    share.patients_variance,
                )
                for share in shares
            ]
        )
        impossible = AnswerTable(
            name="outside",
            title="patients with values that were not declared",
            columns=("column", "what", ESTIMATE, *ERRORS),
            rows=rows_of([(cell.column, cell.label) for cell in outside], cells.estimate, *cells.errors),
            counts=ESTIMATE,
        )
        share_table = AnswerTable(
            name="shares",
            title="shares of patients",
            columns=("column", "what", ESTIMATE, *ERRORS),
            rows=rows_of([(cell.column, cell.label) for cell in self._properties], rates.estimate, *rates.errors),
        )
        size = AnswerTable(
            name="patients",
            title="patients in all (one with an undeclared value counts an eighth)",
            columns=(ESTIMATE, *ERRORS),
            rows=rows_of([()], everybody.estimate, *everybody.errors),
            counts=ESTIMATE,
        )
        return Answer(tables=(*((impossible,) if outside else ()), share_table, size))

    def compared(self, blocks: dict[str, NoisedSum]) -> Answer:
        impossible = [_impossible_found(*finding) for finding in self._with_impossible_values(blocks)]
        # Their other numbers are of selected patients, so that a difference there would be no second finding.
        unsure = {row[0] for row, _ in impossible}
        findings = impossible + [_share_found(*finding) for finding in self._with_other_shares(blocks, unsure)]
        min_patients = max((block.suppress_below for block in blocks.values()), default=0)
        notes = _sentences(findings, unsure, min_patients)
        table = AnswerTable(
            name="findings",
            title="what stands out",
            columns=(HOSPITAL, "column", "what", PATIENTS, "share", "elsewhere", "chance"),
            rows=tuple(row for row, _ in findings),
            counts=PATIENTS,
        )
        return Answer(tables=(table,), notes=(*notes, _LEVEL) if findings else (_NOTHING,))

    def in_words(self) -> str:
        columns = listed(variable.column for variable in self.variables)
        return (
            "How many values are missing, outside of what was declared, round, or in the upper half, in "
            f"{columns}, of patients{self.who_in_words()}"
        )

    def _with_impossible_values(self, blocks: dict[str, NoisedSum]) -> Iterator[tuple[str, _Cell, OutsideCount, float]]:
        sums = {name: self._outside_sums(block) for name, block in blocks.items()}
        tolerated = {name: TOLERANCE * self._everybody(block) for name, block in blocks.items()}
        cells = self._outside
        outside_counts = [
            {name: OutsideCount(sums[name][i], block.std / _OUTSIDE, tolerated[name]) for name, block in blocks.items()}
            for i in range(len(cells))
        ]
        for finding in outside_found(list(outside_counts)):
            yield finding.hospital, cells[finding.cell], outside_counts[finding.cell][finding.hospital], finding.chance

    def _with_other_shares(
        self, blocks: dict[str, NoisedSum], unsure: set[str]
    ) -> Iterator[tuple[str, _Cell, NoisedShare, float, float]]:
        blocks = {name: block for name, block in blocks.items() if name not in unsure}
        sums, cells = {name: self._shares(block) for name, block in blocks.items()}, self._properties
        shares = [{name: sums[name][place] for name in blocks} for place in range(len(cells))]
        odd_hospitals: dict[int, set[str]] = {}
        for finding in shares_found(list(shares)):
            before = odd_hospitals.setdefault(finding.cell, set())
            before.add(finding.hospital)
            cell_shares = shares[finding.cell]
            yield (
                finding.hospital,
                cells[finding.cell],
                cell_shares[finding.hospital],
                together(cell_shares, before).value,
                finding.chance,
            )

    def _patients(self, noised: NoisedSum) -> NoisedShare:
        a, _ = self._weights
        return NoisedShare(0.0, float(noised.total[0]) / a, 0.0, (noised.std / a) ** 2)

    def _everybody(self, noised: NoisedSum) -> float:
        """Return the number of patients, those with an impossible value in the most frequent cell counted in full."""
        return self._patients(noised).patients + (1 - _ELSE) * max([0.0, *self._outside_sums(noised).tolist()])

    def _outside_sums(self, noised: NoisedSum) -> Floats:
        return noised.total[1 : 1 + len(self._outside)] / _OUTSIDE

    def _shares(self, noised: NoisedSum) -> list[NoisedShare]:
        """Return the share of patients with each property, of those with a value where it needs one."""
        _, b = self._weights
        everybody, variance = self._patients(noised), (noised.std / b) ** 2
        sums = (noised.total[1 + len(self._outside) :] / b).tolist()
        shares: list[NoisedShare] = []
        present = everybody
        for cell, difference in zip(self._properties, sums, strict=True):
            if cell.label == MISSING:
                # Those with a value: half of all, less half of the difference.
                present = _with_a_value(everybody, difference, variance)
                shares.append(NoisedShare(difference, everybody.patients, variance, everybody.patients_variance))
            else:
                shares.append(NoisedShare(difference, present.patients, variance, present.patients_variance))
        return shares


def _with_a_value(everybody: NoisedShare, missing: float, variance: float) -> NoisedShare:
    """Return the number of those with a value. missing: patients without one less those with one."""
    return NoisedShare(0.0, (everybody.patients - missing) / 2, 0.0, (everybody.patients_variance + variance) / 4)


_Row = tuple[str, str, str, float, float | None, float | None, float]


def _impossible_found(hospital: str, cell: _Cell, outside: OutsideCount, chance: float) -> tuple[_Row, str]:
    """Return the row of a finding and its sentence."""
    row = (hospital, cell.column, cell.label, outside.count, None, None, chance)
    return row, _impossible_in_words(hospital, cell, outside, chance)


def _share_found(hospital: str, cell: _Cell, share: NoisedShare, elsewhere: float, chance: float) -> tuple[_Row, str]:
    patients = share.value * max(share.patients, 0.0)
    words = f"{share.value:.0%} of patients, elsewhere for {elsewhere:.0%}{_by_chance(chance)}"
    row = (hospital, cell.column, cell.label, patients, share.value, elsewhere, chance)
    return row, f"{hospital}: {cell.column} {cell.words} for {words}"


def _sentences(findings: list[tuple[_Row, str]], unsure: set[str], min_patients: float) -> list[str]:
    """Return the sentences of the rows that are shown. A row that is not shown has none."""
    visible = [(row[0], sentence) for row, sentence in findings if row[3] >= min_patients]
    sentences = [sentence for _, sentence in visible]
    if hospitals := sorted(unsure & {hospital for hospital, _ in visible}):
        sentences.append(f"{listed(hospitals)}: {_UNSURE}")
    return sentences


def _impossible_in_words(hospital: str, cell: _Cell, outside: OutsideCount, chance: float) -> str:
    interval = counts(np.array([outside.count]), np.array([outside.std**2]))
    return (
        f"{hospital}: {cell.column} {cell.words} for about {outside.count:.0f} patients ({interval.low[0]:.0f} to "
        f"{interval.high[0]:.0f}), and hardly any should be{_by_chance(chance)}"
    )


def _by_chance(chance: float) -> str:
    odds = 1 / max(chance, 1e-9)
    return f". By chance: less than 1 in {10 ** math.floor(math.log10(odds)):,}."


_LEVEL = (
    "Where no hospital records in another way, something stands out in at most 1 of 20 such questions. A hospital that "
    "stands out may have other patients and no error: look there."
)
_UNSURE = (
    "patients with values that were not declared hardly count in the shares, which are not compared. Ask again once "
    "they are right."
)
_NOTHING = "No hospital stands out. With this noise, only differences of many patients would."


@dataclass(frozen=True)
class _Cell:
    """One number of a block. words: after the column's name and before a number of patients."""

    column: str
    label: str
    words: str


@dataclass(frozen=True, repr=False)
class _Read:
    """One column: of every patient whether each impossible value is there, and 1, -1 or 0 for each property."""

    outside: list[NDArray[np.bool_]]
    signs: list[Floats]

    @staticmethod
    def of(variable: Range | Variable, patients: Patients) -> _Read:
        column = column_of(patients, variable.column)
        if isinstance(variable, Range):
            numbers = read_numbers(column, variable.missing_values).values
            missing, steps = np.isnan(numbers), numbers / _step(variable)
            signs = [missing, numbers >= variable.middle, np.abs(steps - np.rint(steps)) <= 1e-9 * np.abs(steps)]
            return _Read([numbers < variable.low, numbers > variable.high], _signs(missing, signs))
        if variable.presence:
            missing = read_presence(column, variable.missing_values).astype(bool)
            return _Read([], _signs(missing, [missing]))
        places = variable.places(patients)
        missing = places == len(variable.labels) - 1
        if variable.categories is None:
            return _Read([], _signs(missing, [missing, places >= _half(variable)]))
        listed_ones = places < len(variable.categories)
        later = listed_ones & (places >= _half(variable))
        return _Read([~listed_ones & ~missing], _signs(missing, [missing, later]))


def _signs(missing: NDArray[np.bool_], properties: list[NDArray[np.bool_]]) -> list[Floats]:
    first, *rest = (np.where(has, 1.0, -1.0) for has in properties)
    return [first, *(np.where(missing, 0.0, sign) for sign in rest)]


def _outside_of(variable: Range | Variable) -> Iterator[_Cell]:
    if isinstance(variable, Range):
        low, high = plain(variable.low), plain(variable.high)
        yield _Cell(variable.column, f"below {low}", f"is below {low}")
        yield _Cell(variable.column, f"above {high}", f"is above {high}")
    elif variable.categories is not None:
        yield _Cell(variable.column, "none of its categories", "has a value that is none of its categories")


def _properties_of(variable: Range | Variable) -> Iterator[_Cell]:
    yield _Cell(variable.column, MISSING, "is missing")
    if isinstance(variable, Range):
        middle, step = plain(variable.middle), plain(_step(variable))
        yield _Cell(variable.column, f"at least {middle}", f"is {middle} or more")
        yield _Cell(variable.column, f"a multiple of {step}", f"is a multiple of {step}")
    elif variable.edges is not None:
        edge = plain(variable.edges[_half(variable) - 1])
        yield _Cell(variable.column, f"at least {edge}", f"is {edge} or more")
    elif variable.categories is not None:
        names = listed(variable.categories[_half(variable) :], "or")
        yield _Cell(variable.column, names, f"is {names}")


def _half(variable: Variable) -> int:
    """Return the first place of the later half of the bins or categories."""
    if variable.edges is not None:
        return (len(variable.edges) + 1) // 2
    return len(variable.categories or ()) // 2


def _step(number: Range) -> float:
    """Return the power of ten whose multiples are round: the largest that fits into the range five times."""
    return 10.0 ** math.floor(math.log10((number.high - number.low) / _LEAST_STEPS))
