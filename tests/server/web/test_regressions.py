"""A regression on the dashboard: its steps, and the forest plot of its last answer, in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.factories.live_coordinator import Live, live
from tests.harness import dashboard_states as states
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

PAGES: dict[str, str] = {}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.2) as coordinator:
        PAGES.update(states.seed_regression(coordinator))
        yield coordinator


@pytest.mark.slow
@pytest.mark.parametrize(("phone", "theme"), [(False, "light"), (False, "dark"), (True, "light")])
def test_a_logistic_regression_is_drawn_as_odds_ratios_beside_one(tabs: Tabs, phone: bool, theme: str) -> None:
    page = tabs.open(PAGES["logistic-3"], phone=phone, theme=theme)
    answer = page.locator("#answer")
    ratios = answer.locator("article", has=page.get_by_role("heading", name="odds ratios"))
    ratios.locator("svg").wait_for()
    # One point for each predictor, and none for the intercept, which the table has.
    assert ratios.locator("svg .mark-symbol path").count() == 2
    assert "intercept" not in (ratios.locator("svg").text_content() or "")
    assert ratios.locator("tbody tr").count() == 3
    # The intervals and the line of no effect, over the whole height.
    assert ratios.locator("svg .mark-rule.role-mark line").count() == 3
    assert "It is the last step: its answer is the result." in page.locator("#question").inner_text()
    assert serious(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


@pytest.mark.slow
def test_ratios_stand_on_a_logarithmic_axis_and_the_line_is_at_one(tabs: Tabs) -> None:
    page = tabs.open(PAGES["logistic-3"])
    ratios = page.locator("#answer article", has=page.get_by_role("heading", name="odds ratios"))
    ratios.locator("svg").wait_for()
    places = ratios.locator("svg").evaluate(
        """(svg) => {
            const box = (node) => { const r = node.getBoundingClientRect(); return [r.left + r.width / 2, r.height]; };
            const label = (node) => [Number(node.textContent), box(node)[0]];
            return {
                lines: [...svg.querySelectorAll('.mark-rule.role-mark line')].map(box),
                labels: [...svg.querySelectorAll('.role-axis-label text')].map(label).filter(([n]) => !Number.isNaN(n)),
            };
        }"""
    )
    tallest = max(places["lines"], key=lambda line: line[1])
    assert tallest[0] == pytest.approx(dict(places["labels"])[1], abs=2)
    assert tallest[1] >= 40
    numbers, pixels = np.array(places["labels"]).T
    # A straight line through the logarithms, within the rounding of a pixel.
    slope, start = np.polyfit(np.log(numbers), pixels, 1)
    assert np.abs(slope * np.log(numbers) + start - pixels).max() < 1.5


@pytest.mark.slow
def test_a_linear_regression_is_drawn_beside_zero(tabs: Tabs) -> None:
    page = tabs.open(PAGES["linear-2"])
    answer = page.locator("#answer")
    answer.locator("svg").first.wait_for()
    assert "coefficients (linear regression)" in answer.inner_text()
    assert "Step 2 of 2." in page.locator("#question").inner_text()


@pytest.mark.slow
def test_steps_are_named_in_the_list_and_lead_to_each_other(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/regression#questions")
    page.get_by_role("link", name="Sex by age and pressure (step 1 of 3)").click()
    page.get_by_text("Query 2 followed from it.").wait_for()
    page.get_by_role("link", name="The next step").click()
    page.get_by_text("Query 3 followed from it.").wait_for()
    page.get_by_role("link", name="The first step").click()
    page.get_by_text("Query 2 followed from it.").wait_for()
