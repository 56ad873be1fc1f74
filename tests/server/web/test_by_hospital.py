"""The certificate's numbers by hospital on the study's page, as a reader sees them in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.factories.live_coordinator import Live, live
from tests.harness import dashboard_states as states
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.2) as coordinator:
        states.seed_distances(coordinator)
        plain = states.seeded.settings("parallel", rounds=60, epsilons=states.BOTH, **states.SETTINGS)
        states.open_study(coordinator, "resting", "Falls on the ward", plain)
        yield coordinator


@pytest.mark.parametrize(("phone", "theme"), [(False, "light"), (False, "dark"), (True, "light")])
def test_a_reader_sees_bounds_and_estimates_without_names(here: Live, tabs: Tabs, phone: bool, theme: str) -> None:
    page = tabs.open("/dashboard/typical", phone=phone, theme=theme)
    card = page.locator("#by-hospital")
    card.locator("table").wait_for()
    stated = here.send("GET", "/v1/studies/typical/certificate", here.viewer_key).json()["certificate"]["distances"]
    said = card.inner_text()
    for line in stated["words"]:
        assert line in said
    assert card.locator("tbody tr").count() == 1 + len(stated["hospitals"])
    assert not any(name in said for name in states.HOSPITALS)
    assert card.locator("svg, canvas").count() >= 1
    assert serious(page) == []
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    page.get_by_role("link", name="question 1").first.click()
    page.locator("#answer").wait_for()


def test_a_study_that_never_asked_has_no_such_part(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/resting")
    page.locator("#proof").wait_for()
    assert page.locator("#by-hospital").is_hidden()
