"""Questions on the dashboard: their page data, their words, and what a reader sees of them in Chromium."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from server.api.docs import STATIC
from study_protocol.queries.answer import Answer, AnswerTable, Plot
from study_protocol.study.queries import QueryState
from study_protocol.wire.signing import QUERY_ANSWER, canonical_json, decode_public_key, verify_document
from tests.factories.live_coordinator import Live, code_of, live
from tests.server.web import questions
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import reach, serious

WORDS = (STATIC / "words.js").read_text()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("home")
    with live(home / "coordinator", long_poll_seconds=0.2) as coordinator:
        questions.write(coordinator, home)
        yield coordinator


def test_every_state_of_a_query_has_its_words() -> None:
    for state in get_args(QueryState):
        assert re.search(rf"^  {state}: \((query)?\) => \[", WORDS, re.M), f"{state} has no words"


def test_every_kind_of_plot_has_its_specification() -> None:
    for kind in get_args(Plot.model_fields["kind"].annotation):
        assert (STATIC / "charts" / f"question-{kind}.json").is_file()


@pytest.mark.slow
def test_a_twin_says_what_the_api_says_and_the_words(here: Live) -> None:
    shown = here.operator("GET", "/dashboard/registry/queries.json").json()
    told = here.operator("GET", "/v1/studies/registry/queries").json()
    for one, other in zip(shown["queries"], told["queries"], strict=True):
        assert {**one, "words": None, "signed": None} == {**other, "words": None, "signed": None}
        assert one["words"].startswith("How many")
    assert [one["number"] for one in shown["queries"]] == [1, 2, 3]
    assert here.operator("GET", "/dashboard/registry/queries.json?after=2").json()["queries"] == shown["queries"][2:]
    one = here.operator("GET", "/dashboard/registry/queries/1.json").json()
    published = one["answered"]["published"]
    # The very text that is signed.
    assert one["signed"].encode() == canonical_json(published)
    key = decode_public_key(here.operator("GET", "/v1/studies/registry").json()["coordinator_key"])
    verify_document(key, QUERY_ANSWER, json.loads(one["signed"]), one["answered"]["signature"])


@pytest.mark.slow
def test_who_consents_is_for_operators_alone_and_the_twins_need_a_key(here: Live) -> None:
    for path in ("/dashboard/registry/queries.json", "/dashboard/registry/queries/3.json"):
        assert here.send("GET", path).status_code == 401
        shown = here.send("GET", path, here.viewer_key)
        assert '"client"' not in shown.text
        assert '"client":"' in here.operator("GET", path).text
        again = here.send("GET", path, here.viewer_key, headers={"If-None-Match": shown.headers["etag"]})
        assert again.status_code == 304
    assert code_of(here.operator("GET", "/dashboard/registry/queries/9.json")) == (404, "unknown-query")


def test_what_is_suppressed_is_said() -> None:
    def table(*counts: float) -> AnswerTable:
        rows = tuple((str(place), count) for place, count in enumerate(counts))
        return AnswerTable(name="t", title="t", columns=("cell", "estimate"), rows=rows, counts="estimate")

    answer = Answer(tables=(table(3.0, 20.0), table(1.0, 2.0)), notes=("first",))
    kept = answer.suppressed(10)
    assert [len(one.rows) for one in kept.tables] == [1, 0]
    assert kept.notes == (
        "first",
        "3 rows are not shown: each counts fewer than 10 patients, and this study shows no smaller numbers.",
    )
    assert answer.suppressed(1).notes == ("first",)


@pytest.mark.slow
def test_a_study_of_questions_alone_has_no_empty_charts_of_training(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/full")
    page.locator("#rounds table").wait_for()
    page.locator("#loss .chart svg").first.wait_for()
    shown = page.text_content("main") or ""
    for words in (
        "Finished: all queries are answered",
        "Questions answered",
        "Question 1: =HYPERLINK",
        "At most 1 are",
    ):
        assert words in shown
    for words in ("NaN", "undefined", "No model has been measured", "Rounds left", "Measured"):
        assert words not in shown
    assert page.locator("#accuracy").is_hidden()
    listed = tabs.open("/dashboard").locator("#list tr", has_text="full").inner_text()
    assert "1 question asked" in listed
    assert "at most 0" not in listed


def test_from_the_list_to_an_answer_with_its_cost_and_its_signature(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard/registry")
    page.get_by_role("link", name="Questions (3)").click()
    page.locator("#questions table").wait_for()
    first = page.locator("#questions tbody tr", has_text="=HYPERLINK(<b>age</b>)").inner_text()
    # A record moves one count of the table: 1/6² of the μ² at which δ(3) = 1e-5 (Balle and Wang, theorem 8).
    allowed: Any = brentq(lambda mu: ndtr(mu / 2 - 3 / mu) - math.exp(3) * ndtr(-mu / 2 - 3 / mu) - 1e-5, 0.1, 3.0)
    assert f"{math.ceil(10_000 / (36 * allowed**2)) / 100:.2f} % of μ²" in first
    assert "Failed" in page.locator("#questions tbody tr", has_text="postcode").inner_text()
    page.get_by_role("link", name="=HYPERLINK").click()
    page.locator("#answer .chart svg").first.wait_for()
    assert page.url.endswith("#question-1")
    page.get_by_text("this browser has verified it").wait_for()
    shown = page.inner_text("main")
    for words in (
        "rows are not shown: each counts fewer than 6 patients",
        "95 % interval",
        "No noise protects",
        "ledger entry",
    ):
        assert words in shown
    assert page.locator("#answer .notice.bad").count() == 0
    page.go_back()
    page.locator("#questions table").wait_for()


@pytest.mark.slow
def test_a_table_of_an_answer_is_saved_as_csv_without_a_formula(tabs: Tabs, tmp_path: Path) -> None:
    page = tabs.open("/dashboard/registry#question-1")
    with page.expect_download() as found:
        page.get_by_role("button", name="Download “patients” as CSV").click()
    found.value.save_as(tmp_path / "answer.csv")
    rows = list(csv.reader((tmp_path / "answer.csv").read_text().splitlines()))
    assert rows[0] == ["ill", "age", "estimate", "raw", "dp_error", "sampling_error", "low", "high"]
    assert float(rows[1][2]) >= 6
    made = "async (table) => (await import('/static/answer_rows.js')).csvOf(table)"
    texts = [["=1+1", "-5 to 0", '"'], ["@x", "-cmd", None], ["+1+cmd|x", "a;=b", "\uff1d1"]]
    assert page.evaluate(made, {"columns": ["a"], "rows": texts}) == (
        '"a"\r\n"\'=1+1","-5 to 0",""""\r\n"\'@x","\'-cmd",""\r\n"\'+1+cmd|x","a;\'=b","\'\uff1d1"'
    )


