"""Invitations, enrolment, roster, rotation, leaving, and keys of people."""

from __future__ import annotations

import pytest

from server.db.tables import InvitationRow, OperatorKeyRow, UsedTokenRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.identities import MemberIdentity, identify
from server.services.rounds.assign import find_assignment
from server.services.studies import enrolment, lifecycle, operators
from study_protocol.study.messages import EnrolmentRequest, InvitationCreate, OperatorKeyCreate
from study_protocol.wire.signing import SigningError, roster_fingerprint
from tests.factories.hospital_double import Hospital, UseCases
from tests.factories.studies import FakeClock, open_study, work


def member(coordinator: Coordinator, study: str, client: str) -> MemberIdentity | None:
    (found,) = identify(coordinator, [(study, client)])
    assert not isinstance(found, Exception)
    return found


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    return open_study(coordinator, clients=2)


def test_members_are_known_by_study_and_name_alone_or_together(
    coordinator: Coordinator, hospitals: list[Hospital]
) -> None:
    asked = [("sepsis", hospital.name) for hospital in hospitals]
    asked += [("sepsis", "nobody"), ("none", hospitals[0].name), ("sepsis", "\0")]
    alone = [member(coordinator, *one) for one in asked]
    assert [known is not None for known in alone] == [True, True, False, False, False]
    assert identify(coordinator, asked) == alone


def invite(coordinator: Coordinator, client: str = "h9", seconds: int = 3600) -> str:
    request = InvitationCreate(client=client, expires_in_seconds=seconds)
    return enrolment.invite(coordinator, "sepsis", request).token


@pytest.fixture
def newcomer(coordinator: Coordinator, hospitals: list[Hospital]) -> Hospital:
    return Hospital(UseCases(coordinator), "sepsis", "h9")


def test_a_token_is_good_once_and_its_holder_may_ask_again(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = invite(coordinator)
    assert token.startswith("wri_")
    assert token.endswith(coordinator.signer.fingerprint)
    first = enrolment.enrol(coordinator, newcomer.enrolment(token))
    again = enrolment.enrol(coordinator, newcomer.enrolment(token))
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.coordinator_key == coordinator.signer.public_key
    with pytest.raises(Rejected, match="invitation-used"):
        enrolment.enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(token))


@pytest.mark.quick(
    "postgresql-cut short", "sqlite-another id", "sqlite-another prefix", "sqlite-another secret", "sqlite-cut short"
)
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
    token = spoil(invite(coordinator))  # type: ignore[operator]
    with pytest.raises(Rejected, match="invitation-unknown"):
        enrolment.enrol(coordinator, newcomer.enrolment(token))


def test_a_token_expires(coordinator: Coordinator, newcomer: Hospital, clock: FakeClock) -> None:
    token = invite(coordinator, seconds=60)
    clock.sleep(60)
    with pytest.raises(Rejected, match="invitation-expired"):
        enrolment.enrol(coordinator, newcomer.enrolment(token))


