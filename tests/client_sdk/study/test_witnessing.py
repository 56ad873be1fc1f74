"""A hospital vouches for what it saw, once and only forwards, and looks up what others vouch for."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.budget.budget import Authorisation
from client_sdk.errors import EvidenceKept, LedgerContradicted, LedgerForked, LedgerNotExtended
from study_protocol.study.messages import LedgerHead, Refusal
from study_protocol.study.witness import sign_head
from study_protocol.wire.signing import encode_public_key
from tests.factories.coordinator_in_process import Coordinator
from tests.factories.dying import Killed, dying_at
from tests.factories.hospitals import coordinator, hospital, one_round_policy, room_when_joining
from tests.factories.participations import join, ledger_of, run_until_forbidden, stop_after
from tests.factories.settings import limit, settings


def heads(other: Coordinator) -> list[tuple[int, str]]:
    return [(w.head.entries, w.head.sha256) for w in other.vouched]


def lies_on(other: Coordinator, signed: list[tuple[int, str]]) -> bool:
    return all(other.entries[number - 1].sha256 == sha256 for number, sha256 in signed)


def test_every_update_vouches_for_the_ledger_and_the_end_in_a_request_of_its_own(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True))
    join(hospital(other, tmp_path))
    assert [number for number, _ in heads(other)] == [3, 5, 7, 9]
    assert lies_on(other, heads(other))
    assert other.entries[-1].kind == "finished"
    with ledger_of(tmp_path) as ledger:
        assert ledger.seen_ledger("sepsis").entries() == other.entries


def test_a_round_takes_no_request_more_than_before_and_the_end_one(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True))
    join(hospital(other, tmp_path))
    asked = Counter(request.replace("/v1/studies/sepsis", "") for request in other.requests)
    of_rounds = {f"PUT /rounds/{n}/updates/mercy": 1 for n in (1, 2, 3)} | {f"GET /models/{n}": 1 for n in (0, 1, 2)}
    # A page for every round and one for the end; the double shows two entries a page, and two more came before round 1.
    rest = {"GET /assignment": 4, "GET /ledger": 5, "GET /budget": 1, "GET /rounds": 1, "GET ": 1}
    once = {"POST /v1/enrolments": 1, "GET /roster": 1, "PUT /witnesses/mercy": 1}
    assert asked == Counter(of_rounds | rest | once)


def test_a_refusal_vouches_too(tmp_path: Path) -> None:
    other = coordinator()
    with room_when_joining():
        join(hospital(other, tmp_path), policy=one_round_policy())
    assert [number for number, _ in heads(other)] == [3, 5, 7, 9]


@pytest.mark.quick("2")
@pytest.mark.parametrize("nth", [1, 2, 4])
def test_killed_between_storing_and_sending_nothing_is_lost_and_nothing_forks(tmp_path: Path, nth: int) -> None:
    other = coordinator(settings(bayesian=True))
    with dying_at("hospital.after-seen", nth) as death, pytest.raises(Killed):
        join(hospital(other, tmp_path))
    assert death.hit
    join(hospital(other, tmp_path))
    assert heads(other) == sorted(set(heads(other)))
    assert [number for number, _ in heads(other)] == [3, 5, 7, 9]
    assert lies_on(other, heads(other))


@pytest.mark.parametrize("name", ["hospital.before-witness", "hospital.after-witness"])
def test_killed_while_the_end_is_signed_it_is_signed_again(tmp_path: Path, name: str) -> None:
    other = coordinator()
    with dying_at(name), pytest.raises(Killed):
        join(hospital(other, tmp_path))
    join(hospital(other, tmp_path))
    assert heads(other)[-1] == (other.head().entries, other.head().sha256)
    assert lies_on(other, heads(other))


def test_killed_when_the_proof_is_kept_the_hospital_stays_away(tmp_path: Path) -> None:
    other = lying_about_round_1(tmp_path)
    with dying_at("hospital.after-evidence"), pytest.raises(Killed):
        join(hospital(other, tmp_path))
    with pytest.raises(EvidenceKept, match="smaller than the one that this hospital reported"):
        join(hospital(other, tmp_path))
    # A person has looked, and put the file elsewhere: the same lie is found again.
    (tmp_path / "evidence" / "sepsis.json").rename(tmp_path / "kept.json")
    with pytest.raises(LedgerContradicted):
        join(hospital(other, tmp_path))


def lying_about_round_1(tmp_path: Path) -> Coordinator:
    other = coordinator(settings(bayesian=True, max_steps=6))
    stop_after(other, 1)
    run_until_forbidden(hospital(other, tmp_path))
    other.meddle, last = None, other.entries.pop()
    report = {"filter": 1e-9, "moments": [1e-9] * 4, "complete": False}
    other.entries.append(_after(other, last.kind, last.round, {**last.body, "report": report}))
    return other


def _after(other: Coordinator, kind: Any, round: int | None, body: Any) -> Any:
    from accounting.budget.ledger import append

    return append(other.entries[-1], kind, round, body)


@pytest.mark.quick("finished-event7-an entry that cannot be", "settled-event1-makes no report of this kind")
@pytest.mark.parametrize(
    ("kind", "event", "words"),
    [
        ("cancelled", {"reason": "x"}, "round 1 was cancelled"),
        ("settled", {"report": {"counts": [10**9] + [0] * 63}}, "makes no report of this kind"),
        ("settled", {"report": {"filter": 9.0, "moments": [9.0] * 4, "complete": True}}, "without masks"),
        ("settled", {"report": {"filter": 0.0, "moments": [0.0] * 4, "complete": False}}, "bounds of zero"),
        ("settled", {"report": None, "members": 7}, "counts 7 members where 1 are left"),
        ("settled", {"report": None, "settings_sha256": "0" * 64}, "other settings"),
        ("settled", {"report": None, "note": "x"}, "an entry that cannot be"),
        ("finished", {"reason": "stopped", "report": None}, "an entry that cannot be"),
    ],
)
def test_an_entry_that_is_not_true_stops_the_hospital(
    tmp_path: Path, kind: str, event: dict[str, Any], words: str
) -> None:
    other = coordinator(settings(bayesian=True, max_steps=6))
    stop_after(other, 1)
    run_until_forbidden(hospital(other, tmp_path))
    other.meddle, last = None, other.entries.pop()
    standing = {name: value for name, value in last.body.items() if name not in ("report", "reason")}
    number = None if kind == "finished" else last.round
    other.entries.append(_after(other, kind, number, standing | event))
    with pytest.raises(LedgerContradicted, match=words):
        join(hospital(other, tmp_path))
    assert 2 not in other.updates or other.updates[2] == {}
    kept = json.loads((tmp_path / "evidence" / "sepsis.json").read_bytes())
    assert kept["shown"]["pages"][-1]["entries"][0]["body"] == dict(other.entries[3].body)
    # Nothing that only this hospital knows is in what it may hand to others.
    assert "log-moments" not in json.dumps(kept)


def test_a_round_without_a_report_is_charged_in_full_and_believed(tmp_path: Path) -> None:
    other = coordinator(settings(bayesian=True, max_steps=6))
    other._report = lambda bodies: None  # type: ignore[method-assign]
    assert join(hospital(other, tmp_path)).rounds_sent == 6


def test_a_bayesian_limit_that_the_coordinator_passes_is_kept_by_the_hospital(tmp_path: Path) -> None:
    wide = {"epsilon": 400.0, "delta": 1e-5}
    limits = [limit("instance", **wide), limit("instance", "bayesian", epsilon=9.0)]
    honest = coordinator(settings(bayesian=True, max_steps=40, limits=limits))
    before = join(hospital(honest, tmp_path / "honest"))
    assert (before.reason, before.rounds_refused) == ("budget-exhausted", 0)
    other = coordinator(settings(bayesian=True, max_steps=40, limits=limits))
    # Its own budget always says yes; three rounds later it stops asking.
    last = before.rounds_sent + 3
    other.budget.authorise = lambda *_: Authorisation(other.budget.last_round < last, "stopped")  # type: ignore[method-assign]
    outcome = join(hospital(other, tmp_path / "lied-to"))
    assert (outcome.rounds_sent, outcome.rounds_refused) == (before.rounds_sent, 3)
    assert {other.refusals[r]["mercy"].code for r in range(last - 2, last + 1)} == {"study-limit-exceeded"}
    refusal = other.refusals[last]["mercy"].detail
    assert "would pass the bayesian limit at instance level, by this hospital's own calculation" in refusal
    # It does not vouch for a ledger that passes its own limit.
    assert heads(other)[-1][0] < len(other.entries) - 6


# -- what others vouch for -----------------------------------------------------------------------------------------


def grace_joins(other: Coordinator) -> Ed25519PrivateKey:
    key = Ed25519PrivateKey.generate()
    other.members["grace"] = encode_public_key(key.public_key())
    other._append("roster", None, {"change": "enrolled"})
    return key


def without_grace(other: Coordinator) -> None:
    """She refuses every round, so that it ends when mercy has answered."""
    real = other._close_if_complete

    def close() -> None:
        other.refusals[other.round]["grace"] = Refusal(code="away")
        real()

    other._close_if_complete = close  # type: ignore[method-assign]


def test_a_head_ahead_of_ones_own_is_looked_up_when_one_comes_to_it(tmp_path: Path) -> None:
    other = coordinator(settings(max_steps=6))
    here, key = hospital(other, tmp_path), grace_joins(other)
    without_grace(other)
    # Grace is further than mercy is: entry 5 settles round 1, which mercy has not sent yet.
    head = LedgerHead(study="sepsis", entries=5, sha256="ab" * 32)
    other.witnesses["grace"] = ahead = sign_head(key, "grace", head)
    stop_after(other, 1)
    run_until_forbidden(here)
    with ledger_of(tmp_path) as ledger:
        assert ledger.seen_ledger("sepsis").heads_ahead() == [ahead]
    # Held back from then on, it is remembered all the same.
    other.meddle = None
    del other.witnesses["grace"]
    with pytest.raises(LedgerForked, match="grace has signed one whose entry 5"):
        join(hospital(other, tmp_path))
    assert len([bodies for bodies in other.updates.values() if "mercy" in bodies]) == 1


def test_a_signature_that_is_not_its_owners_is_not_passed_over(tmp_path: Path) -> None:
    other = coordinator()
    here, key = hospital(other, tmp_path), grace_joins(other)
    head = LedgerHead(study="sepsis", entries=1, sha256=other.entries[0].sha256)
    good = sign_head(key, "grace", head)
    other.witnesses["grace"] = good.model_copy(update={"head": head.model_copy(update={"entries": 2})})
    with pytest.raises(LedgerNotExtended, match="passes on a signature as grace's that is not"):
        join(here)


def test_a_key_that_the_roster_does_not_hold_stops_nobody(tmp_path: Path) -> None:
    """Changed since, or a stranger's: its owner signs anew, and a stranger could stop every study."""
    other = coordinator()
    here = hospital(other, tmp_path)
    grace_joins(other)
    without_grace(other)
    head = LedgerHead(study="sepsis", entries=1, sha256="ab" * 32)
    other.witnesses["grace"] = sign_head(Ed25519PrivateKey.generate(), "grace", head)
    other.witnesses["mole"] = sign_head(Ed25519PrivateKey.generate(), "mole", head)
    assert join(here).rounds_sent == 3


def test_a_head_that_lies_behind_ones_own_is_looked_up_too(tmp_path: Path) -> None:
    other = coordinator()
    here, key = hospital(other, tmp_path), grace_joins(other)
    head = LedgerHead(study="sepsis", entries=1, sha256="ab" * 32)
    other.witnesses["grace"] = sign_head(key, "grace", head)
    with pytest.raises(LedgerForked, match="grace has signed one whose entry 1"):
        join(here)
