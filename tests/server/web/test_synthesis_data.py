"""Synthetic records on the dashboard: shares beside the released answers, and what a reader sees in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from server.services.queries import records
from synthesis.released import records_of
from tests.factories.live_coordinator import Live, code_of, live
from tests.factories.questions import patients
from tests.harness import dashboard_states as states
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

ADDRESS = "/dashboard/synthetic/synthesis"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), long_poll_seconds=0.2) as coordinator:
        states.seed_synthesis(coordinator)
        yield coordinator


def shares(here: Live, query: str, study: str = "synthetic") -> dict[str, Any]:
    return here.send("GET", f"/dashboard/{study}/synthesis/shares.json?{query}", here.viewer_key).json()


@pytest.mark.slow
def test_how_far_the_questions_have_come_is_told_to_readers(here: Live) -> None:
    assert here.send("GET", f"{ADDRESS}.json").status_code == 401
    found = here.send("GET", f"{ADDRESS}.json", here.viewer_key).json()
    assert [one["query"] for one in found["answered"]] == list(range(1, found["stages"] + 1))
    assert found["next_title"] is None
    begun = here.send("GET", "/dashboard/synthetic-begun/synthesis.json", here.viewer_key).json()
    assert (len(begun["answered"]), begun["stages"]) == (1, 3)
    queries = here.operator("GET", "/v1/studies/synthetic-begun/queries").json()["queries"]
    assert begun["next_sha256"] == queries[1]["sha256"]
    assert shares(here, "column=age", "synthetic-begun")["synthetic"] is None


def test_released_and_synthetic_shares_are_those_of_the_patients_within_the_noise(here: Live) -> None:
    everybody = [patients(400, place) for place in range(3)]
    truth = np.mean(np.concatenate([each["sex"] for each in everybody]) == "f")
    found = shares(here, "column=sex")
    place = found["labels"][0].index("f")
    assert abs(found["released"][place][0] - truth) <= 2.5 * found["interval"]
    for query in ("column=age", "column=sex", "column=age&by=sex", "column=sex&by=age", "column=age&by=pressure"):
        found = shares(here, query)
        assert np.sum(found["synthetic"]) == pytest.approx(1)
        released = np.array(found["released"])
        assert np.sum(released) == pytest.approx(1)
        assert released.shape == np.shape(found["synthetic"])
        assert list(released.shape)[: len(found["labels"])] == [len(each) for each in found["labels"]]
        # The records are made of all answers: one alone differs by its noise, and by that of the others.
        assert np.abs(released - np.array(found["synthetic"])).max() <= 6 * found["interval"]


def test_the_synthetic_shares_are_those_of_the_file_that_is_made_of_the_answers(here: Live) -> None:
    state = records.progress(here.coordinator, "synthetic")
    cells = records_of(state.synthesis, state.chain)
    found = shares(here, "column=age&by=sex")
    due = np.zeros(np.shape(found["synthetic"]))
    np.add.at(due, (cells[:, 0], cells[:, 2]), 1 / len(cells))
    assert np.array(found["synthetic"]) == pytest.approx(due)
    assert shares(here, "column=sex&by=age")["synthetic"] == np.array(found["synthetic"]).T.tolist()


@pytest.mark.parametrize("query", ["column=nowhere", "column=age&by=nowhere", "column=age&by=age"])
def test_columns_that_are_not_there_are_named(here: Live, query: str) -> None:
    answer = here.operator("GET", f"{ADDRESS}/shares.json?{query}")
    assert code_of(answer)[1] == "invalid-request"


@pytest.mark.slow
@pytest.mark.parametrize("phone", [False, True], ids=["desk", "phone"])
def test_a_reader_chooses_columns_and_sees_both(tabs: Tabs, phone: bool) -> None:
    page = tabs.open("/dashboard/synthetic#synthesis", phone=phone)
    page.locator("#compared table").wait_for()
    assert "Released" in page.locator("#compared").inner_text()
    assert serious(page) == []
    page.get_by_label("Crossed with").select_option("sex")
    page.locator("#compared .pair table").nth(1).wait_for()
    assert page.locator("#compared td.heat").count() > 10
    assert serious(page) == []
    page.goto("/dashboard/synthetic-begun#synthesis")
    page.locator("#synthesis p", has_text="Question 2 of 3").wait_for()
