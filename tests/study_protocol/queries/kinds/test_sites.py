"""Whether hospitals record alike: one patient's vector by hand, shares without noise, planted errors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from server.domain.queries import answer_of
from study_protocol.queries.answer import Answer, NoisedSum
from study_protocol.queries.kinds.sites import Sites
from study_protocol.queries.ready import READY
from study_protocol.study.queries import QueryDocument, QueryNoise
from tests.factories.questions import exact, question

COLUMNS: list[dict[str, Any]] = [
    {"column": "weight", "low": 30, "high": 130},
    {"column": "sex", "categories": ["f", "m"]},
    {"column": "seen", "presence": True},
]
# weight: missing, at least 80, a multiple of 10. sex: missing, m. seen: missing.
PROPERTIES = 6
A, B = 1 / math.sqrt(1 + math.sqrt(PROPERTIES)), 1 / math.sqrt(math.sqrt(PROPERTIES) * (1 + math.sqrt(PROPERTIES)))
NAMES = ("east", "north", "south", "west")


def sites(**entries: Any) -> Sites:
    asked = question({"kind": "sites", "variables": COLUMNS} | entries)
    assert isinstance(asked, Sites)
    return asked


def patients(weights: list[float], sexes: list[str | None], seen: list[str | None]) -> dict[str, NDArray[Any]]:
    return {"weight": np.array(weights), "sex": np.array(sexes, object), "seen": np.array(seen, object)}


@pytest.mark.parametrize(
    ("weight", "sex", "seen", "outside", "signs"),
    [
        (70.0, "m", "x", [0, 0, 0], [-1, -1, 1, -1, 1, -1]),
        (81.5, "f", None, [0, 0, 0], [-1, 1, -1, -1, -1, 1]),
        (math.nan, None, "x", [0, 0, 0], [1, 0, 0, 1, 0, -1]),
        (3.0, "m", "x", [1, 0, 0], [-1, -1, -1, -1, 1, -1]),
        (1e300, "z", "x", [0, 1, 1], [-1, 1, 1, -1, -1, -1]),
    ],
)
def test_one_patients_vector(weight: float, sex: str | None, seen: str | None, outside: list[int], signs: list[int]):
    """(a, b·s) without an impossible value. Else √63/8, shared by the cells of them, and an eighth of that."""
    count = sum(outside)
    rest = 1 / 8 if count else 1.0
    alone = math.sqrt(63) / 8 / math.sqrt(max(count, 1))
    expected = [A * rest, *(alone * each for each in outside), *(B * rest * each for each in signs)]
    assert exact(sites(), patients([weight], [sex], [seen])).tolist() == pytest.approx(expected, abs=1e-5)


def test_the_norm_is_at_most_the_sensitivity_for_every_pattern_and_number_of_columns() -> None:
    for count in (1, 2, 7, 60):
        columns = [{"column": f"c{i}", "low": 0, "high": 1} for i in range(count)]
        asked = question({"kind": "sites", "variables": columns, "noise_multiplier": 0.01})
        grid = asked.grid()
        for outside in {0, 1, count // 2, count}:
            values = [5.0] * outside + [0.5] * (count - outside)
            one = {f"c{i}": np.array([value]) for i, value in enumerate(values)}
            steps = [int(step) for step in asked.total(one, grid.spacing)]
            assert sum(step**2 for step in steps) <= Fraction(grid.sensitivity) ** 2
            # Nearly the whole of it is used.
            assert math.sqrt(sum(step**2 for step in steps)) >= 0.99 * grid.sensitivity


def ward(count: int, seed: int) -> dict[str, NDArray[Any]]:
    source = np.random.default_rng(seed)
    weights = np.round(source.normal(75, 12, count), 1).clip(31, 129)
    sexes = source.choice(np.array(["f", "m", None], object), count, p=[0.5, 0.4, 0.1])
    return {"weight": weights, "sex": sexes, "seen": np.array(["x"] * count, object)}


def answered(blocks: dict[str, dict[str, NDArray[Any]]], std: float, seed: int = 1, silent: str = "") -> Answer:
    asked = sites(hospitals=list(NAMES))
    spacing = asked.grid().spacing
    total = np.sum([asked.placed(asked.total(table, spacing), name) for name, table in blocks.items()], axis=0)
    noised = total * spacing + np.random.default_rng(seed).normal(0.0, std, total.size)
    return asked.answer(NoisedSum(noised, std, seed, frozenset(NAMES) - {silent}))


def findings(answer: Answer) -> list[tuple[object, ...]]:
    assert answer.tables[0].name == "findings"
    return [row[:3] for row in answer.tables[0].rows]


def test_without_noise_shares_are_those_of_the_records() -> None:
    table = ward(500, 1)
    answer = answered(dict.fromkeys(NAMES, table), 0.0)
    (found,) = [table for table in answer.tables if table.name == "shares-by-hospital"]
    rows = {row[:3]: row[3] for row in found.rows}
    given = table["sex"] != np.array(None)
    assert rows["east", "sex", "missing"] == pytest.approx(1 - given.mean(), abs=1e-4)
    assert rows["east", "sex", "m"] == pytest.approx((table["sex"][given] == "m").mean(), abs=1e-4)
    assert rows["east", "weight", "at least 80"] == pytest.approx((table["weight"] >= 80).mean(), abs=1e-4)
    assert rows["west", "weight", "a multiple of 10"] == pytest.approx((table["weight"] % 10 == 0).mean(), abs=1e-4)


def test_errors_are_named_with_the_hospital_the_column_and_how_sure() -> None:
    blocks = {name: ward(600, seed) for seed, name in enumerate(NAMES)}
    blocks["west"]["weight"] = blocks["west"]["weight"] * 2.2046
    blocks["north"]["sex"][blocks["north"]["sex"] == "f"] = None
    blocks["south"]["weight"] = np.round(blocks["south"]["weight"], -1)
    answer = answered(blocks, 6.0)
    found = findings(answer)
    assert ("west", "weight", "above 130") in found
    assert ("north", "sex", "missing") in found
    assert ("south", "weight", "a multiple of 10") in found
    assert not {"east"} & {str(row[0]) for row in found}
    notes = [note for note in answer.notes if note.startswith("west: weight is above 130 for about ")]
    assert len(notes) == 1
    assert "By chance: less than 1 in " in notes[0]


def test_a_hospital_with_impossible_values_has_no_second_finding_from_whom_is_left() -> None:
    """Men are heavier here. In pounds most of them are impossible, and women seem to be more: that is no error."""
    blocks = {name: ward(4000, seed) for seed, name in enumerate(NAMES)}
    for table in blocks.values():
        table["weight"][table["sex"] == "m"] = np.minimum(table["weight"][table["sex"] == "m"] + 20, 129)
    blocks["west"]["weight"] = blocks["west"]["weight"] * 1.6
    answer = answered(blocks, 6.0)
    assert findings(answer) == [("west", "weight", "above 130")]
    assert any(note.startswith("west: patients with values that were not declared") for note in answer.notes)


def test_hospitals_that_record_alike_have_no_finding_and_are_told_so() -> None:
    answer = answered({name: ward(600, seed) for seed, name in enumerate(NAMES)}, 6.0)
    assert findings(answer) == []
    assert any(note.startswith("No hospital stands out") for note in answer.notes)


def test_a_silent_hospital_is_compared_with_nobody() -> None:
    """Its block would hold noise alone. Here it holds an error that is not to be read."""
    blocks = {name: ward(600, seed) for seed, name in enumerate(NAMES)}
    blocks["west"]["weight"] = blocks["west"]["weight"] * 2.2046
    answer = answered(blocks, 6.0, silent="west")
    assert findings(answer) == []
    assert any("west: no answer" in note for note in answer.notes)


def test_small_findings_are_suppressed_with_the_rows_of_the_answer() -> None:
    blocks = {name: ward(600, seed) for seed, name in enumerate(NAMES)}
    blocks["west"]["weight"][:60] = 1.0
    answer = answered(blocks, 0.5)
    assert ("west", "weight", "below 30") in findings(answer)
    assert ("west", "weight", "below 30") not in findings(answer.suppressed(100))


def test_no_sentence_names_fewer_patients_than_a_study_shows() -> None:
    asked = sites(hospitals=list(NAMES))
    blocks = {name: ward(600, seed) for seed, name in enumerate(NAMES)}
    blocks["west"]["weight"][:60] = 1.0
    spacing = asked.grid().spacing
    total = np.sum([asked.placed(asked.total(table, spacing), name) for name, table in blocks.items()], axis=0)
    noise = QueryNoise(guaranteed=0.5, present=0.5, spacing=spacing)
    document = QueryDocument(question=asked)
    for suppress_below, count in ((0, 1), (100, 0)):
        notes = answer_of(document, noise, total.astype(np.float64), suppress_below).notes
        assert sum("is below 30 for about" in note for note in notes) == count
        assert sum("west" in note for note in notes) == 2 * count


def test_it_is_always_by_hospital_and_has_each_column_once() -> None:
    assert sites().is_by_hospital
    assert READY["sites"](sites().variables, 3.0).is_by_hospital
    with pytest.raises(ValidationError):
        sites(by=None)
    with pytest.raises(ValidationError, match="weight: stands twice"):
        sites(variables=[COLUMNS[0], COLUMNS[0]])


def test_an_officer_reads_the_columns() -> None:
    words = sites(hospitals=list(NAMES)).in_words()
    assert "weight, sex and seen" in words
    assert "Every hospital has numbers of its own." in words
