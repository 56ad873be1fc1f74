"""No label of a chart touches another one, and no page is wider than its window, in any state of a study."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.factories.live_coordinator import Live, live
from tests.harness import dashboard_states as states
from tests.harness.page_layout import faults
from tests.harness.screenshots import ready, settled_charts
from tests.server.web.conftest import Tabs

ASKED = {name: states.QUESTIONS[name] for name in ("survival", "long-cells", "quantiles", "hospitals")}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        states.seed_questions(coordinator, ASKED)
        yield coordinator


def seed(here: Live, study: str) -> None:
    kind, rounds = study.split("-")
    if here.operator("GET", f"/v1/studies/{study}").status_code == 404:
        states.seed_rounds(here, [int(rounds)], [kind])


def open_whole(tabs: Tabs, address: str, *, phone: bool) -> Any:
    """The page with all its charts and every table opened."""
    page = tabs.open(address, phone=phone)
    ready(page)
    settled_charts(page)
    for summary in page.locator("summary:visible").all():
        summary.click()
    return page


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
@pytest.mark.parametrize("study", ["bounded-1", "counted-1", "bounded-100", "counted-100", "counted-1000"])
def test_labels_keep_apart_and_nothing_is_cut_off(tabs: Tabs, here: Live, study: str, phone: bool) -> None:
    seed(here, study)
    page = open_whole(tabs, f"/dashboard/{study}", phone=phone)
    assert faults(page, phone=phone) == []


@pytest.mark.slow
def test_every_state_and_every_question_fits_a_phone(tabs: Tabs, here: Live) -> None:
    addresses = states.seed_states(here) | states.seed_evaluations(here)
    addresses |= {str(number): f"/dashboard/registry#question-{number}" for number in range(1, len(ASKED) + 3)}
    found = {address: faults(open_whole(tabs, address, phone=True), phone=True) for address in addresses.values()}
    assert {address: list_of for address, list_of in found.items() if list_of} == {}


def test_a_median_that_is_not_reached_says_so(tabs: Tabs) -> None:
    page = open_whole(tabs, "/dashboard/registry#question-1", phone=False)
    table = page.locator("#answer article", has_text="Time at which so many survive").locator("tbody")
    rows = [row.inner_text().split("\t") for row in table.locator("tr").all()]
    # Of the others too few were followed for any share.
    assert [row[2] for row in rows] == ["not reached", "not reached", "not known", "not known"]
    assert all(row[3].endswith(" or more") for row in rows)


@pytest.mark.slow
def test_few_places_on_a_scale_are_all_named(tabs: Tabs) -> None:
    page = open_whole(tabs, "/dashboard/registry#question-3", phone=False)
    labels = page.locator("#answer .chart svg").first.locator(".role-axis-label text").all_text_contents()
    assert labels[:3] == ["0.25", "0.5", "0.75"]


@pytest.mark.slow
def test_every_hospital_has_a_drawing_on_one_scale_and_a_silent_one_says_so(tabs: Tabs) -> None:
    page = open_whole(tabs, "/dashboard/registry#question-4", phone=False)
    result = page.locator("#answer article").first
    panels = result.locator(".panel")
    assert panels.locator("h4").all_inner_texts() == ["coast", "harbour", "hill"]
    assert panels.nth(2).inner_text().split() == ["hill", "no", "answer"]
    assert panels.nth(2).locator(".chart").count() == 0
    scales = [panels.nth(place).locator(".role-axis-label text").all_text_contents() for place in (0, 1)]
    assert scales[0] == scales[1] != []
    assert "coast" in (panels.nth(0).locator(".chart").get_attribute("aria-label") or "")
    last = result.locator("tbody tr").last.inner_text().split("\t")
    assert last[:3] == ["hill", "no answer", "no answer"]
    assert not any(character.isdigit() for cell in last for character in cell)
    assert page.get_by_text("hill: no answer. These patients are in no number here.").is_visible()


@pytest.mark.slow
def test_the_page_finds_labels_that_touch_and_what_is_too_wide(tabs: Tabs, here: Live) -> None:
    seed(here, "counted-1")
    page = open_whole(tabs, "/dashboard/counted-1", phone=True)
    page.evaluate("""() => {
        const label = document.querySelector('#loss .chart svg text');
        label.parentNode.append(label.cloneNode(true));
        document.querySelector('main').append(Object.assign(document.createElement('pre'), { style: 'width: 50rem' }));
    }""")
    wrong = faults(page, phone=True)
    assert any("touches" in fault for fault in wrong)
    assert any(fault.startswith("page ") for fault in wrong)
