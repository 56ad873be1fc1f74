"""Which program each hospital runs: kept when it changes, whatever stands in its row."""

from __future__ import annotations

from threading import Event, Thread

import pytest
from sqlalchemy import select, text

from server.db.session import Transaction
from server.db.tables import ClientRow
from server.services import views
from server.services.coordinator import Coordinator
from server.services.identities import MemberIdentity, identify
from server.services.studies import enrolment
from server.services.studies.programs import list_versions, note_program, stored_program
from study_protocol.study.site_versions import SiteVersion
from study_protocol.versions import PROTOCOL, ProgramVersion, program_version
from tests.factories.forging import forge
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.studies import open_study

OLDER = ProgramVersion("0.0.9", 3)
PRESENT = ProgramVersion(program_version(), PROTOCOL)


@pytest.fixture
def study(coordinator: Coordinator) -> str:
    open_study(coordinator, clients=3)
    return "sepsis"


def known(coordinator: Coordinator, client: str) -> ProgramVersion | None:
    (identity,) = identify(coordinator, [("sepsis", client)])
    assert isinstance(identity, MemberIdentity)
    return identity.program


def sites(coordinator: Coordinator) -> dict[str, SiteVersion]:
    return {site.client: site for site in list_versions(coordinator, "sepsis").hospitals}


def test_a_change_is_kept_with_its_time_and_said_of_its_hospital_alone(coordinator: Coordinator, study: str) -> None:
    fingerprint = views.roster(coordinator, study).fingerprint
    assert [known(coordinator, name) for name in ("h0", "h1", "h2")] == [PRESENT] * 3
    enrolled = sites(coordinator)["h0"].since
    assert enrolled is not None
    note_program(coordinator, study, "h1", OLDER)
    assert known(coordinator, "h1") == OLDER
    changed = sites(coordinator)
    assert [changed[name].comparison for name in ("h0", "h1", "h2")] == ["same", "too-old", "same"]
    assert changed["h0"].since == enrolled
    since = changed["h1"].since
    assert since is not None
    assert since >= enrolled
    # The same once more changes no row.
    note_program(coordinator, study, "h1", OLDER)
    assert sites(coordinator)["h1"].since == since
    # What hospitals compare by telephone is of names and keys alone.
    assert views.roster(coordinator, study).fingerprint == fingerprint


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_wrong_value_is_shown_as_unknown_and_written_over_by_the_next_request(
    coordinator: Coordinator, study: str
) -> None:
    for forged in ("program = 'a b'", "program = x'ff'", "program = NULL", "protocol = 0", "protocol = 'x'"):
        forge(coordinator, f"UPDATE clients SET {forged} WHERE name = 'h1'")
        site = sites(coordinator)["h1"]
        assert (site.comparison, site.version, site.protocol) == ("unknown", None, None), forged
        assert known(coordinator, "h1") is None, forged
        assert [member.client for member in views.roster(coordinator, study).members] == ["h0", "h1", "h2"]
        note_program(coordinator, study, "h1", PRESENT)
        assert sites(coordinator)["h1"].comparison == "same", forged
    for forged in ("1e308", "-1e300", "'x'", "x'00'"):
        forge(coordinator, f"UPDATE clients SET program_since = {forged} WHERE name = 'h1'")
        assert (sites(coordinator)["h1"].comparison, sites(coordinator)["h1"].since) == ("same", None), forged


@pytest.mark.parametrize("wrong", [b"0.1", 7, 1.0, None, "a" * 65, "\n", "<b>"])
def test_no_value_of_another_form_is_a_version(wrong: object) -> None:
    assert stored_program(wrong, 4) is None
    assert stored_program("0.1", 4) == ProgramVersion("0.1", 4)


@pytest.mark.parametrize("wrong", [b"4", "4", 4.0, True, None, 0, -1, 2**63])
def test_no_value_of_another_form_is_a_number(wrong: object) -> None:
    assert stored_program("0.1", 1) == ProgramVersion("0.1", 1)
    assert stored_program("0.1", wrong) is None


def test_who_left_is_not_listed(coordinator: Coordinator, study: str) -> None:
    enrolment.withdraw(coordinator, study, "h2")
    assert list(sites(coordinator)) == ["h0", "h1"]


@pytest.mark.parametrize("database_url", ["postgres"], indirect=True)
def test_no_request_waits_for_a_row_that_another_one_holds(coordinator: Coordinator, study: str) -> None:
    held, done = Event(), Event()

    def hold(tx: Transaction) -> None:
        tx.session.execute(select(ClientRow.name).where(ClientRow.name == "h1").with_for_update())
        held.set()
        assert done.wait(30)

    holder = Thread(target=coordinator.database.write, args=("hold", hold))
    holder.start()
    try:
        assert held.wait(30)
        note_program(coordinator, study, "h1", OLDER)
        assert known(coordinator, "h1") == PRESENT
    finally:
        done.set()
        holder.join()
    # The next request names it again.
    note_program(coordinator, study, "h1", OLDER)
    assert known(coordinator, "h1") == OLDER


def test_a_hospital_that_enrols_without_a_name_of_its_program_is_not_known_yet(coordinator: Coordinator) -> None:
    way = UseCases(coordinator)
    open_study(coordinator, clients=2)
    with coordinator.database.engine.begin() as connection:
        # As a study that an older version created for programs without a number.
        connection.execute(text("UPDATE studies SET protocol = 1"))
    late = Hospital(way, "sepsis", "late")
    enrolment.enrol(coordinator, late.enrolment(way.invite("sepsis", "late")), None)
    assert (sites(coordinator)["late"].comparison, sites(coordinator)["late"].since) == ("unknown", None)
