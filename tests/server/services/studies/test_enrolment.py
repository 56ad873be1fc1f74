"""Invitations, enrolment, roster, rotation, leaving, and keys of people."""

from __future__ import annotations

import pytest

from server.db.people_tables import ApiKeyRow
from server.db.tables import InvitationRow, UsedTokenRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator, Written
from server.services.identities import MemberIdentity, identify
from server.services.people import keys
from server.services.rounds.assign import find_assignment
from server.services.studies import enrolment, lifecycle
from server.services.studies.enrolment import invite, revoke, rotate_key, use_token, withdraw
from study_protocol.study.messages import Enrolment, EnrolmentRequest, InvitationCreate
from study_protocol.study.people import ApiKeyCreate
from study_protocol.versions import PROTOCOL, ProgramVersion, program_version
from study_protocol.wire.signing import SigningError, roster_fingerprint
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.studies import FakeClock, open_study, work

PROGRAM = ProgramVersion(program_version(), PROTOCOL)


def enrol(coordinator: Coordinator, request: EnrolmentRequest) -> Written[Enrolment]:
    return enrolment.enrol(coordinator, request, PROGRAM)


def member(coordinator: Coordinator, study: str, client: str) -> MemberIdentity | None:
    (found,) = identify(coordinator, [(study, client)])
    assert not isinstance(found, Exception)
    return found


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    return open_study(coordinator, clients=2)


def token_for(coordinator: Coordinator, client: str = "h9", seconds: int = 3600) -> str:
    request = InvitationCreate(client=client, expires_in_seconds=seconds)
    return invite(coordinator, "sepsis", request).token


@pytest.fixture
def newcomer(coordinator: Coordinator, hospitals: list[Hospital]) -> Hospital:
    return Hospital(UseCases(coordinator), "sepsis", "h9")


@pytest.mark.quick("sqlite")
def test_a_token_is_good_once_and_its_holder_may_ask_again(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = token_for(coordinator)
    assert token.startswith("wri_")
    assert token.endswith(coordinator.signer.fingerprint)
    first = enrol(coordinator, newcomer.enrolment(token))
    again = enrol(coordinator, newcomer.enrolment(token))
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.coordinator_key == coordinator.signer.public_key
    with pytest.raises(Rejected, match="invitation-used"):
        enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(token))


@pytest.mark.quick("sqlite-another id", "sqlite-another prefix", "sqlite-another secret", "sqlite-cut short")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-70],
        lambda token: token.replace("wri_", "wrk_"),
        lambda token: "_".join([*token.split("_")[:2], "0" * 64, token.split("_")[3]]),
        lambda token: "_".join(["wri", "0" * 16, *token.split("_")[2:]]),
    ],
    ids=["cut short", "another prefix", "another secret", "another id"],
)
def test_a_token_is_good_only_whole(coordinator: Coordinator, newcomer: Hospital, spoil: object) -> None:
    token = spoil(token_for(coordinator))  # type: ignore[operator]
    with pytest.raises(Rejected, match="invitation-unknown"):
        enrol(coordinator, newcomer.enrolment(token))


@pytest.mark.quick("sqlite")
def test_a_token_expires(coordinator: Coordinator, newcomer: Hospital, clock: FakeClock) -> None:
    token = token_for(coordinator, seconds=60)
    clock.sleep(60)
    with pytest.raises(Rejected, match="invitation-expired"):
        enrol(coordinator, newcomer.enrolment(token))


