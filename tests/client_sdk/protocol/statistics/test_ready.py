"""Ready questions from declared columns."""

from __future__ import annotations

import pytest

from client_sdk.protocol.statistics.ready import READY, READY_OF_MODEL, binned
from client_sdk.protocol.statistics.variables import Range, Variable
from tests.factories.questions import answer_without_noise, column, patients, question

DECLARED = (
    Range(column="age", low=18, high=90),
    Range(column="pressure", low=50, high=250, missing_values=("0",)),
    Variable(column="sex", categories=("f", "m")),
)


@pytest.mark.parametrize(
    ("low", "high", "edges"),
    [
        (18, 90, (20, 30, 40, 50, 60, 70, 80)),
        (0, 1, (0.2, 0.4, 0.6, 0.8)),
        (-0.3, 0.3, (-0.2, -0.1, 0, 0.1, 0.2)),
        (100, 400, (150, 200, 250, 300, 350)),
        (0, 1e-9, (2e-10, 4e-10, 6e-10, 8e-10)),
    ],
)
def test_bins_are_round_and_public(low: float, high: float, edges: tuple[float, ...]) -> None:
    assert binned(Range(column="x", low=low, high=high)).edges == edges


def test_table_one_counts_everybody_in_every_column() -> None:
    asked = READY["table-one"](DECLARED, 4.0)
    found = answer_without_noise(asked, patients(500))
    assert column(found, "patients").tolist() == pytest.approx([500])
    assert column(found, "shares").sum() == pytest.approx(3)


def test_missingness_counts_who_has_a_value() -> None:
    columns = patients(500)
    asked = READY["missingness"](DECLARED, 4.0)
    found = column(answer_without_noise(asked, columns), "tables")
    age, pressure = (int((columns[name] == columns[name]).sum()) for name in ("age", "pressure"))
    sex = sum(one is not None for one in columns["sex"])
    assert found == pytest.approx([age, 500 - age, pressure, 500 - pressure, sex, 500 - sex])


def test_evaluation_is_of_one_model_for_all_and_by_every_column() -> None:
    asked = READY_OF_MODEL["evaluation"](DECLARED, 4.0, 12)
    assert asked.model_number == 12
    assert asked.columns == ("age", "pressure", "sex")
    assert asked.sensitivity == pytest.approx(3**0.5)
    alone = READY_OF_MODEL["evaluation"]((), 4.0, 12)
    assert (alone.columns, alone.cells, alone.sensitivity) == ((), 5, 1.0)
    assert question(alone.model_dump(mode="json")) == alone
