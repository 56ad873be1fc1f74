"""Columns that hospitals lack, on the study's page, as a reader sees them in Chromium."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.factories.live_coordinator import Live, live
from tests.factories.settings import TASK_PARAMETERS, settings
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

pytestmark = pytest.mark.slow
MAY_LACK = TASK_PARAMETERS | {"column.rate": "0..10; missing=1; site-may-lack"}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.2) as coordinator:
        for study, parameters in (("lacking", MAY_LACK), ("whole", TASK_PARAMETERS)):
            coordinator.open_study(study, settings(training={"task_parameters": parameters}))
            for name in ("north", "south"):
                coordinator.enrol(study, name)
        path, told = "/v1/studies/lacking/clients/west/lacking-columns", json.dumps({"columns": ["rate"]}).encode()
        assert coordinator.signed(coordinator.enrol("lacking", "west"), "PUT", path, told).status_code == 200
        yield coordinator


def test_a_reader_sees_what_hospitals_told(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/lacking")
    table = page.locator("#terms table")
    table.wait_for()
    rows = [line.split("\t") for line in table.locator("tbody").inner_text().splitlines()]
    assert rows == [["north", "not told"], ["south", "not told"], ["west", "rate"]]
    assert serious(page) == []


def test_a_study_that_lets_no_column_lack_has_no_such_table(tabs: Tabs) -> None:
    page = tabs.open("/dashboard/whole")
    page.locator("#terms dt").first.wait_for(state="attached")
    assert page.locator("#terms table").count() == 0
