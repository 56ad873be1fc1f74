"""The pages in Chromium: what a reader with a key sees, that one without sees nothing, and the API drawn."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.factories.hospital_double import update
from tests.factories.live_coordinator import Live, live

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra `browser`)")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# Nothing but the page under test: no sandbox for containers, no calls of the browser's own.
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A study after two released rounds and within the third."""
    with live(tmp_path_factory.mktemp("home")) as coordinator:
        both = coordinator.running("ward", "north", "south")
        for round in (1, 2):
            for who in both:
                assert coordinator.put_update(who, round, update()).status_code == 201
            coordinator.work()
        yield coordinator


@pytest.fixture(scope="module")
def chromium() -> Iterator[object]:
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, here: Live):
    context = chromium.new_context(base_url=here.url, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    yield page
    context.close()
    assert page.problems == []


def _unlock(page, here: Live, path: str) -> None:
    page.goto(path)
    page.get_by_placeholder("a viewer's key").fill(here.viewer_key)
    page.get_by_role("button", name="Show").click()


def test_a_wrong_key_is_answered_and_not_kept(page, here: Live):
    page.goto("/dashboard")
    page.get_by_placeholder("a viewer's key").fill("wrk_nobody")
    page.get_by_role("button", name="Show").click()
    page.locator("p.bad", has_text="token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.get_by_role("link").count() == 0


def test_from_the_key_to_the_numbers(page, here: Live):
    _unlock(page, here, "/dashboard")
    page.get_by_role("link", name="ward").click()
    page.get_by_text("Privacy budget").wait_for()
    reported = here.operator("GET", "/v1/studies/ward/budget").json()
    limit = next(one for one in reported["limits"] if one["epsilon"] is not None)
    shown = page.inner_text("main")
    assert f"limit {limit['epsilon']:g} at δ" in shown
    assert limit["certificate"]["assumption"] in shown
    assert reported["ledger"]["head"] in shown
    assert [row.split("\t")[0] for row in page.locator("tbody tr").all_inner_texts()] == ["3", "2", "1"]
    assert page.locator("svg polyline").count() == 1
    # A narrow screen scrolls down, never sideways.
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_page_follows_the_study(page, here: Live):
    _unlock(page, here, "/dashboard/ward")
    page.get_by_text("The budget allows another round.").wait_for()
    assert here.operator("POST", "/v1/studies/ward/stop").status_code in (200, 204)
    here.work()
    page.get_by_text("No further round may begin.").wait_for()


def test_the_key_dies_with_the_tab(page, chromium, here: Live):
    _unlock(page, here, "/dashboard/ward")
    page.get_by_text("Privacy budget").wait_for()
    assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
    other = page.context.new_page()
    other.goto("/dashboard/ward")
    other.get_by_placeholder("a viewer's key").wait_for()
    assert "Privacy budget" not in other.inner_text("main")


def test_the_api_page_draws_every_operation_under_its_policy(page, here: Live):
    page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else None)
    page.on(
        "request",
        lambda request: None if request.url.startswith((here.url, "data:")) else page.problems.append(request.url),
    )
    page.goto("/docs")
    page.locator(".opblock").first.wait_for()
    paths = here.send("GET", "/openapi.json").json()["paths"]
    assert page.locator(".opblock").count() == sum(len(operations) for operations in paths.values())
    page.locator(".opblock-summary-control").first.click()
    page.locator(".opblock-body").first.wait_for()