@pytest.mark.quick("sqlite")
def test_a_key_must_be_proven(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = token_for(coordinator)
    stolen = EnrolmentRequest(
        token=token,
        public_key=newcomer.public_key,
        proof=Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(token).proof,
    )
    with pytest.raises(SigningError, match="not the signer"):
        enrol(coordinator, stolen)
    assert enrol(coordinator, newcomer.enrolment(token)).created


@pytest.mark.quick("sqlite")
def test_no_secret_is_stored(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = token_for(coordinator)
    key = keys.create_key(coordinator, ApiKeyCreate(role="viewer", name="Ada")).key
    assert key is not None
    rows = coordinator.database.read(
        "rows", lambda tx: [vars(row) for kind in (InvitationRow, ApiKeyRow) for row in tx.session.query(kind)]
    )
    assert token.split("_")[2] not in str(rows)
    assert key.split("_")[2] not in str(rows)


@pytest.mark.quick("sqlite")
def test_nobody_can_be_invited_into_anothers_place(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    with pytest.raises(Rejected, match="frozen"):
        token_for(coordinator, "h0")
    two = [token_for(coordinator), token_for(coordinator)]
    enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(two[0]))
    with pytest.raises(Rejected, match="invitation-used"):
        enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(two[1]))


@pytest.mark.quick("sqlite")
def test_a_finished_study_admits_nobody(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = token_for(coordinator)
    lifecycle.act(coordinator, "sepsis", "stop")
    with pytest.raises(Rejected, match="study-finished"):
        enrol(coordinator, newcomer.enrolment(token))
    with pytest.raises(Rejected, match="study-finished"):
        token_for(coordinator, "h8")


def test_the_fingerprint_covers_the_active_members(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    both = views.roster(coordinator, "sepsis")
    assert both.fingerprint == roster_fingerprint("sepsis", [(h.name, h.public_key) for h in hospitals])
    withdraw(coordinator, "sepsis", "h1")
    one = views.roster(coordinator, "sepsis")
    assert one.fingerprint == roster_fingerprint("sepsis", [("h0", hospitals[0].public_key)])
    assert [(member.client, member.state) for member in one.members] == [("h0", "active"), ("h1", "withdrawn")]


@pytest.mark.quick("sqlite")
def test_a_rotated_key_replaces_the_old_one(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    before = views.roster(coordinator, "sepsis").fingerprint
    new = Hospital(UseCases(coordinator), "sepsis", "h0")
    for _ in range(2):
        entry = rotate_key(coordinator, "sepsis", "h0", new.rotation())
        assert entry.public_key == new.public_key
    known = member(coordinator, "sepsis", "h0")
    assert known is not None
    assert known.public_key == new.public_key
    assert views.roster(coordinator, "sepsis").fingerprint != before
    with pytest.raises(SigningError):
        rotate_key(coordinator, "sepsis", "h1", new.rotation())


@pytest.mark.quick("sqlite")
def test_a_client_that_left_is_out_however_it_left(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    work(coordinator)
    for _ in range(2):
        assert revoke(coordinator, "sepsis", "h0").state == "revoked"
        assert withdraw(coordinator, "sepsis", "h1").state == "withdrawn"
    states = [known.state for name in ("h0", "h1") if (known := member(coordinator, "sepsis", name))]
    assert states == ["revoked", "withdrawn"]
    for client in ("h0", "h1"):
        with pytest.raises(Rejected, match="revoked"):
            find_assignment(coordinator, "sepsis", client)
    with pytest.raises(Rejected, match="revoked"):
        rotate_key(coordinator, "sepsis", "h1", hospitals[1].rotation())
    # A revocation cannot be turned into a withdrawal.
    assert withdraw(coordinator, "sepsis", "h0").state == "revoked"


@pytest.mark.quick("sqlite")
def test_a_request_token_is_used_once_and_forgotten_when_it_has_expired(
    coordinator: Coordinator, hospitals: list[Hospital], clock: FakeClock
) -> None:
    use_token(coordinator, "sepsis", "h0", "a" * 16)
    use_token(coordinator, "sepsis", "h1", "a" * 16)
    with pytest.raises(Rejected, match="replayed"):
        use_token(coordinator, "sepsis", "h0", "a" * 16)
    clock.sleep(121)
    use_token(coordinator, "sepsis", "h0", "b" * 16)
    left = coordinator.database.read("left", lambda tx: [row.token_id for row in tx.session.query(UsedTokenRow)])
    assert left == ["b" * 16]
