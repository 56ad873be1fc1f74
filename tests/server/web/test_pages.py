"""The dashboard's pages hold no data, its data needs a key and is sent only when new, its words know every reason."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import get_args

import pytest

import server
from accounting.units import Observer
from server.api.docs import CONTENT_SECURITY_POLICY, STATIC
from server.domain.release import NotFinite, OutOfBounds
from server.domain.secure_sum_session import Failure
from server.web import bundle
from server.web.bundle import Bundle, find_bundle
from study_protocol.study.messages import RoundState, StopReason, StudyState
from study_protocol.study.reasons import ENDINGS, FOR_GOOD, REASONS, SAME_MODEL_AGAIN, SUM_OF_THREE, TOO_FEW_DRAWN
from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live, code_of
from tests.factories.settings import settings

SOURCES = Path(server.__file__).parent


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/ward", "/dashboard/nowhere"])
def test_a_page_holds_no_data_and_loads_nothing_from_elsewhere(here: Live, path: str) -> None:
    page = here.send("GET", path)
    assert page.status_code == 200
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "ward" not in page.text.lower().replace("wardround", "")
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?:", page.text)
    for address in re.findall(r'(?:src|href|data-charts)="(/[^"]+)"', page.text):
        answer = here.send("GET", address)
        assert answer.status_code == 200
        assert answer.headers.get("x-content-type-options") == "nosniff" or not address.startswith("/static")


def test_the_scripts_talk_to_nobody_else_and_write_no_markup() -> None:
    for script in STATIC.glob("*.js"):
        text = script.read_text()
        assert not re.findall(r"https?://", text)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|setAttribute\(.style", text
        )
        assert len(text.splitlines()) <= 400


def test_every_reason_of_a_coordinator_has_its_words() -> None:
    written = {reason for path in SOURCES.rglob("*.py") for reason in _reasons(path.read_text())}
    assert {"too-few-clients", "not-finite", "updates-lost", "noised-sum-lost", "query-opened"} <= written
    assert written | {*get_args(Failure), SAME_MODEL_AGAIN, SUM_OF_THREE, TOO_FEW_DRAWN, *FOR_GOOD} <= set(REASONS)
    assert set(ENDINGS) == {*get_args(StopReason)}
    known = (STATIC / "words.js").read_text()
    names = *(set(get_args(StudyState)) - {"finished"}), *get_args(RoundState), *(one.value for one in Observer)
    for word in names:
        assert re.search(rf'\W("{word}"|{word}): ', known), f"{word} has no words"


def _reasons(text: str) -> set[str]:
    given = re.findall(r'(?:Abandon|InputsLost)\([^"\n]*"([a-z-]+)"', text) + re.findall(
        r'"([a-z-]+-lost|not-finite)"', text
    )
    failed = "".join(re.findall(r'query\.state, query\.reason = "failed", (.*)', text))
    return {*given, *re.findall(r'"([a-z-]+)"', failed)} | {kind.reason for kind in (NotFinite, OutOfBounds)}


def test_the_twins_need_a_key(here: Live) -> None:
    for path in ("/dashboard.json", "/dashboard/ward.json", "/dashboard/ward/terms.json", "/dashboard/ward/ledger.txt"):
        assert here.send("GET", path).status_code == 401
        assert here.send("GET", path, here.viewer_key).status_code == 200
    assert code_of(here.send("GET", "/dashboard/nowhere/ledger.txt", here.viewer_key)) == (404, "unknown-study")


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


def test_the_charts_library_may_be_kept_for_ever_and_is_sent_compressed(here: Live) -> None:
    found = find_bundle()
    if found is None:
        pytest.skip("vl-convert-python is not installed")
    address = f"/charts/{found.name}"
    assert f'data-charts="{address}"' in here.send("GET", "/dashboard/ward").text
    answer = here.send("GET", address)
    assert "immutable" in answer.headers["cache-control"]
    assert (answer.headers["content-encoding"], answer.content) == ("gzip", found.script)
    plain = here.send("GET", address, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == found.script
    assert here.send("GET", "/charts/charts-0000000000000000.js").status_code == 404


def test_the_name_of_the_charts_library_goes_by_its_content() -> None:
    one, other = (Bundle(gzip.compress(text, mtime=0)) for text in (b"one", b"other"))
    assert one.name != other.name
    assert one.script == b"one"


def test_without_the_charts_library_the_coordinator_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle.importlib.util, "find_spec", lambda name: None)
    assert find_bundle(tmp_path / "charts.js.gz") is None


@pytest.mark.slow
def test_the_charts_library_is_made_once_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    first, second = find_bundle(tmp_path / "a" / "charts.js.gz"), find_bundle(tmp_path / "b" / "charts.js.gz")
    assert first == second
    assert first is not None
    assert b"window.vegaEmbed=" in first.script
    # What would break the content policy: code made from text.
    assert find_bundle(tmp_path / "a" / "charts.js.gz") == first


@pytest.mark.parametrize("path", sorted((STATIC / "charts").glob("*.json")), ids=lambda path: path.name)
def test_every_specification_is_a_chart_for_paper_too(path: Path) -> None:
    converter = pytest.importorskip("vl_convert", reason="vl-convert-python is not installed")
    rows = [
        {"round": number, "value": 1.0, "limit": "a", "kind": "answered", "count": 1, "order": 0}
        | {"x": number, "y": 1.0, "low": 0.5, "high": 1.5, "by": "a", "words": "one"}
        for number in (1, 2)
    ]
    names = set(re.findall(r'"data": \{"name": "(\w+)"\}', path.read_text()))
    drawn = json.loads(path.read_text()) | {"width": 300, "datasets": dict.fromkeys(names, rows)}
    assert converter.vegalite_to_svg(drawn).startswith("<svg")


def test_the_pages_travel_with_the_package() -> None:
    wanted = ("study.html", "studies.html", "static/dashboard.css", "static/charts/loss.json")
    assert all((SOURCES / "web" / name).is_file() for name in wanted)