@pytest.mark.slow
def test_a_failed_and_a_waiting_question_say_what_to_do(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard/registry#question-3")
    page.get_by_text("Too many hospitals refused. wardround query show").wait_for()
    assert not re.search("alpha|beta", page.inner_text("main"))
    assert page.locator("#answer").count() == 0
    waiting = tabs.open("/dashboard/quiet#question-1")
    waiting.get_by_text("0 of at least 2 hospitals say yes.").wait_for()
    # An operator sees who said what.
    own = tabs.blank()
    own.goto("/dashboard")
    own.get_by_label("Viewer's key").fill(here.operator_key)
    own.get_by_role("button", name="Show").click()
    own.locator("#list table").wait_for()
    own.goto("/dashboard/registry#question-3")
    own.locator("#question td", has_text="denied_columns names postcode").first.wait_for()


@pytest.mark.slow
def test_an_answer_that_was_changed_is_said_above_its_numbers_and_curves_are_drawn(tabs: Tabs) -> None:
    page = tabs.open("/dashboard")

    def changed(route: Any) -> None:
        answer = route.fetch()
        query = answer.json()
        published = json.loads(query["signed"])
        published["answer"]["tables"] = [_curve(kind) for kind in ("steps", "line", "points")]
        route.fulfill(response=answer, json=query | {"signed": json.dumps(published)})

    page.route("**/queries/2.json", changed)
    page.goto("/dashboard/registry#question-2")
    page.locator("#answer .notice.bad", has_text="not the coordinator's").wait_for()
    for number in range(2):
        chart = page.locator("#answer .chart").nth(number)
        chart.locator(".mark-area path").first.wait_for()
        assert chart.locator(".mark-line path").count() == 2, "one curve for each group"
    # Where places are numbers points stand over a scale.
    page.locator("#answer .chart").nth(2).locator(".mark-symbol path").nth(39).wait_for(state="attached")
    assert page.locator("#answer summary", has_text="All 40 rows").count() == 3


def _curve(kind: str) -> dict[str, Any]:
    rows = [[sex, float(day), 1 - day / (30 + 9 * (sex == "f")), 0.0, 1.0] for sex in "fm" for day in range(20)]
    plot = {"kind": kind, "x": "day", "y": "estimate", "low": "low", "high": "high", "by": "sex"}
    columns = ["sex", "day", "estimate", "low", "high"]
    return {"name": kind, "title": kind, "columns": columns, "rows": rows, "counts": None, "plot": plot}


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_axe_finds_nothing_serious_in_questions(tabs: Tabs, phone: bool, theme: str) -> None:
    for fragment in ("questions", "question-1", "question-3"):
        page = tabs.open(f"/dashboard/registry#{fragment}", phone=phone, theme=theme)
        page.locator("#questions table, #question .badge").first.wait_for()
        if fragment == "question-1":
            page.get_by_text("this browser has verified it").wait_for()
            for chart in page.locator("#answer .chart").all():
                chart.locator("svg").wait_for()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.close()


@pytest.mark.slow
def test_the_keyboard_alone_reaches_an_answer(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/registry")
    page.locator("#rounds table").wait_for()
    reach(page, ".tabs a[href='#questions']")
    page.keyboard.press("Enter")
    page.locator("#questions table").wait_for()
    reach(page, "a[href='#question-1']")
    page.keyboard.press("Enter")
    page.locator("#answer table").first.wait_for()
    reach(page, "#answer .wide")
    reach(page, "#answer button")
