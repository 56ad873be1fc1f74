"""The control chart of a released model on the study's page, as a reader sees it in Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from server.services import views
from server.services.queries import ask, show
from study_protocol.documents.kept_windows import kept_in_words
from study_protocol.study.control_chart import MEASURES, alarms_of, figures_of, rule_in_words, threshold_of
from study_protocol.study.monitoring import MonitoringSettings
from study_protocol.study.queries import Consent
from study_protocol.wire.tensors import ANSWER_TENSOR, encode
from tests.factories.hospital_double import Hospital, update
from tests.factories.live_coordinator import Live, live
from tests.factories.monitored_studies import SECTION, later_patients, monitored_study, monitoring
from tests.factories.studies import FakeClock
from tests.harness import dashboard_states as states
from tests.harness.page_layout import faults
from tests.harness.screenshots import ready, settled_charts
from tests.server.web.conftest import Tabs
from tests.server.web.test_accessible import serious

pytestmark = pytest.mark.slow
STUDY = "monitored"
# The clock stands at 15 January 2027: three windows are over, and the fourth ends on 27 March.
WINDOWS = SECTION | {"first_day": "2026-04-01", "wait_days": 5}


def seeded(here: Live, name: str, **section: Any) -> MonitoringSettings:
    """Window 1 is as it should be, in window 2 the slope is a third, windows 3 and 4 were not asked about."""
    chosen = monitored_study(WINDOWS | section, masked=False, max_steps=1, sampling_rate=1.0)
    hospitals = states.open_study(here, name, "A model and later patients", chosen, start=True)
    here.work()
    number = views.list_rounds(here.coordinator, name, with_clients=False).rounds[-1].round
    for hospital in hospitals:
        hospital.send(number, update(0.0))
    here.work()
    rule = monitoring(**WINDOWS | section)
    for window, slope in ((1, 1.0), (2, 0.35)):
        answer(here, name, hospitals, rule, window, slope)
    return rule


def answer(
    here: Live, study: str, hospitals: list[Hospital], rule: MonitoringSettings, window: int, slope: float
) -> None:
    """4,000 patients at each hospital, so that the noise decides nothing."""
    own = here.coordinator
    model = here.operator("GET", f"/v1/studies/{study}").json()["model"]["version"]
    number = ask.ask(own, study, rule.document(window, model)).body.number
    for hospital in hospitals:
        ask.consent(own, study, number, hospital.name, Consent(allowed=True))
    here.work()
    query = show.show_query(own, study, number, with_clients=True)
    assert query.round is not None
    question = query.document.question
    for seed, hospital in enumerate(hospitals):
        columns = later_patients(np.random.default_rng([window, seed]), 4000, slope)
        total = question.total(columns, question.grid().spacing)
        hospital.send(query.round, encode({ANSWER_TENSOR: np.rint(total)}))
    here.work()
    assert show.show_query(own, study, number, with_clients=True).state == "answered"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live(tmp_path_factory.mktemp("home"), time_of_day=FakeClock(), long_poll_seconds=0.2) as coordinator:
        seeded(coordinator, STUDY)
        plain = states.seeded.settings("parallel", rounds=60, epsilons=states.BOTH, **states.SETTINGS)
        states.open_study(coordinator, "resting", "Falls on the ward", plain)
        yield coordinator


def told(here: Live, study: str = STUDY, query: str = "") -> Any:
    return here.send("GET", f"/dashboard/{study}/queries.json{query}", here.viewer_key).json()["later_patients"]


def test_the_chart_is_that_of_the_signed_answers_whatever_page_is_read(here: Live) -> None:
    chart, rule = told(here), monitoring(**WINDOWS)
    assert told(here, query="?after=2") == chart
    signed = [here.operator("GET", f"/v1/studies/{STUDY}/queries/{number}").json() for number in (1, 2)]
    answers = [show.show_query(here.coordinator, STUDY, query["number"], with_clients=False) for query in signed]
    figures = {
        place: figures_of(query.answered.published.answer, threshold_of(rule))
        for place, query in enumerate(answers, 1)
        if query.answered is not None
    }
    for place, window in enumerate(chart["windows"][:2], 1):
        expected = [figures[place][measure] for measure in MEASURES]
        assert [(each["estimate"], each["low"], each["high"]) for each in window["figures"]] == [
            (each.estimate, each.low, each.high) for each in expected
        ]
    assert chart["alarms"] == [alarm.in_words for alarm in alarms_of(rule, figures)] != []
    assert chart["rule"] == rule_in_words(rule)
    assert [measure["reference"] for measure in chart["measures"]] == [1.0, 0.0, None, None]
    assert [window["state"] for window in chart["windows"]] == ["answered", "answered", "not asked", "not asked"]
    assert [window["due_on"] for window in chart["windows"]] == ["2026-07-05", "2026-10-03", "2027-01-01", "2027-04-01"]


def test_what_is_kept_for_the_windows_stands_in_what_hospitals_agreed_to(here: Live) -> None:
    sentences = here.send("GET", f"/dashboard/{STUDY}/terms.json", here.viewer_key).json()["sentences"]
    (line,) = kept_in_words(monitored_study(WINDOWS, masked=False, max_steps=1, sampling_rate=1.0))
    assert {"about": "monitoring", "text": line} in sentences


def test_the_first_window_is_the_line_where_the_settings_say_so(here: Live) -> None:
    seeded(here, "against-first", reference="first-window")
    chart = told(here, "against-first")
    first = [figure["estimate"] for figure in chart["windows"][0]["figures"]]
    assert [measure["reference"] for measure in chart["measures"]] == [first[0], first[1], None, None]


@pytest.mark.parametrize(("phone", "theme"), [(False, "light"), (False, "dark"), (True, "light"), (True, "dark")])
def test_a_reader_sees_chart_alarms_and_windows_to_come(here: Live, tabs: Tabs, phone: bool, theme: str) -> None:
    page = tabs.open(f"/dashboard/{STUDY}", phone=phone, theme=theme)
    card = page.locator("#later-patients")
    card.locator("table").wait_for()
    ready(page)
    settled_charts(page)
    shown, chart = " ".join(card.inner_text().split()), told(here)
    for words in (*chart["alarms"], chart["rule"], "due 2027-04-01", "Net benefit at 0.22"):
        assert words in shown
    assert card.locator("tbody tr").count() == 4
    assert card.locator(".chart svg").count() == len(MEASURES)
    for place in range(len(MEASURES)):
        # A point for each answered window, its interval, and the dashed line of the two that have an alarm.
        own = card.locator(".chart").nth(place)
        assert own.locator(".mark-symbol path").count() == 2
        assert own.locator(".mark-rule line[stroke-dasharray]").count() == (1 if place < 2 else 0)
    assert serious(page) == []
    assert faults(page, phone=phone) == []
    card.get_by_role("link", name="answered").first.click()
    page.locator("#question .badge").wait_for()
    assert page.url.endswith("#question-1")


def test_a_study_that_monitors_nothing_shows_no_chart(here: Live, tabs: Tabs) -> None:
    page = tabs.open("/dashboard/resting")
    page.locator("#proof").wait_for()
    assert page.locator("#later-patients").is_hidden()


def test_a_changed_answer_is_no_figure_and_the_other_windows_stay(here: Live) -> None:
    seeded(here, "changed")
    before = told(here, "changed")
    with here.coordinator.database.engine.begin() as connection:
        connection.execute(
            text(
                'UPDATE queries SET answer = replace(answer, \'"signature": "\', \'"signature": "0\') '
                "WHERE number = 2 AND study_id = (SELECT id FROM studies WHERE name = 'changed')"
            )
        )
    after = told(here, "changed")
    assert after["windows"][0] == before["windows"][0]
    assert after["windows"][1]["figures"] == [None] * len(MEASURES)
    assert after["alarms"] == []
