"""The data of the pages: a glance at every study, what changed in one, and the very bytes of its ledger."""

from __future__ import annotations

import hashlib
import json

import pytest

from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.ledger_pages import ledger_page
from server.services.overview import changes, glances, ledger_lines
from tests.factories.forging import forge
from tests.factories.hospital_double import Hospital, update
from tests.factories.studies import FakeClock, open_study, work

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    """Round 1 is released, and round 2 waits for two of three."""
    opened = open_study(coordinator, clients=3)
    work(coordinator)
    for hospital in opened:
        hospital.send(1, update())
    work(coordinator)
    opened[0].send(2, update())
    opened[1].refuse(2)
    return opened


def test_a_glance_says_the_limits_without_what_takes_long(
    coordinator: Coordinator, hospitals: list[Hospital], clock: FakeClock
) -> None:
    clock.sleep(100.0)
    open_study(coordinator, "asthma", clients=2)
    page, more = glances(coordinator, None, 1, None)
    assert ([one.study.study for one in page], more) == (["asthma"], "asthma")
    assert page[0].last_activity == views.at(clock.seconds)
    ((sepsis,), more) = glances(coordinator, "asthma", 5, None)
    assert (sepsis.study.study, more) == ("sepsis", None)
    assert sepsis.last_activity == views.at(clock.seconds - 100.0)
    stated = views.read_budget(coordinator, "sepsis").limits
    assert sepsis.limits == [limit.model_copy(update={"reports": []}) for limit in stated]
    assert [one.study.study for one in glances(coordinator, None, 5, "SEP")[0]] == ["sepsis"]


def test_a_study_whose_rows_differ_is_in_the_list_without_numbers(
    coordinator: Coordinator, hospitals: list[Hospital]
) -> None:
    forge(coordinator, "UPDATE budgets SET max_steps = 99")
    open_study(coordinator, "asthma", clients=2)
    page, _ = glances(coordinator, None, 5, None)
    assert [(one.study.study, one.limits is None) for one in page] == [("asthma", False), ("sepsis", True)]


def test_what_changed_since_an_event_and_who_answered_by_number(
    coordinator: Coordinator, hospitals: list[Hospital]
) -> None:
    everything = changes(coordinator, "sepsis", since=0, after=0, limit=10)
    assert [view.round for view, _ in everything.rounds] == [1, 2]
    assert [counts for _, counts in everything.rounds] == [{"received": 3}, {"received": 1, "refused": 1, "sampled": 1}]
    assert [view.model_version for view, _ in everything.rounds] == [1, None]
    # No name of a hospital, whoever reads.
    assert all(view.clients is None for view, _ in everything.rounds)
    first = changes(coordinator, "sepsis", since=0, after=0, limit=1)
    assert ([view.round for view, _ in first.rounds], first.more) == ([1], True)
    # Nothing new but the round that is under way, whose counts have no events.
    newer = changes(coordinator, "sepsis", since=everything.version, after=0, limit=10)
    assert ([view.round for view, _ in newer.rounds], newer.more) == ([2], False)
    hospitals[2].send(2, update())
    work(coordinator)
    newer = changes(coordinator, "sepsis", since=everything.version, after=0, limit=10)
    assert [(view.round, view.state) for view, _ in newer.rounds] == [(2, "released"), (3, "collecting")]
    assert newer.version > everything.version


def test_where_attendance_is_secret_no_counts_are_told(coordinator: Coordinator) -> None:
    open_study(
        coordinator,
        clients=3,
        scheme="client",
        client_sampling_rate=0.5,
        schedule={"min_clients": 0, "round_deadline_seconds": 600.0},
    )
    work(coordinator)
    # The study may end before: where nobody is drawn no round waits.
    assert all(counts is None for _, counts in changes(coordinator, "sepsis", since=0, after=0, limit=10).rounds)


def test_each_line_is_what_its_entrys_hash_is_of(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    entries = ledger_page(coordinator, "sepsis").entries
    lines = ledger_lines(coordinator, "sepsis", after=0, limit=100).splitlines()
    assert [hashlib.sha256(line).hexdigest() for line in lines] == [entry.sha256 for entry in entries]
    assert json.loads(lines[1])["previous"] == entries[0].sha256
    assert ledger_lines(coordinator, "sepsis", after=1, limit=1).splitlines() == lines[1:2]


def test_an_unknown_study_has_neither(coordinator: Coordinator) -> None:
    with pytest.raises(Rejected, match="unknown-study"):
        changes(coordinator, "nowhere", since=0, after=0, limit=1)
    with pytest.raises(Rejected, match="unknown-study"):
        ledger_lines(coordinator, "nowhere", after=0, limit=1)
