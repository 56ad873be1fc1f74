"""The pages in Chromium: what a reader with a key sees, that one without sees nothing, and that it stays new."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from tests.factories.live_coordinator import Live
from tests.harness import seeded_studies as seeded
from tests.server.web.conftest import BOTH, HOSTILE, Tabs, open_study, without_chromium

STILL = re.compile("Live|Up to date")


def test_without_chromium_nothing_is_skipped_where_a_change_is_judged() -> None:
    with pytest.raises(pytest.fail.Exception, match="no Chromium"):
        without_chromium({"CI": "true"})
    for elsewhere in ({}, {"CI": ""}, {"CI": "false"}):
        with pytest.raises(pytest.skip.Exception):
            without_chromium(elsewhere)


def test_a_wrong_key_is_answered_and_not_kept(tabs: Tabs) -> None:
    page = tabs.blank()
    page.goto("/dashboard")
    page.get_by_label("Viewer's key").fill("nobody")
    page.get_by_role("button", name="Show").click()
    page.locator(".wrong", has_text="token").wait_for()
    assert page.evaluate("sessionStorage.length") == 0
    assert page.locator("main a").count() == 0


@pytest.mark.slow
def test_the_key_dies_with_the_tab(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    page.locator("#rounds table").wait_for()
    assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
    other = page.context.new_page()
    other.goto("/dashboard/ward")
    other.get_by_label("Viewer's key").wait_for()
    assert "Sepsis" not in other.inner_text("body")
    page.get_by_role("button", name="Forget the key").click()
    page.get_by_label("Viewer's key").wait_for()
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.slow
def test_all_studies_at_a_glance(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard")
    row = page.locator("#list tr", has_text="Sepsis on the ward")
    shown = row.inner_text()
    for words in ("Running", "each patient, Bayesian", "about", "31 of at most 120 begun", "5 of 5 invited hospitals"):
        assert words in shown
    assert "Finished: the budget is used" in page.locator("#list tr", has_text="A study that has ended").inner_text()
    page.get_by_label("Find by name or title").fill("SEPSIS")
    page.wait_for_selector("#list tbody tr:only-child")
    page.get_by_label("Find by name or title").fill("nothing of this name")
    page.get_by_text("No study has “nothing of this name”").wait_for()
    assert page.title() == "Studies · Wardround"


def test_from_the_list_to_the_numbers(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard")
    page.get_by_role("link", name="Sepsis on the ward").click()
    page.locator("#rounds table").wait_for()
    reported = here.operator("GET", "/v1/studies/ward/budget").json()
    page.locator("#terms dd").first.wait_for(state="attached")
    shown = page.text_content("main")
    for limit in (one for one in reported["limits"] if one["epsilon"] is not None):
        assert f"of {limit['epsilon']:g} spent" in shown
        assert limit["certificate"]["assumption"] in shown
        assert f"{int(100 * limit['remaining'] / limit['epsilon'])} %" in shown
    assert reported["ledger"]["head"] in shown
    assert "does not hold against whoever sees the rounds' log-moments" in shown
    assert "with noise that is added" in shown
    assert page.locator("#rounds tbody tr").count() == 25
    # Laid out also where nobody has scrolled to: prints and pictures of the whole page show it.
    assert "released" in page.inner_text("#rounds")
    assert page.title() == "Sepsis on the ward · Wardround"


@pytest.mark.slow
def test_rounds_that_came_to_nothing_are_one_line_with_what_to_do(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    page.get_by_label("Which").select_option("Failed")
    row = page.locator("#rounds tbody tr")
    page.locator("#rounds").scroll_into_view_if_needed()
    page.locator("#rounds [role=status]", has_text="1 line found").wait_for()
    assert row.count() == 1
    shown = row.text_content() or ""
    assert shown.startswith("5–7")
    assert "Fewer hospitals answered than schedule.min_clients requires. wardround study rounds STUDY shows" in shown
    page.get_by_label("Which").select_option("All")
    page.get_by_label("Find a round").fill("12")
    page.wait_for_selector("#rounds tbody tr:only-child")
    assert page.locator("#rounds tbody th").inner_text() == "12"
    page.get_by_label("Find a round").fill("")
    page.get_by_role("button", name="Older").click()
    page.get_by_text("Page 2 of 2").wait_for()


@pytest.mark.slow
def test_a_chart_takes_new_rounds_without_being_drawn_anew(tabs: Tabs, here: Live) -> None:
    open_study(here, "growing", "A study that goes on", epsilons=BOTH)
    seeded.write(here, "growing", seeded.History(6, open=False))
    page = tabs.open("/dashboard/growing")
    page.locator("#loss .chart svg").first.wait_for()
    page.locator("#bar .status", has_text="Live").wait_for()
    mark = "document.querySelector('#loss .chart svg').dataset"
    page.evaluate(f"{mark}.kept = 'yes'")
    before = page.locator("#loss .chart svg .mark-line path").first.get_attribute("d")
    seeded.write(here, "growing", seeded.History(4, open=False))
    page.locator("#rounds tbody th", has_text="10").first.wait_for()
    page.locator(f"#loss .chart svg .mark-line path:not([d='{before}'])").first.wait_for(state="attached")
    assert page.evaluate(f"{mark}.kept") == "yes"


@pytest.mark.slow
def test_every_limit_has_its_line_and_can_be_left_out(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    chart = page.locator("#loss .chart").first
    chart.locator("svg").wait_for()
    drawn = chart.locator(".mark-line path")
    assert drawn.count() == 4, "two limits: spent and forecast"
    page.get_by_label("each patient, classical").uncheck()
    page.wait_for_selector("#loss .legend input:not(:checked)")
    chart.locator("text", has_text="limit ε 8").wait_for(state="detached")
    assert drawn.count() == 2
    page.get_by_label("Show").select_option("Share of each limit, in %")
    chart.locator("text", has_text="100").first.wait_for()
    chart.hover(position={"x": 200, "y": 150})
    page.locator("#vg-tooltip-element.visible", has_text="each patient, Bayesian").wait_for()


@pytest.mark.slow
def test_a_line_has_the_colour_that_its_name_has(tabs: Tabs, here: Live) -> None:
    open_study(here, "both", "Both levels", epsilons={"bayesian": 9.0, "classical": 9.0}, scheme="joint")
    seeded.write(here, "both", seeded.History(5, open=False))
    page = tabs.open("/dashboard/both")
    chart = page.locator("#loss .chart").first
    chart.locator(".mark-line path").first.wait_for(state="attached")
    keys = page.locator("#loss fieldset .key")
    assert keys.count() == 4
    found = set[str]()
    for place, key in enumerate(keys.all()):
        key.locator("input").check()
        for other in (other for number, other in enumerate(keys.all()) if number != place):
            other.locator("input").uncheck()
        swatch = key.evaluate("(one) => getComputedStyle(one, '::after').borderTopColor")
        line = re.search(r"line-\d", key.get_attribute("class"))
        assert line is not None
        # Spent and forecast, and nothing of the others.
        chart.locator(f".mark-line path:not([stroke='var(--{line[0]})'])").first.wait_for(state="detached")
        drawn = chart.locator(".mark-line path")
        assert drawn.evaluate_all("(all) => all.map((one) => getComputedStyle(one).stroke)") == [swatch] * 2
        found.add(swatch)
    assert len(found) == 4


@pytest.mark.slow
def test_every_chart_has_its_numbers_as_a_table(tabs: Tabs, here: Live) -> None:
    page = tabs.open("/dashboard/ward")
    page.locator("#loss .chart svg").first.wait_for()
    tables = page.get_by_text("The same numbers as a table")
    assert tables.count() == page.locator(".chart").count() == 3
    for number in range(3):
        tables.nth(number).click()
    assert "reserved for round 31" in page.locator("#loss details").first.inner_text()
    assert page.locator("#loss details").first.locator("tbody tr").count() == 30 + 3
    assert page.locator("#accuracy tbody tr").count() == 27
    fifth = page.locator("#participation tbody tr").filter(has=page.get_by_role("rowheader", name="5", exact=True))
    assert fifth.locator("td").all_inner_texts() == ["1", "0", "4", "0"]


@pytest.mark.slow
def test_without_the_charts_library_the_page_shows_tables_and_says_why(tabs: Tabs) -> None:
    page = tabs.open("/dashboard")

    def without(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r'data-charts="[^"]*"', 'data-charts=""', answer.text()))

    page.route("**/dashboard/ward", without)
    page.goto("/dashboard/ward")
    page.get_by_text("vl-convert-python is not installed").wait_for()
    assert page.locator("#loss details[open] table").count() == 3
    assert page.locator(".chart").count() == 0


@pytest.mark.slow
def test_the_page_follows_the_study_by_events(tabs: Tabs, here: Live) -> None:
    here.running("followed", "north", "south")
    page = tabs.open("/dashboard/followed")
    page.locator("#bar .status", has_text="Live").wait_for()
    asked = len(tabs.addresses)
    assert here.operator("POST", "/v1/studies/followed/stop").status_code == 200
    page.get_by_text("Finished: its lead stopped it").wait_for()
    news = [url for url in tabs.addresses[asked:] if "followed.json" in url]
    assert all("since=0" not in url for url in news), "only what is new is asked for"
    assert page.locator(".notice.bad").count() == 0


@pytest.mark.slow
def test_where_events_do_not_come_through_the_page_asks_again_and_again(tabs: Tabs, here: Live) -> None:
    here.running("polled", "north", "south")
    page = tabs.open("/dashboard")
    page.route("**/events?*", lambda route: route.abort())
    page.goto("/dashboard/polled")
    page.locator("#bar .status", has_text="Every 3 seconds").wait_for()
    assert here.operator("POST", "/v1/studies/polled/pause").status_code == 200
    page.locator(".badge", has_text="Paused").wait_for()


@pytest.mark.slow
def test_a_coordinator_that_does_not_answer_is_said_and_the_numbers_stay(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    page.locator("#rounds table").wait_for()
    page.route("**/dashboard/ward.json?*", lambda route: route.abort())
    page.get_by_text("The coordinator does not answer").wait_for(timeout=20_000)
    assert page.locator("#bar .status").inner_text() == "No answer"
    assert page.locator("#rounds tbody tr").count() == 25
    page.unroute("**/dashboard/ward.json?*")
    page.locator("#bar .status", has_text=STILL).wait_for(timeout=20_000)
    assert page.inner_text("#complaint") == ""


@pytest.mark.slow
def test_news_does_not_take_the_focus_or_what_was_typed(tabs: Tabs, here: Live) -> None:
    open_study(here, "typed", "Somebody types", epsilons=BOTH)
    seeded.write(here, "typed", seeded.History(3, open=False))
    page = tabs.open("/dashboard/typed")
    page.locator("#bar .status", has_text="Live").wait_for()
    page.get_by_label("Find a round").fill("released")
    seeded.write(here, "typed", seeded.History(2, open=False))
    page.locator("#rounds tbody th", has_text="5").wait_for()
    assert page.evaluate("document.activeElement.value") == "released"


def test_a_hostile_title_is_text(tabs: Tabs) -> None:
    page = tabs.open("/dashboard")
    page.get_by_role("link", name=HOSTILE).click()
    page.locator("#page h1", has_text=HOSTILE).wait_for()
    assert page.locator("main img, main script").count() == 0
    page.locator("#terms dd").first.wait_for()
    assert "No round has begun." in page.text_content("#rounds")


@pytest.mark.slow
def test_a_database_that_differs_is_said_in_words_and_without_its_numbers(tabs: Tabs, here: Live) -> None:
    from sqlalchemy import text

    open_study(here, "forged", "Somebody changed it", epsilons=BOTH)
    whose = "(SELECT id FROM studies WHERE name = 'forged')"
    forged = f"UPDATE budgets SET limits = '[]' WHERE study_id = {whose}"
    here.coordinator.database.write("forge", lambda tx: tx.session.execute(text(forged)))
    page = tabs.open("/dashboard/forged")
    page.get_by_text("The coordinator's database was changed without its key").wait_for()
    assert page.locator(".card, .chart, table").count() == 0
    page.goto("/dashboard")
    assert "not shown" in page.locator("#list tr", has_text="Somebody changed it").inner_text()


@pytest.mark.slow
def test_a_study_that_is_not_there(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/nowhere")
    page.get_by_role("heading", name="No such study").wait_for()
    assert page.inner_text("#complaint") == ""
    page.get_by_role("link", name="All studies").click()
    page.locator("#list table").wait_for()


@pytest.mark.slow
def test_light_and_dark_by_the_system_and_by_choice(tabs: Tabs) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    page = tabs.open("/dashboard", theme="dark")
    dark = page.evaluate(ground)
    page.get_by_label("Colours").select_option("Light")
    assert page.evaluate(ground) != dark
    page.reload()
    assert page.evaluate(ground) != dark
    page.get_by_label("Colours").select_option("As the system")
    assert page.evaluate(ground) == dark


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/ward", "/dashboard/ended", "/dashboard/young"])
def test_a_phone_scrolls_down_and_never_sideways(tabs: Tabs, path: str) -> None:
    page = tabs.open(path, phone=True)
    page.locator("#list table, #rounds table, #rounds .empty").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.quick("exact")
@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.951, "2.96"), (2.95, "2.95"), (2, "2.00"), (0.0123, "0.013"), (0, "0"), (None, "–"), (0.000011, "0.000011")],
    ids=["rounded up", "exact", "whole", "small", "nothing", "unknown", "tiny"],
)
def test_a_privacy_loss_is_never_shown_smaller_than_it_is(tabs: Tabs, value: float | None, shown: str) -> None:
    page = tabs.blank()
    page.goto("/dashboard")
    assert page.evaluate("async (value) => (await import('/static/numbers.js')).upward(value)", value) == shown


def test_what_is_left_is_never_shown_larger_than_it_is(tabs: Tabs) -> None:
    page = tabs.blank()
    page.goto("/dashboard")
    left = "async (limit) => (await import('/static/numbers.js')).percentLeft(limit)"
    assert page.evaluate(left, {"remaining": 0.0299, "epsilon": 3}) == 0
    assert page.evaluate(left, {"remaining": 2.9999, "epsilon": 3}) == 99
    guesses = "async (success) => (await import('/static/numbers.js')).guessesOf100(success)"
    assert page.evaluate(guesses, 0.88801) == "88.9"


@pytest.mark.slow
def test_the_api_page_draws_every_operation_under_its_policy(tabs: Tabs, here: Live) -> None:
    page = tabs.blank()
    page.goto("/docs")
    page.locator(".opblock").first.wait_for()
    paths = here.send("GET", "/openapi.json").json()["paths"]
    assert page.locator(".opblock").count() == sum(len(operations) for operations in paths.values())
    page.locator(".opblock-summary-control").first.click()
    page.locator(".opblock-body").first.wait_for()


@pytest.mark.slow
def test_a_new_round_moves_the_last_drawn_point_alone(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/ward")
    drawn: list[list[int]] = page.evaluate(
        """async () => {
            const { thinned } = await import("/static/chart_data.js");
            const rounds = (count) => Array.from({ length: count }, (_, place) => place);
            return rounds(1100).slice(1).map((count) => thinned(rounds(count)));
        }"""
    )
    anew = 0
    for before, after in pairwise(drawn):
        assert (after[0], after[-1]) == (0, before[-1] + 1)
        assert len(after) <= 64
        anew += not set(before[:-1]) <= set(after)
    # Only where there are twice as many: beyond 64, 127, 253, 505, 1009.
    assert anew == 5
