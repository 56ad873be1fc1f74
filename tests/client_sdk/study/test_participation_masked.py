"""A hospital in a masked study: what is paid when a session comes to nothing, and who is told that it left."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from client_sdk.errors import BadAssignment, ConfigurationError, SessionEnded, TrainingStopped
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from client_sdk.guard.policy import Floors
from client_sdk.secure_sum.round import MaskedRound
from client_sdk.secure_sum.session import SecureSumClient
from private_learning.training import LocalTraining
from study_protocol.secure_sum.vectors import VectorSpec
from study_protocol.study.messages import SignedParameters
from study_protocol.study.settings import StudySettings
from study_protocol.wire.tensors import encode
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.hospitals import coordinator, hospital, plain_policy, records, room_when_joining
from tests.factories.secure_sum import World
from tests.factories.settings import MASKING, settings
from tests.factories.wire_answers import problem

LEFT = "PUT /v1/studies/sepsis/rounds/1/secure-sum/left/mercy"
OTHER = b"another model"
REFUSED = "PUT /v1/studies/sepsis/rounds/1/refusals/mercy"


def join(other: Coordinator, directory: Path, **policy: Any) -> Any:
    return hospital(other, directory).join("sepsis", None, records(), policy=plain_policy(**policy), dataset="icu")


def masked_coordinator(chosen: StudySettings | None = None) -> Coordinator:
    """It hands out a session with its assignments, and knows nothing of it."""
    other, world = coordinator(chosen or settings(masked=True)), World(5)
    other.session = world.signed(world.parameters())
    return other


def charges(directory: Path) -> int:
    with HospitalLedger.open(ledger_path(directory, "icu"), read_only=True) as ledger:
        return len(ledger.charges())


def fails(*_: Any) -> None:
    raise SessionEnded("too-few-keys")


def test_nothing_is_charged_when_the_session_ends_while_it_is_prepared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = masked_coordinator()
    looked = 0

    def meddle(request: httpx.Request) -> httpx.Response | None:
        nonlocal looked
        if request.url.path.endswith("/assignment"):
            looked += 1
            return problem(403, "forbidden") if looked == 3 else None
        return None

    # The session is for others and another round: whoever looks at it joins nothing.
    monkeypatch.setattr(SecureSumClient, "advertise", fails)
    other.meddle = meddle
    with pytest.raises(Exception, match="forbidden"):
        join(other, tmp_path)
    assert looked == 3, "it stays and asks again"
    assert (charges(tmp_path), other.updates, other.refusals) == (0, {1: {}}, {1: {}})
    assert LEFT not in other.requests, "a session that has ended waits for nobody"


def test_a_session_must_bear_what_the_hospitals_policy_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Floors] = []

    def prepare(round: MaskedRound, signed: SignedParameters) -> tuple[VectorSpec, ...]:
        asked.append(round._party.floors)
        raise ConfigurationError("seen enough")

    monkeypatch.setattr(MaskedRound, "prepare", prepare)
    masking = MASKING | {"colluders": 2, "min_survivors": 8}
    strict = settings(masked=True, masking=masking, expected_clients=9.0, schedule={"min_clients": 9})
    for name, policy, floors in (
        ("a", {}, Floors(1, 4, False)),
        ("b", {"least_colluders": 2, "least_survivors": 8}, Floors(2, 8, False)),
        ("c", {"allow_three": True}, Floors(1, 3, True)),
        ("d", {"allow_three": True, "least_survivors": 6}, Floors(1, 6, True)),
    ):
        with pytest.raises(ConfigurationError, match="seen enough"):
            join(masked_coordinator(strict), tmp_path / name, **policy)
        assert asked.pop() == floors


def own_limit(other: Coordinator, directory: Path) -> None:
    with room_when_joining():
        outcome = join(other, directory, limits={"instance": {"epsilon": 1e-6, "delta": 1e-5}})
    assert (outcome.rounds_sent, charges(directory)) == (0, 0)
    assert other.refusals[1]["mercy"].code == "own-budget-exceeded"


def overflow(other: Coordinator, directory: Path) -> None:
    other.models[0] = encode({name: array + 3e38 for name, array in other.initial.items()})
    join(other, directory)
    assert (other.refusals[1]["mercy"].code, charges(directory)) == ("weights-out-of-bounds", 0)


def wrong_model(other: Coordinator, directory: Path) -> None:
    def meddle(request: httpx.Request) -> httpx.Response | None:
        named = {"ETag": f'"{hashlib.sha256(OTHER).hexdigest()}"'}
        return httpx.Response(200, content=OTHER, headers=named) if "/models/" in request.url.path else None

    other.meddle = meddle
    with pytest.raises(BadAssignment):
        join(other, directory)
    assert charges(directory) == 0


@pytest.mark.quick("wrong_model")
@pytest.mark.parametrize("story", [own_limit, overflow, wrong_model])
def test_whoever_says_no_after_the_shares_leaves_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, story: Callable[[Coordinator, Path], None]
) -> None:
    # Keys and shares were exchanged; the coordinator here knows no sessions and answers 404, which changes nothing.
    monkeypatch.setattr(MaskedRound, "prepare", lambda self, signed: World(5).vectors)
    other = masked_coordinator()
    story(other, tmp_path)
    assert {LEFT, REFUSED} <= set(other.requests)


def test_training_that_stops_tells_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: Any, **__: Any) -> None:
        raise TrainingStopped("the centre")

    monkeypatch.setattr(MaskedRound, "prepare", lambda self, signed: World(5).vectors)
    monkeypatch.setattr(LocalTraining, "contribution", stops)
    other = masked_coordinator()
    with pytest.raises(TrainingStopped):
        join(other, tmp_path)
    assert charges(tmp_path) == 1
    assert not {LEFT, REFUSED} & set(other.requests)
