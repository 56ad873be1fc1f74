"""A coordinator that says of hospitals what they have not said: none answers what nobody there has approved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import text

from client_sdk.errors import ConflictError
from client_sdk.guard.approvals import Approvals
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from server.services.queries import ask
from study_protocol.study.queries import Consent
from tests.factories.asking import Site, answered, answering_policy, document, drive, enrolled, operator
from tests.factories.databases import SQLITE_FIRST
from tests.factories.live_coordinator import Live, live
from tests.factories.settings import statistics_settings
from tests.factories.studies import FakeClock

COUNT = document(kind="count", noise_multiplier=5.0)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "home", time_of_day=FakeClock(), long_poll_seconds=0.2) as coordinator:
        yield coordinator


def decide(sites: Sequence[Site], *, approved: bool) -> None:
    for site in sites:
        Approvals(site.directory, "registry").decide(COUNT.digest(), approved=approved, words="a count")


def charged(site: Site) -> int:
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        return len(own.charges())


def refusals(here: Live, round: int) -> set[tuple[str | None, str | None]]:
    with operator(here) as lead:
        shown = next(one for one in lead.rounds("registry").rounds if one.round == round)
    return {(one.client, None if one.refusal is None else one.refusal.code) for one in shown.clients or []}


@pytest.mark.quick("ask-True-False")
@pytest.mark.parametrize(
    ("queries", "denied", "masked"), [("ask", False, True), ("ask", True, False), ("allow", True, True)]
)
def test_a_forged_yes_is_refused_by_every_hospital(
    here: Live, tmp_path: Path, queries: str, denied: bool, masked: bool
) -> None:
    policy = answering_policy(statistics={"queries": queries})
    sites = enrolled(here, tmp_path, statistics_settings(masked=masked, epsilon=15.0), policy=policy)
    if denied:
        decide(sites, approved=False)
    with operator(here) as lead:
        number = lead.ask_query("registry", COUNT).number
        # As whoever holds the coordinator can: hospitals say nothing, or no, and it says that they all said yes.
        for site in sites:
            ask.consent(here.coordinator, "registry", number, site.name, Consent(allowed=True))
        here.work()
        assert lead.query("registry", number).state == "asked"
        for site in sites:
            site.start()
        drive(here, lambda: lead.query("registry", number).state == "failed", sites=sites)
        assert refusals(here, 1) == {(site.name, "not-approved") for site in sites}
        assert [charged(site) for site in sites] == [0] * len(sites)
        assert lead.budget("registry").limits[0].spent == 0
        if denied:
            lead.move_study("registry", "stop")
        else:
            # Once people have looked at it, the same question is answered.
            decide(sites, approved=True)
            lead.ask_query("registry", COUNT)
            drive(here, lambda: lead.query("registry", number).state == "answered", sites=sites)
            lead.move_study("registry", "stop")
    drive(here, lambda: not any(site.is_alive() for site in sites), sites=sites)


SET_BACK = "UPDATE queries SET state = 'failed', reason = 'stopped', answer = NULL"


@pytest.mark.slow
@SQLITE_FIRST
@pytest.mark.parametrize("dishonest", [False, True])
def test_one_approval_is_not_answered_twice(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dishonest: bool
) -> None:
    """Somebody sets the answered question back in the database. dishonest: the coordinator itself does not compare."""
    home, options = tmp_path / "home", {"time_of_day": FakeClock(), "long_poll_seconds": 0.2}
    with live(home, database_url=database_url, **options) as here, operator(here) as lead:
        chosen, policy = statistics_settings(epsilon=15.0), answering_policy(statistics={"queries": "ask"})
        sites = enrolled(here, tmp_path, chosen, names=("alpha", "beta", "gamma", "delta"), policy=policy)
        decide(sites, approved=True)
        for site in sites:
            site.start()
        found = answered(here, sites, COUNT)
        assert found.state == "answered"
        spent = lead.budget("registry").limits[0].spent
        with here.coordinator.database.engine.begin() as connection:
            connection.execute(text(SET_BACK))
        if dishonest:
            for module in ("server.db.tamper_check", "server.services.queries.ask", "server.services.rounds.open"):
                monkeypatch.setattr(f"{module}.require_queries_as_charged", lambda *_: None)
            for module in ("server.services.queries.ask", "server.services.rounds.open"):
                monkeypatch.setattr(f"{module}.round_that_opened", lambda *_: None)
            lead.ask_query("registry", COUNT)
            drive(here, lambda: (2, "abandoned") in ((r.round, r.state) for r in lead.rounds("registry").rounds))
            codes = {code for _, code in refusals(here, 2)}
            assert codes & {"opened-before"}
            assert codes <= {"opened-before", None}
            assert lead.budget("registry").limits[0].spent == spent
            lead.move_study("registry", "stop")
        else:
            with pytest.raises(ConflictError) as refused:
                lead.ask_query("registry", COUNT)
            assert (refused.value.problem.extra or {})["stop_reason"] == "database-differs"
        for site in sites:
            site.join(30)
            assert charged(site) == 1
