"""A coordinator that lies with its own key, over real HTTP: real hospitals find out, stop and keep the proof."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accounting.budget.ledger import Entry
from client_sdk.errors import (
    BadAssignment,
    EvidenceKept,
    LedgerContradicted,
    LedgerForked,
    LedgerNotExtended,
    NotTrusted,
)
from client_sdk.study.hospital import Hospital
from client_sdk.study.participation import Outcome
from client_sdk.study.vouching import Voucher, vouchers
from study_protocol.study.messages import LedgerPage, Roster
from tests.factories.live_coordinator import Live, live
from tests.factories.lying_coordinator import (
    Ward,
    forget_witnesses,
    ledger_of,
    rewrite,
    started,
    together,
    working,
)
from tests.factories.settings import settings

pytestmark = pytest.mark.timeout(120)
CHOSEN = settings(bayesian=True, max_steps=3)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Live]:
    with live(tmp_path / "coordinator") as running:
        yield running


def same(entry: Entry) -> tuple[Any, dict[str, Any]]:
    return entry.kind, dict(entry.body)


def zero(entry: Entry) -> tuple[Any, dict[str, Any]]:
    """Nothing was ever spent: every report says so."""
    body = dict(entry.body)
    if entry.kind == "settled":
        report = body["report"]
        body["report"] = report | {"filter": 1e-9, "moments": [1e-9 for _ in report["moments"]]}
    return entry.kind, body


def free(entry: Entry) -> tuple[Any, dict[str, Any]]:
    """No round was ever charged: every one was cancelled."""
    if entry.kind != "settled":
        return same(entry)
    return "cancelled", {name: value for name, value in entry.body.items() if name != "report"} | {"reason": "x"}


def one_round(here: Live, tmp_path: Path) -> list[Ward]:
    """Both hospitals have sent their updates of round 1, which is settled: they have not seen that yet."""
    wards = started(here, tmp_path, CHOSEN, "mercy", "grace")
    assert together(*(lambda ward=ward: ward.join(until=1) for ward in wards)) == [None, None]
    here.work()
    assert [e.kind for e in ledger_of(here)][-3:] == ["settled", "released", "reserved"]
    return wards


def told(ward: Ward) -> NotTrusted:
    """What the hospital raises when it comes again; also the time after, whatever is shown then."""
    with pytest.raises(NotTrusted) as caught:
        ward.join()
    return caught.value


@pytest.mark.quick("free")
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (zero, "smaller than the one that this hospital reported"),
        (free, "round 1 was cancelled, which makes it free, although the coordinator has taken"),
    ],
    ids=["zero", "free"],
)
def test_a_lie_about_the_round_that_a_hospital_took_part_in_stops_it_for_good(
    here: Live, tmp_path: Path, lie: Any, words: str
) -> None:
    wards, truth = one_round(here, tmp_path), ledger_of(here)
    rewrite(here, lie)
    for ward in wards:
        error = told(ward)
        assert isinstance(error, LedgerContradicted)
        assert words in str(error)
        assert "call the privacy officers of the other hospitals" in str(error)
        proof = json.loads(ward.proof.read_bytes())
        assert proof["said"] in str(error)
        assert proof["shown"]["pages"][0]["entries"][0]["kind"] in ("settled", "cancelled")
        assert [entry["kind"] for entry in proof["seen"]["entries"]].count("operated") == 4
        assert len(proof["seen"]["entries"]) == 5 + 4
    codes = [c["refusal"]["code"] for c in here.operator("GET", "/v1/studies/sepsis/rounds/2").json()["clients"]]
    assert codes == ["ledger-contradicted"] * 2
    # Put right afterwards: the hospital does not come back by itself.
    rewrite(here, lambda entry: same(truth[entry.sequence - 1]))
    error = told(wards[0])
    assert isinstance(error, EvidenceKept)
    assert words in str(error)


@pytest.mark.slow
@pytest.mark.parametrize("lie", [zero, free])
def test_a_past_that_hospitals_have_seen_cannot_be_rewritten(here: Live, tmp_path: Path, lie: Any) -> None:
    wards = one_round(here, tmp_path)
    together(*(lambda ward=ward: ward.join(until=2) for ward in wards))
    here.work()
    rewrite(here, lie)
    for ward in wards:
        error = told(ward)
        assert isinstance(error, LedgerNotExtended)
        assert "the coordinator's ledger was rewritten" in str(error)
        assert ward.proof.exists()


def test_settings_with_more_noise_than_was_joined_under_are_refused(here: Live, tmp_path: Path) -> None:
    wards = started(here, tmp_path, CHOSEN, "mercy", "grace")

    def noisier(entry: Entry) -> tuple[Any, dict[str, Any]]:
        body = dict(entry.body)
        if entry.kind == "opened":
            body["plan"] = body["plan"] | {"noise_multiplier": 100.0}
        return entry.kind, body

    rewrite(here, noisier)
    error = told(wards[0])
    assert isinstance(error, LedgerContradicted)
    assert "its plan is not that of the study's settings" in str(error)


@pytest.mark.slow
def test_a_shortened_ledger_is_refused(here: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An honest coordinator stops by itself: the ledger no longer names the model that round 3 begins with.
    monkeypatch.setattr("server.services.rounds.assign.require_base", lambda *_: None)
    wards = one_round(here, tmp_path)
    together(*(lambda ward=ward: ward.join(until=2) for ward in wards))
    here.work()
    # Round 1 and everything after it never happened, and round 3 is asked for.
    rewrite(here, lambda entry: None if entry.kind == "reserved" else same(entry))
    error = told(wards[0])
    assert isinstance(error, LedgerNotExtended)
    assert "restored from an older copy" in str(error)
    # An honest operator's accident, too: whoever brings the ledger back goes on.
    assert not wards[0].proof.exists()


def forked(here: Live, tmp_path: Path, *, models: bool = True) -> tuple[Ward, Ward]:
    """Mercy has seen and signed round 2; then grace is shown another past, which she has no number of her own for.

    models  what the released models' files say of the ledger is rewritten, too
    """
    mercy, grace = one_round(here, tmp_path)
    assert mercy.join(until=2) is None

    def other(entry: Entry) -> tuple[Any, dict[str, Any]]:
        body = dict(entry.body)
        return entry.kind, body | ({"report": None} if entry.kind == "settled" else {})

    rewrite(here, other, models=models)
    return mercy, grace


@pytest.mark.slow
def test_two_hospitals_that_are_shown_two_ledgers_find_out_by_the_next_signed_head(here: Live, tmp_path: Path) -> None:
    mercy, grace = forked(here, tmp_path)
    error = told(grace)
    assert isinstance(error, LedgerForked)
    assert "the coordinator shows two ledgers: mercy has signed one whose entry 12 is another" in str(error)
    proof = json.loads(grace.proof.read_bytes())
    assert proof["witness"]["client"] == "mercy"
    # And mercy is shown what is not hers either, once the round is over.
    with working(here):
        assert isinstance(told(mercy), LedgerNotExtended)


@pytest.mark.slow
def test_a_fork_is_found_by_the_entry_that_a_model_names(here: Live, tmp_path: Path) -> None:
    _, grace = forked(here, tmp_path, models=False)
    forget_witnesses(here)
    with pytest.raises(BadAssignment, match="names an entry of the ledger that the ledger does not have"):
        grace.join(until=2)


@pytest.mark.slow
def test_a_fork_whose_signatures_are_held_back_is_not_seen_by_the_hospital_but_by_what_is_missing(
    here: Live, tmp_path: Path
) -> None:
    mercy, grace = forked(here, tmp_path)
    forget_witnesses(here)
    assert grace.join(until=2) is None
    shown = here.operator("GET", "/v1/studies/sepsis/ledger").json()["witnesses"]
    assert [witness["client"] for witness in shown] == ["grace"]
    with working(here):
        assert isinstance(told(mercy), LedgerNotExtended)


@pytest.mark.slow
def test_everybody_vouches_for_the_end_of_an_honest_study(here: Live, tmp_path: Path) -> None:
    wards = started(here, tmp_path, CHOSEN, "mercy", "grace")
    with working(here):
        outcomes = together(*(ward.join for ward in wards))
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), outcomes
    page = here.operator("GET", "/v1/studies/sepsis/ledger").json()
    head = page["head"]["head"]
    assert {(w["client"], w["head"]["entries"], w["head"]["sha256"]) for w in page["witnesses"]} == {
        (name, head["entries"], head["sha256"]) for name in ("mercy", "grace")
    }


@pytest.mark.slow
def test_a_key_that_is_changed_in_the_middle_disturbs_nobody_and_signs_from_then_on(here: Live, tmp_path: Path) -> None:
    wards = one_round(here, tmp_path)
    before = here.operator("GET", "/v1/studies/sepsis/ledger").json()["witnesses"]
    assert Hospital.open(wards[0].home).rotate_key() == ["sepsis"]
    with working(here):
        outcomes = together(*(ward.join for ward in wards))
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), outcomes
    page = LedgerPage.model_validate_json(here.operator("GET", "/v1/studies/sepsis/ledger").content)
    roster = Roster.model_validate_json(here.operator("GET", "/v1/studies/sepsis/roster").content)
    assert {w["public_key"] for w in before} != {m.public_key for m in roster.members}
    entries = ledger_of(here)
    assert vouchers(entries, roster.members, page.witnesses) == [
        Voucher("grace", len(entries)),
        Voucher("mercy", len(entries)),
    ]