def test_a_key_must_be_proven(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = invite(coordinator)
    stolen = EnrolmentRequest(
        token=token,
        public_key=newcomer.public_key,
        proof=Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(token).proof,
    )
    with pytest.raises(SigningError, match="not the signer"):
        enrolment.enrol(coordinator, stolen)
    assert enrolment.enrol(coordinator, newcomer.enrolment(token)).created


def test_no_secret_is_stored(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = invite(coordinator)
    key = operators.create_key(coordinator, OperatorKeyCreate(role="viewer")).key
    assert key is not None
    rows = coordinator.database.read(
        "rows", lambda tx: [vars(row) for kind in (InvitationRow, OperatorKeyRow) for row in tx.session.query(kind)]
    )
    assert token.split("_")[2] not in str(rows)
    assert key.split("_")[2] not in str(rows)


def test_nobody_can_be_invited_into_anothers_place(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    with pytest.raises(Rejected, match="frozen"):
        invite(coordinator, "h0")
    two = [invite(coordinator), invite(coordinator)]
    enrolment.enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(two[0]))
    with pytest.raises(Rejected, match="invitation-used"):
        enrolment.enrol(coordinator, Hospital(UseCases(coordinator), "sepsis", "h9").enrolment(two[1]))


def test_a_finished_study_admits_nobody(coordinator: Coordinator, newcomer: Hospital) -> None:
    token = invite(coordinator)
    lifecycle.act(coordinator, "sepsis", "stop")
    with pytest.raises(Rejected, match="study-finished"):
        enrolment.enrol(coordinator, newcomer.enrolment(token))
    with pytest.raises(Rejected, match="study-finished"):
        invite(coordinator, "h8")


def test_who_signs_for_a_client(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    known = member(coordinator, "sepsis", "h0")
    assert known is not None
    assert (known.public_key, known.state) == (hospitals[0].public_key, "active")
    invite(coordinator)
    for study, client in (("nowhere", "h0"), ("sepsis", "h9"), ("sepsis", "h8"), ("", ""), ("sep\0sis", "h\0")):
        assert member(coordinator, study, client) is None


def test_the_fingerprint_covers_the_active_members(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    both = views.roster(coordinator, "sepsis")
    assert both.fingerprint == roster_fingerprint("sepsis", [(h.name, h.public_key) for h in hospitals])
    enrolment.withdraw(coordinator, "sepsis", "h1")
    one = views.roster(coordinator, "sepsis")
    assert one.fingerprint == roster_fingerprint("sepsis", [("h0", hospitals[0].public_key)])
    assert [(member.client, member.state) for member in one.members] == [("h0", "active"), ("h1", "withdrawn")]


def test_a_rotated_key_replaces_the_old_one(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    before = views.roster(coordinator, "sepsis").fingerprint
    new = Hospital(UseCases(coordinator), "sepsis", "h0")
    for _ in range(2):
        entry = enrolment.rotate_key(coordinator, "sepsis", "h0", new.rotation())
        assert entry.public_key == new.public_key
    known = member(coordinator, "sepsis", "h0")
    assert known is not None
    assert known.public_key == new.public_key
    assert views.roster(coordinator, "sepsis").fingerprint != before
    with pytest.raises(SigningError):
        enrolment.rotate_key(coordinator, "sepsis", "h1", new.rotation())


def test_a_client_that_left_is_out_however_it_left(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    work(coordinator)
    for _ in range(2):
        assert enrolment.revoke(coordinator, "sepsis", "h0").state == "revoked"
        assert enrolment.withdraw(coordinator, "sepsis", "h1").state == "withdrawn"
    states = [known.state for name in ("h0", "h1") if (known := member(coordinator, "sepsis", name))]
    assert states == ["revoked", "withdrawn"]
    for client in ("h0", "h1"):
        with pytest.raises(Rejected, match="revoked"):
            find_assignment(coordinator, "sepsis", client)
    with pytest.raises(Rejected, match="revoked"):
        enrolment.rotate_key(coordinator, "sepsis", "h1", hospitals[1].rotation())
    # A revocation cannot be turned into a withdrawal.
    assert enrolment.withdraw(coordinator, "sepsis", "h0").state == "revoked"


def test_a_request_token_is_used_once_and_forgotten_when_it_has_expired(
    coordinator: Coordinator, hospitals: list[Hospital], clock: FakeClock
) -> None:
    enrolment.use_token(coordinator, "sepsis", "h0", "a" * 16)
    enrolment.use_token(coordinator, "sepsis", "h1", "a" * 16)
    with pytest.raises(Rejected, match="replayed"):
        enrolment.use_token(coordinator, "sepsis", "h0", "a" * 16)
    clock.sleep(121)
    enrolment.use_token(coordinator, "sepsis", "h0", "b" * 16)
    left = coordinator.database.read("left", lambda tx: [row.token_id for row in tx.session.query(UsedTokenRow)])
    assert left == ["b" * 16]


def test_keys_of_people(coordinator: Coordinator) -> None:
    made = operators.create_key(coordinator, OperatorKeyCreate(role="operator", label="ward 3"))
    assert made.key is not None
    assert operators.authenticate(coordinator, made.key) == operators.Operator(made.id, "operator")
    listed = operators.list_keys(coordinator).keys
    assert [(key.id, key.label, key.key) for key in listed] == [(made.id, "ward 3", None)]
    for bad in ("", "wrk", made.key[:-1], made.key + "0", made.key.replace("wrk_", "wri_"), f"wrk_{'0' * 16}_x"):
        with pytest.raises(Rejected, match="bad-token"):
            operators.authenticate(coordinator, bad)
    revoked = operators.revoke_key(coordinator, made.id)
    assert operators.revoke_key(coordinator, made.id) == revoked
    with pytest.raises(Rejected, match="bad-token"):
        operators.authenticate(coordinator, made.key)
    with pytest.raises(Rejected, match="unknown-key"):
        operators.revoke_key(coordinator, "0" * 16)
