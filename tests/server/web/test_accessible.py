"""Everybody can use the pages: axe finds nothing serious, the keyboard reaches everything, nothing moves unasked."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.server.web.conftest import Tabs

# What a reader who does not look at the page waits for.
READY = "#list table, #list .empty, #rounds table, #rounds .empty, .gate form"
PAGES = ["/dashboard", "/dashboard/ward", "/dashboard/ended", "/dashboard/young", "/dashboard/nowhere"]


def serious(page: Any) -> list[str]:
    """What axe finds that keeps somebody from using the page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html']} {node['failureSummary']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


@pytest.mark.quick("/dashboard/young-desk-light")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
@pytest.mark.parametrize("path", PAGES)
def test_axe_finds_nothing_serious(tabs: Tabs, path: str, phone: bool, theme: str) -> None:
    page = tabs.open(path, phone=phone, theme=theme)
    if path != "/dashboard/nowhere":
        page.locator(READY).first.wait_for()
    for chart in page.locator(".chart:not([hidden])").all():
        chart.locator("svg").wait_for()
    for details in page.locator("summary:visible").all():
        details.click()
    if path == "/dashboard/ward":
        page.get_by_role("button", name="Check the ledger").click()
        page.locator("#proof .notice").wait_for()
    assert serious(page) == []


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_before_there_is_a_key(tabs: Tabs, theme: str) -> None:
    page = tabs.blank(theme=theme)
    page.goto("/dashboard/ward")
    page.get_by_label("Viewer's key").fill("wrong")
    page.keyboard.press("Enter")
    page.locator(".wrong", has_text="token").wait_for()
    assert serious(page) == []


def reach(page: Any, selector: str, most: int = 60) -> None:
    """Tab until an element that fits has the focus; it must be seen then, and show that it has it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            focused = page.locator("*:focus")
            assert focused.is_visible()
            assert focused.evaluate("(one) => getComputedStyle(one).outlineStyle") == "solid"
            return
    raise AssertionError(f"the keyboard does not reach {selector}")


@pytest.mark.slow
def test_the_keyboard_alone_goes_from_the_key_to_the_proof(tabs: Tabs) -> None:
    page = tabs.blank()
    page.goto("/dashboard")
    page.get_by_label("Viewer's key").wait_for()
    page.keyboard.type(tabs.here.viewer_key)
    page.keyboard.press("Enter")
    page.locator("#list table").wait_for()
    reach(page, "a[href='/dashboard/ward']")
    page.keyboard.press("Enter")
    page.locator("#rounds table").wait_for()
    reach(page, ".skip")
    page.keyboard.press("Enter")
    for selector in ("#loss select", "#loss input[type=checkbox]", "#loss summary", "#terms summary", "#proof button"):
        reach(page, selector)
    page.keyboard.press("Enter")
    page.locator("#proof .notice.good").wait_for()
    for selector in ("#rounds input", "#rounds select", "#rounds .wide", "#rounds .pager button"):
        reach(page, selector)
    page.keyboard.press("Enter")
    page.get_by_text("Page 2 of 2").wait_for()


@pytest.mark.slow
def test_every_field_has_a_label_and_every_page_a_title(tabs: Tabs) -> None:
    for path in PAGES:
        page = tabs.open(path)
        page.locator("#page h1").wait_for()
        assert page.locator("#page h1").count() == 1
        assert page.title().endswith(" · Wardround")
        for field in page.locator("input, select").all():
            assert field.evaluate("(one) => one.labels.length") == 1


@pytest.mark.slow
def test_nothing_moves_for_who_asked_for_that(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    bar = page.locator(".bar span").first
    assert bar.evaluate("(one) => getComputedStyle(one).transitionDuration") == "0s"
    page.emulate_media(reduced_motion="no-preference")
    assert bar.evaluate("(one) => getComputedStyle(one).transitionDuration") != "0s"


@pytest.mark.slow
def test_a_phone_shows_the_rounds_without_scrolling_sideways(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward", phone=True)
    rounds = page.locator("#rounds .wide")
    rounds.wait_for()
    assert rounds.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    assert rounds.locator("td[data-name='Hospitals']").first.is_visible()
    assert rounds.locator("tbody tr").count() < 10


@pytest.mark.slow
def test_the_bar_of_a_limit_is_as_full_as_the_share_above_it_says(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    page.locator(".card .bar").first.wait_for()
    for card in page.locator(".card", has=page.locator(".bar")).all():
        left = float(card.locator(".figure").inner_text().removesuffix("%"))
        free = card.locator(".free").evaluate("(one) => 100 * one.offsetWidth / one.parentElement.clientWidth")
        assert free == pytest.approx(left, abs=1.5)
