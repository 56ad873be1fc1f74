"""The pages' data as JSON and text: for whoever may read it, nothing that the API hides, and only what is new."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import settings


@pytest.fixture(scope="module")
def here(without_browser: Live) -> Live:
    return without_browser


def test_the_twins_need_a_key(here: Live) -> None:
    for path in ("/dashboard.json", "/dashboard/ward.json", "/dashboard/ward/terms.json", "/dashboard/ward/ledger.txt"):
        assert here.send("GET", path).status_code == 401
        assert here.send("GET", path, here.viewer_key).status_code == 200
    assert code_of(here.send("GET", "/dashboard/nowhere/ledger.txt", here.viewer_key)) == (404, "unknown-study")


def test_terms_name_how_many_hospitals_a_sum_needs(here: Live) -> None:
    sentences = here.send("GET", "/dashboard/young/terms.json", here.viewer_key).json()["sentences"]
    masked = [sentence["text"] for sentence in sentences if sentence["about"] == "under masks"]
    assert any("4 of a round's 5 hospitals" in text for text in masked), masked
    assert not any(" n " in text for text in masked)


def test_a_member_reads_its_own_study_and_not_the_list(here: Live) -> None:
    member, _ = here.running("members", "north", "south")
    assert here.signed(member, "GET", "/dashboard/members.json").status_code == 200
    assert here.signed(member, "GET", "/dashboard/ward.json").status_code == 403
    assert here.signed(member, "GET", "/dashboard.json").status_code == 403


def test_the_twin_says_what_the_api_says_and_not_who_took_part(here: Live) -> None:
    page = here.operator("GET", "/dashboard/ward.json").json()
    assert page["study"] == here.operator("GET", "/v1/studies/ward").json()
    assert page["budget"] == here.operator("GET", "/v1/studies/ward/budget").json()
    assert [one["round"] for one in page["rounds"]] == [*range(1, 32)]
    assert all(one["clients"] is None for one in page["rounds"])
    assert page["rounds"][4]["answers"] == {"received": 1, "refused": 0, "missing": 4, "waiting": 0}
    assert page["rounds"][30]["answers"] == {"received": 2, "refused": 0, "missing": 0, "waiting": 3}
    assert "coast" not in json.dumps(page)
    listed = here.operator("GET", "/dashboard.json").json()["studies"]
    studies = here.operator("GET", "/v1/studies").json()["studies"]
    assert [one["study"] for one in listed] == studies
    limits = next(one["limits"] for one in listed if one["study"]["study"] == "ward")
    assert [one["spent"] for one in limits] == [one["spent"] for one in page["budget"]["limits"]]


def test_the_list_is_searched_and_paged(here: Live) -> None:
    first = here.operator("GET", "/dashboard.json?limit=1").json()
    assert len(first["studies"]) == 1
    second = here.operator("GET", f"/dashboard.json?limit=1&after={first['next']}").json()
    assert second["studies"][0]["study"]["study"] > first["next"]
    for search, found in (("ON THE ward", ["ward"]), ("%", []), ("_", []), ("ende", ["ended"])):
        answer = here.operator("GET", "/dashboard.json", params={"search": search}).json()
        assert [one["study"]["study"] for one in answer["studies"]] == found


def test_an_update_brings_what_is_new_and_the_round_under_way(here: Live) -> None:
    north, south = here.running("news", "north", "south")
    version = here.operator("GET", "/dashboard/news.json").json()["version"]
    for who in (north, south):
        assert here.put_update(who, 1, update()).status_code == 201
    here.work()
    page = here.operator("GET", f"/dashboard/news.json?since={version}").json()
    assert [one["round"] for one in page["rounds"]] == [1, 2]
    seen = page["version"]
    assert [one["round"] for one in _news(here, seen)] == [2]
    assert here.put_update(north, 2, update()).status_code == 201
    assert _news(here, seen)[0]["answers"] == {"received": 1, "refused": 0, "missing": 0, "waiting": 1}
    metrics = {"evaluation_set": "held-out", "values": {"accuracy": 0.75}}
    assert here.operator("PUT", "/v1/studies/news/models/1/metrics", json=metrics).status_code == 201
    assert [one["metrics"] for one in _news(here, seen)] == [metrics, None], "an old round that was measured is news"
    assert [one["round"] for one in _news(here, seen, after=1)] == [2]


def _news(here: Live, since: int, after: int = 0) -> list[dict[str, object]]:
    return here.operator("GET", f"/dashboard/news.json?since={since}&after={after}").json()["rounds"]


@pytest.mark.parametrize("path", ["/dashboard.json", "/dashboard/ward.json?since=10"])
def test_the_same_again_is_not_sent_again(here: Live, path: str) -> None:
    first = here.operator("GET", path)
    again = here.operator("GET", path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert first.headers["cache-control"] == "no-store"
    assert here.operator("GET", path, headers={"If-None-Match": '"other"'}).content == first.content


def test_how_many_were_drawn_is_told_to_nobody_where_the_guarantee_counts_on_it(here: Live) -> None:
    drawn = settings("client", client_sampling_rate=0.5, schedule={"min_clients": 0})
    here.running("drawn", "north", "south", settings=drawn)
    # More than one where nobody was drawn in the first.
    rounds = here.operator("GET", "/dashboard/drawn.json").json()["rounds"]
    assert {round["answers"] for round in rounds} == {None}


def test_a_database_that_differs_is_shown_without_its_numbers(here: Live) -> None:
    from sqlalchemy import text

    here.running("forged", "east", "west")
    forged = "UPDATE budgets SET limits = '[]' WHERE study_id = (SELECT id FROM studies WHERE name = 'forged')"
    here.coordinator.database.write("forge", lambda tx: tx.session.execute(text(forged)))
    (listed,) = here.operator("GET", "/dashboard.json?search=forged").json()["studies"]
    assert listed["limits"] is None
    page = here.operator("GET", "/dashboard/forged.json").json()
    assert (page["study"]["stop_reason"], page["budget"], page["rounds"]) == ("database-differs", None, [])


def test_a_long_study_comes_in_pages(here: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.web.page_data.MOST_ROUNDS", 20)
    pages, after = list[dict[str, Any]](), 0
    while after is not None:
        page = here.operator("GET", f"/dashboard/ward.json?after={after}").json()
        pages.append(page)
        after = page["next"]
    assert [[one["round"] for one in page["rounds"]] for page in pages] == [[*range(1, 21)], [*range(21, 32)]]
