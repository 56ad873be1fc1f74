"""What hospitals tell of columns that their tables lack: kept for each, replaced by itself alone, and no more."""

from __future__ import annotations

import pytest

from server.domain.errors import Rejected
from server.services.coordinator import Coordinator
from server.services.studies.enrolment import withdraw
from server.services.studies.lacking import list_all, put
from study_protocol.study.lacking import LackingColumns
from tests.factories.settings import TASK_PARAMETERS, settings
from tests.factories.studies import open_study

MAY_LACK = settings(
    training={
        "task_parameters": TASK_PARAMETERS
        | {"column.age": "0..100; missing=50; site-may-lack", "column.rate": "0..10; missing=1; site-may-lack"}
    }
)


def told(coordinator: Coordinator) -> dict[str, tuple[str, ...] | None]:
    return {hospital.client: hospital.columns for hospital in list_all(coordinator, "sepsis").hospitals}


@pytest.mark.quick("sqlite")
def test_the_last_word_of_each_hospital_counts(coordinator: Coordinator) -> None:
    open_study(coordinator, settings=MAY_LACK)
    assert told(coordinator) == {"h0": None, "h1": None, "h2": None}
    for columns, kept in ((("rate", "age"), ("age", "rate")), (("age",), ("age",)), ((), ()), (None, None)):
        word = LackingColumns(columns=columns)
        for _ in range(2):
            assert put(coordinator, "sepsis", "h1", word).columns == kept
        assert told(coordinator) == {"h0": None, "h1": kept, "h2": None}


@pytest.mark.quick("sqlite")
def test_other_columns_and_hospitals_are_refused(coordinator: Coordinator) -> None:
    open_study(coordinator, settings=MAY_LACK)
    with pytest.raises(Rejected, match="none of 2 of these") as refused:
        put(coordinator, "sepsis", "h1", LackingColumns(columns=("age", "ill", "diagnosis of p7")))
    assert "p7" not in str(refused.value)
    with pytest.raises(Rejected, match="unknown-client"):
        put(coordinator, "sepsis", "h9", LackingColumns(columns=()))
    with pytest.raises(Rejected, match="unknown-study"):
        list_all(coordinator, "other")
    withdraw(coordinator, "sepsis", "h2")
    with pytest.raises(Rejected, match="revoked"):
        put(coordinator, "sepsis", "h2", LackingColumns(columns=("age",)))
    assert told(coordinator) == {"h0": None, "h1": None, "h2": None}


@pytest.mark.quick("sqlite")
def test_a_study_that_lets_no_column_lack_takes_no_name(coordinator: Coordinator) -> None:
    open_study(coordinator)
    with pytest.raises(Rejected, match="invalid-request"):
        put(coordinator, "sepsis", "h1", LackingColumns(columns=("age",)))
