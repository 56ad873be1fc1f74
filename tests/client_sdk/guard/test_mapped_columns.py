"""A mapping is no way around the site policy: a denied local column stays denied under its new name."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from client_sdk.errors import ConfigurationError
from client_sdk.guard.columns import readable
from client_sdk.guard.policy import QueryRules
from client_sdk.study.remaining import remaining
from private_learning.records import Histories, LazyTable, Table, TableMapping, load
from tests.factories.hospitals import plain_policy

MAPPING = """
[columns]
area = "postcode"
stay = { from = "left", days_from = "came" }
sex = { from = "gender", map = { M = "male" } }
"""
FRAME = pd.DataFrame(
    {
        "postcode": ["1", "2"],
        "left": ["2020-01-05"] * 2,
        "came": ["2020-01-02"] * 2,
        "gender": ["M", "F"],
        "age": [3, 4],
    }
)


@pytest.fixture
def mapping(tmp_path: Path) -> TableMapping:
    (tmp_path / "columns.toml").write_text(MAPPING)
    return TableMapping.read(tmp_path / "columns.toml")


def visible(records: object) -> set[str]:
    assert isinstance(records, Table)
    return set(records.columns)


@pytest.mark.parametrize(
    ("denied", "hidden"),
    [
        ("postcode", {"area"}),
        ("POST code", {"area"}),
        ("area", {"area"}),
        ("left", {"stay"}),
        # Its dates are in the days that are counted from it.
        ("came", {"came", "stay"}),
        ("gender", {"sex"}),
        ("age", {"age"}),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_denied_local_column_is_denied_under_its_new_name(
    denied: str, hidden: set[str], lazy: bool, mapping: TableMapping, tmp_path: Path
) -> None:
    FRAME.to_parquet(tmp_path / "a.parquet")
    records = load(tmp_path / "a.parquet", mapping=mapping, lazy=lazy)
    assert isinstance(records, LazyTable) == lazy
    everything = {"area", "stay", "came", "sex", "age"}
    rules = QueryRules(denied_columns=frozenset({denied}))
    assert visible(readable(records, rules)) == everything - hidden
    # Also after rows were taken, and where the whole policy is applied.
    assert isinstance(records, Table)
    assert visible(readable(records.take([0]), rules)) == everything - hidden
    policy = plain_policy().model_copy(update={"statistics": rules})
    assert visible(remaining(records, policy).records) == everything - hidden


def test_an_allowed_name_does_not_let_another_local_column_in(
    mapping: TableMapping, caplog: pytest.LogCaptureFixture
) -> None:
    records = load(FRAME, mapping=mapping)
    rules = QueryRules(allowed_columns=frozenset({"area", "sex", "gender", "age"}))
    assert visible(readable(records, rules)) == {"sex", "age"}
    assert "column 'area' cannot be read, because the mapping makes it of a local column" in caplog.text
    rules = QueryRules(allowed_columns=frozenset({"postcode", "gender"}))
    assert visible(readable(records, rules)) == set()


def test_a_denied_name_that_is_neither_here_nor_local_is_refused(mapping: TableMapping) -> None:
    with pytest.raises(ConfigurationError, match="denied_columns names 'religion'"):
        readable(load(FRAME, mapping=mapping), QueryRules(denied_columns=frozenset({"religion"})))


def test_a_denied_column_of_events_is_denied_under_its_new_name(tmp_path: Path) -> None:
    folder = tmp_path / "h"
    folder.mkdir()
    (folder / "patients.csv").write_text("patient,birth\na,2000-01-01\n")
    (folder / "visits.csv").write_text("patient,clinic,at\na,north,2020-01-01\n")
    (tmp_path / "columns.toml").write_text(
        '[events.visits]\ncode = "clinic"\nday = { from = "at", days_from = "birth" }'
    )
    records = load(folder, mapping=tmp_path / "columns.toml")
    assert isinstance(records, Histories)
    for denied, left in (("clinic", {"day"}), ("birth", {"code"}), ("at", {"code"})):
        kept = readable(records, QueryRules(denied_columns=frozenset({denied})))
        assert isinstance(kept, Histories)
        assert set(kept.events["visits"].columns) == left
