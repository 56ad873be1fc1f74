"""Many crossed tables in one question: what is counted, how much one patient moves it, and the arrays of its answer."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.marginals import MAX_WEIGHT, Marginals
from study_protocol.queries.rows import one_row_each
from tests.factories.questions import DOCUMENTS, answer_without_noise, column, exact, patients, question

SEX = {"column": "sex", "categories": ["f", "m"]}
AGE = {"column": "age", "edges": [40], "missing_values": ["-9"]}
SEEN = {"column": "seen", "presence": True}


def marginals(**entries: Any) -> Marginals:
    asked = question({"kind": "marginals", "variables": [SEX, AGE, SEEN], "cliques": [[0, 1], [1, 2]]} | entries)
    assert isinstance(asked, Marginals)
    return asked


def test_counts_are_those_of_pandas() -> None:
    columns = patients(2000)
    asked = question(DOCUMENTS["marginals"])
    assert isinstance(asked, Marginals)
    frame = pd.DataFrame(columns)
    coded = pd.DataFrame(
        {
            0: [{"f": 0, "m": 1, "x": 2}.get(cell, 3) for cell in columns["sex"]],
            # Below 40 and from 40 to 60 are one group, and so is all above.
            1: np.where(frame["age"].isna(), 2, (frame["age"] >= 60).astype(int)),
            2: np.where(frame["pressure"].isna(), 4, (frame["pressure"].to_numpy()[:, None] >= [90, 120, 150]).sum(1)),
        }
    )
    answer = answer_without_noise(asked, columns)
    assert [array.shape for array in answer.arrays] == [(4,), (4, 3), (3, 5)]
    assert column(answer, "patients") == pytest.approx([2000])
    counted: list[int] = []
    for clique, array, times in zip(asked.cliques, answer.arrays, asked.times, strict=True):
        found = Counter(zip(*(coded[number].tolist() for number in clique), strict=True))
        expected = [found[cell] for cell in itertools.product(*map(range, array.shape))]
        assert list(array.values) == [array.steps * count for count in expected]
        counted += [times * count for count in expected]
    assert exact(asked, columns).tolist() == counted


# A patient's possible rows: missing codes, categories that nobody declared, numbers that cannot be read.
ROWS = list(itertools.product(["f", "m", "strange", "", None], ["39", "40", "-9", "-9.0", "old", ""], ["x", ""]))
CLIQUES = [[[0]], [[0, 1]], [[0], [1], [2]], [[0, 1], [0, 2], [1, 2]], [[0, 1, 2], [2]]]
GROUPS = [[], [[0, 0, 1, 0], [0, 1, 0], []]]


@pytest.mark.parametrize("rule", ["first", "last", "mean", "any"])
@pytest.mark.parametrize("cliques", CLIQUES, ids=str)
def test_one_patient_moves_the_sum_by_the_sensitivity_at_most(cliques: list[list[int]], rule: str) -> None:
    """Searched over neighbouring tables: one patient more, with one to three rows, beside others in any order."""
    random = np.random.default_rng(3)
    for groups, weights, multiplier in ((GROUPS[0], [], 900.0), (GROUPS[1], list(range(7, 7 + len(cliques))), 0.37)):
        asked = marginals(cliques=cliques, groups=groups, weights=weights, rows=rule, noise_multiplier=multiplier)
        grid, largest = asked.grid(), 0
        for _ in range(12):
            rows = [ROWS[place] for place in random.integers(len(ROWS), size=random.integers(2, 10))]
            owners = random.integers(4, size=len(rows))
            owners[random.integers(len(rows))] = 0
            others = [(row, owner) for row, owner in zip(rows, owners.tolist(), strict=True) if owner]
            change = _sum(asked, list(zip(rows, owners.tolist(), strict=True)), grid.spacing)
            if others:
                change = change - _sum(asked, others, grid.spacing)
            largest = max(largest, sum(int(step) ** 2 for step in change))
        assert Fraction(largest) <= Fraction(grid.sensitivity) ** 2
        # The bound is reached, so that no noise is wasted.
        assert math.sqrt(largest) == pytest.approx(grid.sensitivity, rel=1e-9)
        assert grid.std >= multiplier * grid.sensitivity


CONDITIONS = [{"column": "age", "low": 40}, {"column": "sex", "categories": ["f", "strange"]}]
CELL = (
    st.sampled_from(["f", "m", "strange", "", "-9", " 39", "1e400", "nan", "x"]) | st.none() | st.floats() | st.text()
)


@st.composite
def questions(draw: st.DrawFn) -> Marginals:
    edges = sorted(draw(st.sets(st.integers(-50, 90), min_size=1, max_size=4)))
    variables = [SEX, {"column": "age", "edges": edges, "missing_values": ["-9"]}, SEEN]
    sizes = [4, len(edges) + 2, 2]
    every = [list(clique) for length in (1, 2, 3) for clique in itertools.combinations(range(3), length)]
    cliques = draw(st.lists(st.sampled_from(every), unique_by=tuple, min_size=1))
    weights = draw(st.just([]) | st.lists(st.integers(1, MAX_WEIGHT), min_size=len(cliques), max_size=len(cliques)))
    groups = [draw(st.lists(st.integers(0, 2), min_size=size, max_size=size)) for size in sizes]
    dense = [[sorted(set(each)).index(group) for group in each] if draw(st.booleans()) else [] for each in groups]
    return marginals(
        variables=variables,
        cliques=cliques,
        weights=weights,
        groups=draw(st.sampled_from([[], dense])),
        where=draw(st.lists(st.sampled_from(CONDITIONS), max_size=2)),
        rows=draw(st.sampled_from(["first", "last", "mean", "any"])),
        noise_multiplier=draw(st.floats(1e-3, 1e6)),
    )


@given(asked=questions(), data=st.data())
def test_no_neighbouring_table_is_further_away_than_the_sensitivity(asked: Marginals, data: st.DataObject) -> None:
    """One patient with up to five rows anywhere among those of others, with cells of any kind and any condition."""
    row = st.tuples(CELL, CELL, CELL)
    table = data.draw(st.lists(st.tuples(row, st.integers(0, 3)), min_size=1, max_size=8))
    mine = data.draw(st.lists(st.tuples(row, st.just(0)), max_size=5))
    others = [(cells, owner) for cells, owner in table if owner]
    grid, whole = asked.grid(), data.draw(st.permutations([*others, *mine]))
    if not others or not whole:
        return
    # Which row of another patient comes first is the same in both tables.
    order = [each for each in whole if each[1]]
    change = _sum(asked, whole, grid.spacing) - _sum(asked, order, grid.spacing)
    assert sum(int(step) ** 2 for step in change) <= Fraction(grid.sensitivity) ** 2
    assert Fraction(grid.std) >= Fraction(asked.noise_multiplier) * Fraction(grid.sensitivity)


def _sum(asked: Marginals, rows: Sequence[tuple[Any, int]], spacing: float) -> NDArray[np.int64]:
    cells = {
        name: np.array([row[place] for row, _ in rows], object) for place, name in enumerate(("sex", "age", "seen"))
    }
    return asked.total(one_row_each(asked, cells, [str(owner) for _, owner in rows]), spacing)


def test_weights_move_noise_from_one_table_to_another() -> None:
    """w² adds up to 1: at one noise multiplier the noise of a count is Δ / k."""
    plain, weighted = marginals(), marginals(weights=[3, 4])
    assert (plain.sensitivity, weighted.sensitivity) == (pytest.approx(math.sqrt(2)), 5.0)
    grid = weighted.grid()
    shares = [array.steps / (grid.sensitivity) for array in answer_without_noise(weighted, _none()).arrays]
    assert sum(share**2 for share in shares) == pytest.approx(1.0)
    assert shares == pytest.approx([0.6, 0.8])


def test_the_number_of_patients_is_weighed_by_cells_and_weights() -> None:
    asked = marginals(cliques=[[2], [0]], weights=[1, 2])
    total = np.array([6.0, 4.0, 10.0, 10.0, 8.0, 0.0])
    answer = asked.answer(NoisedSum(total, 1.0, 1))
    # Of 2 cells with weight 1: variance 2. Of 4 cells with weight 2: variance 1.
    assert column(answer, "patients") == pytest.approx([(10 / 2 + 14 / 1) / (1 / 2 + 1)])
    assert column(answer, "patients", "dp_error") == pytest.approx([math.sqrt(1 / (1 / 2 + 1))])


def test_another_stage_is_another_question() -> None:
    assert marginals(stage=2).digest() != marginals().digest()


def test_small_counts_are_left_out_of_arrays_where_a_study_hides_them() -> None:
    asked = marginals(cliques=[[2]])
    answer = asked.answer(NoisedSum(np.array([3.0, 20.0]), 1.0, 1)).suppressed(5)
    assert answer.arrays[0].values[0] is None
    assert answer.arrays[0].values[1] == 20 * answer.arrays[0].steps
    assert "1 row is not shown" in answer.notes[-1]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, "a table of 3 columns"),
        ({"cliques": [[0, 1], [1, 2]]}, "each of 2 columns, by age,"),
        ({"cliques": [[0], [1], [2]]}, "each of 3 columns, of patients"),
        ({"cliques": [[0, 1], [0, 2], [1, 2]]}, "every pair of 3 columns, of patients"),
        ({"cliques": [[0, 1], [2]], "groups": GROUPS[1]}, "2 tables of 3 columns in coarse groups, of patients"),
    ],
    ids=str,
)
def test_it_is_said_in_one_short_sentence(entries: dict[str, Any], words: str) -> None:
    said = marginals(**({"cliques": [[0, 1, 2]]} | entries)).in_words()
    assert words in said
    assert len(said) < 160


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"variables": [SEX, SEX]}, "column sex: stands twice"),
        ({"cliques": [[1, 0]]}, "numbers of columns rise"),
        ({"cliques": [[0, 0]]}, "numbers of columns rise"),
        ({"cliques": [[0, 3]]}, "are below 3"),
        ({"cliques": [[0, 1], [0, 1]]}, "one stands twice"),
        ({"groups": [[], []]}, "there are 3 columns, and groups of 2"),
        ({"groups": [[0, 1], [], []]}, "groups of column sex: one number for each of its 4 cells"),
        ({"groups": [[0, 0, 2, 2], [], []]}, "all numbers from 0 to the largest"),
        ({"weights": [1]}, "there are 2 cliques, and 1 weights"),
        ({"weights": [1, MAX_WEIGHT + 1]}, "less than or equal"),
        ({"weights": [0, 1]}, "greater than or equal"),
        ({"stage": 0}, "greater than or equal"),
    ],
    ids=str,
)
def test_what_is_no_such_question_is_refused_in_words(entries: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        marginals(**entries)


def _none() -> dict[str, NDArray[Any]]:
    return {name: np.array([None], object) for name in ("sex", "age", "seen")}
