"""Limits that are kept by counting, in Chromium: the guarantee first, what is used, and ε so far with its condition."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from study_protocol.wire.tensors import encode
from tests.factories.hospital_double import MODEL
from tests.factories.live_coordinator import Live, live
from tests.harness import seeded_studies as seeded
from tests.server.web.conftest import Tabs

CONDITION = "if the study ended here for reasons that do not depend on its results"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """`planned` trains and may ask, with cancelled rounds and one under way. `trained` has done all its steps. `filter`
    has all records in each round.
    """
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        asks = {"max_queries": 20, "max_cells": 100, "share": 0.1}
        past = seeded.History(12, dict.fromkeys((5, 6), "too-few-clients"))
        planned = {"rounds": 100, "noise": 5.0, "enforcement": "fixed-plan", "statistics": asks}
        _open(coordinator, "planned", past, **planned)
        trained = {"rounds": 4, "noise": 5.0, "enforcement": "fixed-plan", "statistics": asks}
        _open(coordinator, "trained", seeded.History(4, open=False), **trained)
        squares = {"rounds": 40, "noise": 12.0, "enforcement": "gaussian-filter"}
        _open(coordinator, "filter", seeded.History(6, open=False), **squares)
        _open(coordinator, "young", None, rounds=40, noise=8.0, enforcement="fixed-plan")
        yield coordinator


def _open(here: Live, name: str, past: seeded.History | None, **choices: Any) -> None:
    chosen = seeded.settings("parallel", epsilons={"classical": 4.0}, hospitals=5, **choices)
    wanted = {"study": name, "title": f"Study {name}", "settings": chosen.as_json()}
    assert here.operator("POST", "/v1/studies", json=wanted).status_code == 201
    assert here.operator("PUT", f"/v1/studies/{name}/models/0", content=encode(MODEL)).status_code == 201
    for hospital in ("coast", "hill", "lake", "valley", "wood"):
        here.enrol(name, hospital)
    if past is not None:
        seeded.write(here, name, past)


def _opened(tabs: Tabs, name: str) -> Any:
    page = tabs.open(f"/dashboard/{name}")
    page.locator(".card", has_text="Guarantee:").wait_for()
    return page


@pytest.mark.slow
def test_the_card_of_a_plan_shows_the_guarantee_first(tabs: Tabs, here: Live) -> None:
    limit = here.operator("GET", "/v1/studies/planned/budget").json()["limits"][0]
    assert limit["progress"]["steps"] == {"used": 10, "reserved": 1, "allowed": 100}
    lines = _opened(tabs, "planned").locator(".card", has_text="Guarantee:").inner_text().splitlines()
    lines = [line for line in lines if line]
    assert lines[0].lower() == "guarantee: each patient, classical"
    assert limit["spent"] <= float(lines[1].removeprefix("ε ")) < limit["spent"] + 1e-3
    assert "of the whole plan of 100 steps and its whole share for questions, whenever the study stops" in lines[2]
    assert lines[3].startswith("Step 10 of 100, step 11 is under way; questions: used 0 of μ² = 0.0")
    assert lines[4].startswith("ε so far 0.")
    assert lines[4].endswith(CONDITION)
    assert float(lines[4].split()[3].rstrip(",")) < limit["spent"]


@pytest.mark.slow
def test_a_sum_of_squares_guarantees_the_limit(tabs: Tabs) -> None:
    text = _opened(tabs, "filter").locator(".card", has_text="Guarantee:").inner_text()
    assert "ε 4.000 at δ = 1e-5, whenever the study stops" in text
    assert re.search(r"Used 0\.04\d+ of μ² = 0\.8\d+, 4\.\d %", text)
    assert CONDITION in text


@pytest.mark.slow
def test_before_the_first_round_there_is_a_limit_and_no_running_number(tabs: Tabs) -> None:
    text = _opened(tabs, "young").locator(".card", has_text="Guarantee:").inner_text()
    assert "ε ≤ 4" in text
    assert "nothing is charged yet" in text
    assert "ε so far" not in text


@pytest.mark.slow
def test_rounds_say_their_step_and_cancelled_ones_that_they_were_not_charged(tabs: Tabs) -> None:
    page = _opened(tabs, "planned")
    page.locator("#rounds").scroll_into_view_if_needed()

    def numbers(words: str) -> str:
        # The table is drawn again when older rounds arrive: each row is waited for by its words.
        row = page.locator("#rounds tbody tr", has_text=words).first
        # Whether it is on the screen or not: `inner_text` is what is laid out there.
        return (row.locator("td, th").first.text_content() or "").strip()

    assert (numbers("step 4"), numbers("not charged"), numbers("step 5")) == ("4", "5–6", "7")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    head, *lines = csv.reader(download.value.path().read_text().splitlines())
    steps = head.index("steps each patient, classical")
    assert [line[steps] for line in lines[:7]] == ["1", "2", "3", "4", "4", "4", "5"]


@pytest.mark.slow
def test_the_chart_draws_the_used_share_and_the_number_so_far(tabs: Tabs) -> None:
    page = _opened(tabs, "planned")
    rows = (
        "async (share) => (await import('/static/chart_data.js'))"
        ".lossRows(window.shownModel, { share, hidden: new Set(), last: 0 })"
    )
    page.evaluate(
        "async () => { const { StudyModel } = await import('/static/model.js');"
        " const { ask } = await import('/static/coordinator.js'); const model = new StudyModel();"
        " model.merge(await (await ask('/dashboard/planned.json')).json()); window.shownModel = model; }"
    )
    plain, share = page.evaluate(rows, False), page.evaluate(rows, True)
    spent = {point["value"] for point in plain["spent"]}
    assert len(spent) == 1
    (point,) = plain["running"]
    assert point["round"] == 12
    assert point["value"] < spent.pop()
    assert CONDITION in point["words"]
    assert [round(one["value"], 9) for one in share["spent"]] == [1, 2, 3, 4, 4, 4, 5, 6, 7, 8, 9, 10]
    assert share["running"] == []
    assert [one["value"] for one in share["limits"]] == [100]
    assert [(one["low"], round(one["high"], 9)) for one in share["reserved"]] == [(10, 11)]
    assert json.dumps(plain["hover"][0]).count("guaranteed") == 1


def test_the_list_shows_the_share_of_steps_that_is_left(tabs: Tabs) -> None:
    page = tabs.open("/dashboard")
    assert "89 %" in page.locator("#list tr", has_text="Study planned").inner_text()
    assert "100 %" in page.locator("#list tr", has_text="Study young").inner_text()
    # Once the steps are done, what is left is the share for questions.
    trained = page.locator("#list tr", has_text="Study trained").inner_text()
    assert "100 % for questions" in trained
    assert "about 0" not in trained
    page.goto("/dashboard/trained")
    page.locator(".card", has_text="Training is done. Questions may follow.").wait_for()


@pytest.mark.slow
def test_a_question_that_is_not_there_is_said_on_its_page(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/planned#question-7")
    page.get_by_text("This study has no question of this number.").wait_for()
    assert page.inner_text("#complaint") == ""


@pytest.mark.slow
def test_the_cost_of_a_question_is_a_share_of_what_bounds_it(tabs: Tabs) -> None:
    words = (
        "async (steps) => (await import('/static/numbers.js')).shareWords("
        "{ document: { question: { kind: 'table', noise_multiplier: 6 } } },"
        "{ progress: { steps, squares: { used: 0, allowed: 0.5 } } })"
    )
    page = tabs.open("/dashboard")
    # 1/6² of 0.5, rounded up.
    assert page.evaluate(words, None) == "5.56 % of μ²"
    assert page.evaluate(words, {"used": 0, "allowed": 9}) == "5.56 % of the share for questions"
