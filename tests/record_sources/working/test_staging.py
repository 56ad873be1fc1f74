"""The tables of staged patients and events refuse rows that no cohort could count."""

from __future__ import annotations

import duckdb
import pytest

from record_sources.working.staging import TABLES


@pytest.mark.parametrize(
    "row",
    [
        "person VALUES (NULL, 0, 1980, 1, 1, NULL, false)",
        "person VALUES ('a', NULL, 1980, 1, 1, NULL, false)",
        "event VALUES ('visit', 'a', 1, NULL, NULL, NULL, NULL, NULL)",
        "event VALUES ('visit', 'a', NULL, DATE '2020-01-01', NULL, NULL, NULL, NULL)",
        "covered VALUES (1, NULL)",
    ],
)
def test_a_row_without_its_key_is_refused(row: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(TABLES)
        with pytest.raises(duckdb.ConstraintException, match="NOT NULL"):
            connection.execute(f"INSERT INTO {row}")
