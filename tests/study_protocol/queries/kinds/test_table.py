"""Cross-tabulations without noise are those of pandas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from study_protocol.queries.answer import NoisedSum
from study_protocol.queries.kinds.table import cells_of, patients_in, require_columns_once
from study_protocol.queries.variables import Variable
from tests.factories.questions import DOCUMENTS, answer_without_noise, column, patients, question


def test_counts_and_shares_are_those_of_pandas() -> None:
    columns = patients(3000)
    frame = pd.DataFrame(columns)
    sex = pd.Categorical(frame["sex"].map({"f": "f", "m": "m", "x": "other"}).fillna("missing"))
    sex = sex.set_categories(["f", "m", "other", "missing"])
    bins = pd.cut(frame["age"], [-np.inf, 40, 60, 80, np.inf], right=False, labels=False).fillna(4).astype(int)
    crossed = pd.crosstab(sex, bins, dropna=False).to_numpy().ravel()
    found = answer_without_noise(question(DOCUMENTS["table"]), columns)
    assert column(found, "table").tolist() == crossed.tolist()
    assert column(found, "shares") == pytest.approx(crossed / 3000, rel=1e-14)
    assert column(found, "patients").tolist() == [3000]


def test_the_same_column_twice_in_one_table_is_refused() -> None:
    ages, other_ages = Variable(column="age", edges=(40.0,)), Variable(column="age", edges=(60.0,))
    require_columns_once((ages, Variable(column="sex", categories=("f",))))
    with pytest.raises(ValueError, match="column age: stands twice in one table"):
        require_columns_once((ages, other_ages))


def test_only_patients_who_are_included_are_counted() -> None:
    """Cells are ordered as the product of the labels, the last variable changing first."""
    variables = (Variable(column="sex", categories=("f",)), Variable(column="age", edges=(40.0,)))
    assert cells_of(variables) == 9
    columns = {"sex": np.array(["f", "x", None, "f"], object), "age": np.array([30.0, 50.0, np.nan, 70.0])}
    included = np.array([True, True, True, False])
    assert patients_in(variables, columns, included).tolist() == [1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_noise_is_taken_off_by_the_nearest_possible_table() -> None:
    """Of three cells and 10 in all, -2 becomes 0, and the others give 1 each (Held, Wolfe, Crowder 1974)."""
    asked = question({"kind": "table", "variables": [{"column": "age", "edges": [40]}]})
    answer = asked.answer(NoisedSum(np.array([7.0, 5.0, -2.0]), 3.0, 1))
    assert column(answer, "table") == pytest.approx([6, 4, 0])
    assert column(answer, "table", "raw") == pytest.approx([7, 5, -2])
    assert column(answer, "table", "dp_error") == pytest.approx([3, 3, 3])
    # A sum of three noised cells.
    assert column(answer, "patients", "dp_error") == pytest.approx([27**0.5])
