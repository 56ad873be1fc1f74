"""Addresses: what no study, round or page can be is refused before anything is looked up."""

from __future__ import annotations

import pytest

from tests.factories.live_coordinator import Live, code_of


@pytest.mark.parametrize(
    "path", ["rounds/0", "rounds/-1", "rounds/x", f"rounds/{2**31}", "models/-1", "models/01", "models/x"]
)
def test_a_bad_path_parameter_is_refused(here: Live, path: str) -> None:
    assert code_of(here.operator("GET", f"/v1/studies/a/{path}")) == (422, "invalid-request")


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "after=-1", "after=x", f"after={2**64}"])
def test_a_bad_query_is_refused(here: Live, query: str) -> None:
    assert code_of(here.operator("GET", f"/v1/studies/a/ledger?{query}")) == (422, "invalid-request")


@pytest.mark.parametrize("name", ["Upper", "a_b", "-a", "a" * 64])
def test_a_name_that_no_study_may_have_is_refused(here: Live, name: str) -> None:
    assert code_of(here.operator("GET", f"/v1/studies/{name}")) == (422, "invalid-request")
