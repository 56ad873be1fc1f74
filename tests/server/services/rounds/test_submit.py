"""Every way an update or a refusal can be wrong: its own code, nothing changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from server.db.blobs import update_of
from server.db.tables import ParticipantRow
from server.domain.errors import Rejected
from server.services import views
from server.services.coordinator import Coordinator
from server.services.rounds.submit import begin, submit
from server.services.studies import enrolment
from study_protocol.study.messages import UpdateReceipt
from study_protocol.wire.tensors import UPDATE, Array, TensorError, encode
from tests.factories.hospital_double import MODEL, Hospital, UseCases, update
from tests.factories.settings import ORDERS
from tests.factories.studies import FakeClock, open_study, work

TERMS = tuple(0.1 for _ in (0, *ORDERS))


@pytest.fixture
def hospitals(coordinator: Coordinator) -> list[Hospital]:
    """Round 1 of a parallel study with log-moments, three hospitals."""
    opened = open_study(coordinator, bayesian=True)
    work(coordinator)
    return opened


def participants(coordinator: Coordinator) -> list[tuple[str, str, str | None]]:
    def work(tx: object) -> list[tuple[str, str, str | None]]:
        rows = tx.session.query(ParticipantRow).order_by(ParticipantRow.client)  # type: ignore[attr-defined]
        return [(row.client, row.state, row.sha256) for row in rows]

    return coordinator.database.read("participants", work)


def stored(coordinator: Coordinator, round: int, client: str) -> int:
    return len(coordinator.blobs.hashes(update_of("sepsis", round, client)))


def tensors(**changes: Array) -> bytes:
    update: dict[str, Array] = {UPDATE + name: np.zeros_like(array) for name, array in MODEL.items()}
    log_moments = {"log-moments/filter": np.array([0.1]), "log-moments/moments": np.full(len(ORDERS), 0.1)}
    named = {name.replace("__", "/").replace("_", "-"): array for name, array in changes.items()}
    return encode(update | log_moments | named)


def poisoned(value: float) -> bytes:
    """A body that `encode` would refuse to make."""
    body = bytearray(tensors(update__bias=np.array([1.5, 1.5], np.float32)))
    start = body.find(np.array([1.5], np.float32).tobytes())
    body[start : start + 4] = np.array([value], np.float32).tobytes()
    return bytes(body)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "no safetensors": (lambda: b"not a safetensors file", "malformed"),
    "cut short": (lambda: tensors()[:-1], "malformed"),
    "empty": (lambda: b"", "malformed"),
    "another name": (lambda: tensors(update__more=np.zeros(1, np.float32)), "wrong-names"),
    "another shape": (lambda: tensors(update__bias=np.zeros(3, np.float32)), "wrong-shape"),
    "another type": (lambda: tensors(update__bias=np.zeros(2, np.float64)), "wrong-dtype"),
    "NaN": (lambda: poisoned(float("nan")), "not-finite"),
    "infinity": (lambda: poisoned(float("-inf")), "not-finite"),
    "no log-moments": (lambda: update(0.0), "log-moments-missing"),
    "negative log-moments": (lambda: tensors(log_moments__filter=np.array([-0.1])), "invalid-request"),
    "terms of other orders": (lambda: tensors(log_moments__moments=np.zeros(2)), "wrong-shape"),
}


@pytest.mark.quick("sqlite-NaN", "sqlite-another name")
@pytest.mark.parametrize("case", BAD)
def test_a_bad_body_is_refused_and_changes_nothing(
    coordinator: Coordinator, hospitals: list[Hospital], case: str
) -> None:
    make, code = BAD[case]
    with pytest.raises((Rejected, TensorError)) as refused:
        hospitals[0].send(1, make())
    assert refused.value.code == code
    assert participants(coordinator) == [(f"h{i}", "sampled", None) for i in range(3)]
    assert stored(coordinator, 1, "h0") == 0
    # The good one is still welcome.
    assert hospitals[0].send(1, update(log_moments=TERMS)).created


@pytest.mark.quick("sqlite")
def test_the_same_bytes_again_are_the_same_update(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    first = hospitals[0].send(1, update(log_moments=TERMS))
    again = hospitals[0].send(1, update(log_moments=TERMS))
    assert (first.created, again.created) == (True, False)
    assert first.body == again.body
    assert first.body.sha256 == hashlib.sha256(update(log_moments=TERMS)).hexdigest()


@pytest.mark.quick("sqlite")
def test_other_bytes_are_equivocation(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    hospitals[0].send(1, update(0.1, log_moments=TERMS))
    before = participants(coordinator)
    with pytest.raises(Rejected, match="different-update"):
        hospitals[0].send(1, update(0.2, log_moments=TERMS))
    with pytest.raises(Rejected, match="different-update"):
        hospitals[0].refuse(1)
    assert participants(coordinator) == before


def test_two_uploads_at_once_only_one_is_taken(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    """Both were let in before either was recorded."""
    bodies = [update(0.1, log_moments=TERMS), update(0.2, log_moments=TERMS)]
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    slots = [begin(coordinator, "sepsis", 1, "h0", digest) for digest in digests]
    for i, (slot, body, digest) in enumerate(zip(slots, bodies, digests, strict=True)):
        assert not isinstance(slot, UpdateReceipt)
        with coordinator.blobs.receive(slot.limit) as incoming:
            incoming.write(body)
            if i == 0:
                assert submit(coordinator, slot, incoming, digest).created
            else:
                with pytest.raises(Rejected, match="different-update"):
                    submit(coordinator, slot, incoming, digest)
    assert coordinator.blobs.hashes(update_of("sepsis", 1, "h0")) == [digests[0]]


@pytest.mark.quick("sqlite")
def test_a_body_is_the_one_that_was_signed(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    slot = begin(coordinator, "sepsis", 1, "h0", "0" * 64)
    assert not isinstance(slot, UpdateReceipt)
    with coordinator.blobs.receive(slot.limit) as incoming:
        incoming.write(update(log_moments=TERMS))
        with pytest.raises(Rejected, match="digest-mismatch"):
            submit(coordinator, slot, incoming, "0" * 64)


@pytest.mark.quick("sqlite")
def test_a_body_is_no_larger_than_the_model_allows(hospitals: list[Hospital]) -> None:
    with pytest.raises(Rejected, match="body-too-large"):
        hospitals[0].send(1, bytes(100_000))


@pytest.mark.quick("sqlite")
def test_late_is_late(coordinator: Coordinator, hospitals: list[Hospital], clock: FakeClock) -> None:
    hospitals[0].send(1, update(log_moments=TERMS))
    clock.sleep(600.0)
    for late in (lambda: hospitals[1].send(1, update(log_moments=TERMS)), lambda: hospitals[1].refuse(1)):
        with pytest.raises(Rejected, match="round-closed"):
            late()
    assert hospitals[1].assignment() is None
    # What was recorded in time can still be repeated.
    assert not hospitals[0].send(1, update(log_moments=TERMS)).created
    work(coordinator)
    assert not hospitals[0].send(1, update(log_moments=TERMS)).created


@pytest.mark.quick("sqlite-sepsis-1-h9-not-sampled")
@pytest.mark.parametrize(
    ("study", "round", "client", "code"),
    [
        ("nowhere", 1, "h0", "unknown-study"),
        ("sepsis", 2, "h0", "round-unknown"),
        ("sepsis", 1, "h9", "not-sampled"),
    ],
)
def test_an_address_that_does_not_exist(
    coordinator: Coordinator, hospitals: list[Hospital], study: str, round: int, client: str, code: str
) -> None:
    for send in (
        lambda h: h.send(round, update(log_moments=TERMS)),
        lambda h: h.refuse(round),
    ):
        with pytest.raises(Rejected) as refused:
            send(Hospital(UseCases(coordinator), study, client))
        assert refused.value.code == code


@pytest.mark.quick("sqlite")
def test_the_first_refusal_stays(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    assert hospitals[0].refuse(1, "own-limit").created
    again = hospitals[0].refuse(1, "changed-my-mind")
    assert not again.created
    assert again.body.code == "own-limit"
    with pytest.raises(Rejected, match="different-update"):
        hospitals[0].send(1, update(log_moments=TERMS))
    seen = views.show_round(coordinator, "sepsis", 1, with_clients=True).clients
    assert seen is not None
    assert [(client.state, client.refusal.code if client.refusal else None) for client in seen] == [
        ("refused", "own-limit"),
        ("sampled", None),
        ("sampled", None),
    ]


@pytest.mark.quick("sqlite")
def test_a_client_that_left_in_the_middle_of_a_round(coordinator: Coordinator, hospitals: list[Hospital]) -> None:
    enrolment.withdraw(coordinator, "sepsis", "h2")
    with pytest.raises(Rejected, match="round-closed"):
        hospitals[2].send(1, update(log_moments=TERMS))
    for hospital in hospitals[:2]:
        hospital.send(1, update(log_moments=TERMS))
    work(coordinator)
    # Nobody waits for it: the round is over, without the deadline.
    assert views.show_round(coordinator, "sepsis", 1, with_clients=False).state == "released"


@pytest.mark.quick("sqlite")
def test_an_update_beyond_the_clip_norm_is_refused(coordinator: Coordinator) -> None:
    hospitals = open_study(coordinator, scheme="client")
    work(coordinator)
    with pytest.raises(Rejected, match="clip-exceeded"):
        hospitals[0].send(1, update(0.4))
    assert hospitals[0].send(1, update(0.3)).created
