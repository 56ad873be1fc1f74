"""The hospitals of a study and their programs, on the study's page, as a reader sees them in Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from study_protocol.versions import NAMED_PEOPLE, PROTOCOL, program_version
from tests.factories.live_coordinator import Live, code_of, live
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.2) as coordinator:
        coordinator.open_study("ward")
        north, south = (coordinator.enrol("ward", name) for name in ("north", "south"))
        budget = "/v1/studies/ward/budget"
        assert coordinator.signed(north, "GET", budget, protocol=NAMED_PEOPLE).status_code == 200
        refused = coordinator.signed(south, "GET", budget, protocol=NAMED_PEOPLE - 1)
        assert code_of(refused) == (403, "client-too-old")
        coordinator.enrol("ward", "west")
        yield coordinator


@pytest.mark.parametrize("phone", [False, True])
def test_a_reader_sees_which_program_each_hospital_runs(tabs: Tabs, phone: bool) -> None:
    page = tabs.open("/dashboard/ward", phone=phone)
    table = page.locator("#hospitals table")
    table.wait_for()
    version, too_old = program_version(), f"too old: the study needs protocol {NAMED_PEOPLE}, install version "
    rows = [[cell.inner_text() for cell in row.locator("th, td").all()] for row in table.locator("tbody tr").all()]
    assert [[*row[:3], row[4]] for row in rows] == [
        ["north", version, str(NAMED_PEOPLE), "as the coordinator"],
        ["south", version, str(NAMED_PEOPLE - 1), too_old + version],
        ["west", version, str(PROTOCOL), "as the coordinator"],
    ]
    assert f"needs protocol {NAMED_PEOPLE}" in page.locator("#hospitals p").inner_text()
    assert serious(page) == []
