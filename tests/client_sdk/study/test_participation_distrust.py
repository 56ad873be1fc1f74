"""What a hospital does not believe of its coordinator, and that it stops then."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.budget import Authorisation, replay
from client_sdk.errors import (
    BadAssignment,
    LedgerNotExtended,
    NotTrusted,
    RosterNotPinned,
    UpdateDisputed,
)
from client_sdk.guard.charges import Charge, OwnLimit, epsilon_spent
from client_sdk.study.pinning import as_digits, pin_roster
from client_sdk.study.verifier import active_fingerprint, strangers
from study_protocol.study.messages import Refusal, Roster, RosterEntry
from study_protocol.wire.signing import encode_public_key
from study_protocol.wire.tensors import encode
from tests.factories.hospitals import coordinator, hospital, plain_policy
from tests.factories.participations import join, ledger_of, run_until_forbidden, stop_after
from tests.factories.settings import limit, settings
from tests.factories.wire_answers import problem

# -- what is not believed ------------------------------------------------------------------------------------------


def test_a_coordinator_restored_from_an_older_copy_is_refused(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=6))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    backup = list(other.entries)
    stop_after(other, 3)
    run_until_forbidden(here)
    before = dict(other.updates)
    # The old copy: rounds 2 and 3 never happened there, so the ledger is two rounds shorter.
    other.entries, other.budget, other.round, other.meddle = backup, replay(backup), 1, None
    other.updates = {1: other.updates[1]}
    with pytest.raises(LedgerNotExtended, match="restored from an older copy"):
        join(here)
    assert 2 not in other.updates or "mercy" not in other.updates[2]
    assert before[2]["mercy"]
    assert [refusal.code for refusal in other.refusals[2].values()] == ["ledger-not-extended"]


def test_a_ledger_that_was_rewritten_and_grew_since_is_refused(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=6))
    here = hospital(other, tmp_path)
    stop_after(other, 2)
    run_until_forbidden(here)
    other.meddle = None
    history = [(entry.kind, entry.round, dict(entry.body)) for entry in other.entries]
    other.entries = []
    for kind, number, body in history:
        # The same rounds, one charge made smaller: every hash after it differs.
        other._append(kind, number, body | {"note": "x"} if number == 1 else body)
    with pytest.raises(LedgerNotExtended, match="rewritten, or an older copy of it was restored and written on"):
        join(here)


def test_a_round_that_the_ledger_does_not_reserve_is_refused(tmp_path: Path) -> None:
    other = coordinator()

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/assignment") and other.budget.pending is None:
            other._open_round()
            # Asked to train, but the charge is not in the ledger.
            other.entries.pop()
        return None

    other.meddle = meddle
    with pytest.raises(LedgerNotExtended, match="reservation of round 1"):
        join(hospital(other, tmp_path))


@pytest.mark.quick("client", "model", "settings", "signature")
@pytest.mark.parametrize("change", ["signature", "study", "client", "settings", "model"])
def test_an_assignment_that_is_not_as_it_must_be_is_refused(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    real = other.assignment_for

    def changed(client: str) -> Any:
        body = real(client)
        match change:
            case "study":
                return body.model_copy(update={"study": "stroke"})
            case "client":
                return body.model_copy(update={"client": "grace"})
            case "settings":
                return body.model_copy(update={"settings_sha256": "0" * 64})
            case "model":
                return body.model_copy(update={"model": body.model.model_copy(update={"sha256": "0" * 64})})
        return body

    monkeypatch.setattr(other, "assignment_for", changed)
    if change == "signature":
        other.key = Ed25519PrivateKey.generate()
    with pytest.raises(BadAssignment):
        join(here)
    assert other.updates == {1: {}}
    with ledger_of(tmp_path) as ledger:
        assert ledger.charges() == []
    assert [refusal.code for refusal in other.refusals[1].values()] == ["bad-assignment"]


def test_a_model_of_another_shape_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.models[0] = encode({"weight": other.initial["weight"].repeat(2, axis=1), "bias": other.initial["bias"]})
    with pytest.raises(BadAssignment, match="not one of this task"):
        join(here)


def test_the_same_round_from_another_model_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda request: problem(500, "internal") if "/updates/" in request.url.path else None
    with pytest.raises(Exception, match="internal"):
        join(here)
    other.meddle, other.models[0] = None, encode({n: a + 1 for n, a in other.initial.items()})
    with pytest.raises(BadAssignment, match="another model"):
        join(here)


def test_settings_that_changed_since_the_hospital_joined_are_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    other.settings = settings(noise_multiplier=0.5)
    with pytest.raises(BadAssignment, match="joined under"):
        join(here)


def test_the_reason_for_stopping_is_told_even_where_nobody_listens_any_more(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=6))
    here = hospital(other, tmp_path)
    stop_after(other, 1)
    run_until_forbidden(here)
    # The entry that opened the study, and the one that this hospital joined by.
    other.entries = [*other.entries[:2]]
    other.budget, other.round = replay(other.entries), 0

    def cut(request: httpx.Request) -> httpx.Response | None:
        if "/refusals/" in request.url.path:
            raise httpx.ConnectError("gone")
        return None

    other.meddle = cut
    with pytest.raises(NotTrusted):
        join(here)


def test_a_stranger_in_a_pinned_roster_stops_the_hospital(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    mine = RosterEntry(client="mercy", public_key=here.identity.public_key, state="active")
    here.identity.remember(here.identity.membership("sepsis").model_copy(update={"pinned": (mine,)}))
    stop_after(other, 1)
    run_until_forbidden(here, policy=plain_policy(unpinned_roster="refused"))
    other.meddle = None
    other.members["mole"] = encode_public_key(Ed25519PrivateKey.generate().public_key())
    other._append("roster", None, {"change": "enrolled"})
    with pytest.raises(RosterNotPinned, match="mole"):
        join(here)


def test_a_roster_that_changes_is_pinned_anew_and_nothing_is_lost(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=5))
    here, policy = hospital(other, tmp_path), plain_policy(unpinned_roster="refused")

    def number() -> str:
        with here.client("sepsis") as client:
            return as_digits(active_fingerprint(client.roster("sepsis")))

    def charged() -> int:
        with ledger_of(tmp_path) as ledger:
            return len(ledger.charges())

    def mole_says_no(request: httpx.Request) -> httpx.Response | None:
        # A round ends when everybody has answered it.
        if re.search("/(updates|refusals)/mercy$", request.url.path):
            other.refusals[other.round]["mole"] = Refusal(code="away")
        return None

    first = number()
    pin_roster(here, "sepsis", first)
    stop_after(other, 1)
    run_until_forbidden(here, policy=policy)
    other.meddle = mole_says_no
    hospital(other, tmp_path / "mole", "mole")
    with pytest.raises(RosterNotPinned, match="mole"):
        join(here, policy=policy)
    # The round was refused before anything was paid for it.
    assert list(other.refusals[2]) == ["mole", "mercy"]
    assert charged() == 1
    # The number that was compared is not this roster's.
    with pytest.raises(RosterNotPinned, match="another number"):
        pin_roster(here, "sepsis", first)
    pin_roster(here, "sepsis", number())
    outcome = join(here, policy=policy)
    assert (outcome.reason, outcome.rounds_sent, outcome.rounds_refused) == ("max-steps-reached", 3, 0)
    assert charged() == 1 + 3
    assert [round for round, bodies in other.updates.items() if "mercy" in bodies] == [1, 3, 4, 5]


def test_one_s_own_new_key_needs_no_new_pin_and_everybody_else_s_does(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    old = encode_public_key(Ed25519PrivateKey.generate().public_key())
    # As pinned before both changed their keys.
    pinned = tuple(RosterEntry(client=name, public_key=old, state="active") for name in ("county", "mercy"))
    membership = here.identity.membership("sepsis").model_copy(update={"pinned": pinned})
    roster = Roster(
        study="sepsis",
        members=[RosterEntry(client="mercy", public_key=here.identity.public_key, state="active")],
        fingerprint="0" * 64,
    )
    assert strangers(membership, roster, here.identity.public_key) == []
    assert strangers(membership, roster, old) == ["mercy"]
    other_key = encode_public_key(Ed25519PrivateKey.generate().public_key())
    county = RosterEntry(client="county", public_key=other_key, state="active")
    changed = roster.model_copy(update={"members": [county, *roster.members]})
    assert strangers(membership, changed, here.identity.public_key) == ["county"]
    # Who left is missed by nobody's pin.
    gone = roster.model_copy(update={"members": [county.model_copy(update={"state": "revoked"}), *roster.members]})
    assert strangers(membership, gone, here.identity.public_key) == []
    here.identity.remember(membership)
    assert join(here, policy=plain_policy(unpinned_roster="refused")).rounds_sent == 3


def test_another_update_under_this_name_stops_the_hospital(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda r: problem(409, "different-update") if "/updates/" in r.url.path else None
    with pytest.raises(UpdateDisputed, match="second installation"):
        join(here)


FIXED_PLAN = [limit("instance", epsilon=12.0, enforcement="fixed-plan")]


@pytest.mark.quick("study2")
@pytest.mark.parametrize(
    "study", [{"max_steps": 3}, {"max_steps": 9, "limits": None}, {"max_steps": 3, "limits": FIXED_PLAN}]
)
def test_a_coordinator_that_goes_on_past_the_studys_own_limits_is_refused(
    tmp_path: Path, study: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if study.get("limits", FIXED_PLAN) is None:
        charge = Charge.of(settings())
        three = epsilon_spent([charge] * 3, OwnLimit("instance", 1.0, 1e-5, 4.0))
        # The study's own account takes the noise's cut tails off δ for all its steps, not for these three alone.
        epsilon = three * (1 + 1e-6)
        study["limits"] = [{"level": "instance", "definition": "classical", "epsilon": epsilon, "delta": 1e-5}]
    other = coordinator(settings(**study))
    here = hospital(other, tmp_path)
    # Its budget always says yes; after five rounds it stops asking.
    monkeypatch.setattr(type(other.budget), "authorise", lambda self, *_: Authorisation(self.last_round < 5, "stopped"))
    outcome = join(here)
    assert (outcome.rounds_sent, outcome.rounds_refused) == (3, 2)
    expected = "max-steps-exceeded" if study["max_steps"] == 3 else "study-limit-exceeded"
    assert {other.refusals[r]["mercy"].code for r in (4, 5)} == {expected}


def test_a_ledger_page_without_end_is_not_followed(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    asked: list[str] = []

    def meddle(request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/ledger"):
            asked.append(str(request.url))
            # Always the first entries, whatever was asked for.
            return other._ledger(httpx.Request("GET", "https://x/ledger?after=0"), "mercy")
        return None

    stop_after(other, 1)
    run_until_forbidden(here)
    other.meddle = meddle
    with pytest.raises(LedgerNotExtended):
        join(here)
    assert len(asked) == 1


def test_a_ledger_of_the_same_length_with_another_past_is_refused(tmp_path: Path) -> None:
    other = coordinator()
    here = hospital(other, tmp_path)
    other.meddle = lambda request: problem(500, "internal") if "/updates/" in request.url.path else None
    with pytest.raises(Exception, match="internal"):
        join(here)
    other.meddle, history = None, [(e.kind, e.round, dict(e.body)) for e in other.entries]
    other.entries = []
    for kind, number, body in history:
        other._append(kind, number, body | {"note": "x"})
    with pytest.raises(LedgerNotExtended, match="head is not the one"):
        join(here)
    assert other.updates == {1: {}}
