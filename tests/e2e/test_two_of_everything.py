"""A dishonest coordinator gives two of everything to four hospitals in one secure sum: no sum is opened, proof is kept.

Over real HTTP. Three hospitals see one face of the coordinator and the fourth the other one. All that a face shows fits
together and is signed. The session's parameters are the same for all, or fit each face.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load, save

from client_sdk.errors import SessionContradicted
from client_sdk.guard.ledger import HospitalLedger
from client_sdk.guard.ledger_file import ledger_path
from private_learning.training.weights import weights_of
from study_protocol.secure_sum import transcript
from study_protocol.study.messages import Assignment
from study_protocol.study.model_file import ModelMetadata
from study_protocol.study.queries import Query, QueryDocument
from study_protocol.study.settings import StudySettings
from study_protocol.wire.signing import ASSIGNMENT, decode_public_key, encode_public_key, verify_document
from study_protocol.wire.tensors import metadata_in
from tests.factories.asking import Site, answering_policy, document, enrolled, operator
from tests.factories.hospitals import records
from tests.factories.live_coordinator import Live
from tests.factories.settings import limit, settings
from tests.factories.studies import FakeClock
from tests.factories.two_faced import Face, TwoFaced, two_faced

pytestmark = pytest.mark.timeout(300)

STUDY, NAMES, VICTIM = "registry", ("alpha", "beta", "gamma", "delta"), "delta"
POLICY = answering_policy(statistics={"queries": "allow", "least_noise_multiplier": 1e-3})
QUIET = {"noise_multiplier": 0.02}


def study(**sections: Any) -> StudySettings:
    """One round of training, and questions without noise that could hide anything."""
    return settings(
        masked=True,
        evaluation={"share": 0.5},
        limits=[limit("instance", epsilon=1e9)],
        max_steps=1,
        expected_clients=4.0,
        **{"statistics": {"max_queries": 9, "max_cells": 100}} | sections,
    )


@contextmanager
def ward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: StudySettings, intercept: float = 0.0
) -> Iterator[tuple[Live, TwoFaced, list[Site]]]:
    """A started study. intercept: of the initial model, whose other weights are the same."""
    # Between a session that has ended and the next look for work.
    monkeypatch.setattr("client_sdk.study.participation._PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(
        "tests.factories.asking.weights_of",
        lambda model: saying_one_thing(weights_of(model), intercept),
    )
    home, options = tmp_path / "home", {"time_of_day": FakeClock(), "long_poll_seconds": 0.2}
    with two_faced(home, VICTIM, monkeypatch, **options) as (here, faced):
        sites = enrolled(here, tmp_path, chosen, names=NAMES, policy=POLICY)
        yield here, faced, sites
        here.operator("POST", f"/v1/studies/{STUDY}/stop")
        for site in sites:
            if site.ident is not None:
                site.join(30)


def until(here: Live, done: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, here.operator("GET", f"/v1/studies/{STUDY}/rounds").text
        here.work()
        time.sleep(0.02)


def rounds(here: Live) -> list[dict[str, Any]]:
    return here.operator("GET", f"/v1/studies/{STUDY}/rounds").json()["rounds"]


def saying(here: Live, model: int, intercept: float) -> bytes:
    """The released model, with weights that say one thing of everybody."""
    body = here.operator("GET", f"/v1/studies/{STUDY}/models/{model}").content
    said = ModelMetadata.within(metadata_in(body))
    header = None if said is None else said.header()
    return save(saying_one_thing(load(body), intercept), header)


def saying_one_thing(weights: Mapping[str, Any], intercept: float) -> dict[str, Any]:
    return {name: np.full_like(array, intercept if "bias" in name else 0.0) for name, array in weights.items()}


def aside(site: Site) -> int:
    """How many patients this hospital has set aside."""
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        chosen = own.split(STUDY, 0.5).set_aside(records(seed=NAMES.index(site.name)).patients)
    return int(chosen.sum())


def upper(found: Query) -> float:
    """Patients with a probability above a half."""
    assert found.answered is not None
    (table,) = (one for one in found.answered.published.answer.tables if one.name == "cells")
    raw, bins = table.columns.index("raw"), table.columns.index("bin")
    return sum(float(row[raw] or 0) for row in table.rows if row[bins] == "0.5 to 1")


def proofs(sites: list[Site]) -> dict[str, dict[str, Any]]:
    files = {site.name: site.directory / "evidence" / f"{STUDY}.json" for site in sites}
    return {name: json.loads(path.read_bytes()) for name, path in files.items() if path.exists()}


def charged(site: Site) -> int:
    """How many rounds this hospital has paid for."""
    with HospitalLedger.open(ledger_path(site.directory, "icu"), read_only=True) as own:
        return len(own.charges())


def trained(here: Live, sites: list[Site]) -> None:
    for site in sites:
        site.start()
    until(here, lambda: [one["state"] for one in rounds(here)] == ["released"])


def asked(here: Live, question: QueryDocument) -> Query:
    """The query after it has ended, one way or the other."""
    with operator(here) as lead:
        number = lead.ask_query(STUDY, question).number
        until(here, lambda: lead.query(STUDY, number).state in ("answered", "failed"))
        return lead.query(STUDY, number)


def require_refused(here: Live, sites: list[Site], codes: set[str], paid: int) -> None:
    """Nothing was paid, and whoever saw the difference has stopped and kept what proves it."""
    until(here, lambda: bool(proofs(sites)))
    for site in sites:
        if site.name in proofs(sites):
            site.join(30)
            assert isinstance(site.error, SessionContradicted), site.error
            assert f"wardround evidence {STUDY}" in str(site.error)
        assert charged(site) == paid, site.name
    last = rounds(here)[paid]
    said = {one["refusal"]["code"] for one in last["clients"] if one["refusal"] is not None}
    assert said & codes, last
    for proof in proofs(sites).values():
        # The coordinator's own words, whole: what was assigned, the session beside it, the ledger with its signed head.
        assert proof["code"] == "session-contradicted"
        given = Assignment.model_validate(proof["round"])
        key = decode_public_key(here.coordinator.signer.public_key)
        verify_document(key, ASSIGNMENT, given.assignment.model_dump(mode="json"), given.signature)
        assert given.session is not None
        ph = transcript.parameters_hash(given.session.parameters)
        assert transcript.is_signed(key, given.session.signature, transcript.parameters_statement(ph))
        assert proof["seen"]["entries"][-1]["sequence"] == given.assignment.ledger.entries
        assert ("expected" in proof) != ("keys" in proof)


def let_ledgers_name_no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a study of an earlier version: there the sessions alone show that models differ."""
    monkeypatch.setattr("client_sdk.study.entries.EntryChecks.require_models", lambda *_: None)


@pytest.mark.slow
def test_what_the_check_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack, on hospitals that do not compare: three models that say no and one that says yes.

    The upper bin of the sum is the victim's own patients: noise of .023 on a count.
    """
    monkeypatch.setattr("client_sdk.secure_sum.checks._check_due", lambda *_: None)
    let_ledgers_name_no_models(monkeypatch)
    with ward(tmp_path, monkeypatch, study(), intercept=-50.0) as (here, faced, sites):
        trained(here, sites)
        faced.face = Face(model=saying(here, 1, 50.0))
        found = asked(here, document(kind="evaluation", model=1, prediction="binary", **QUIET))
        assert upper(found) == pytest.approx(aside(sites[-1]), abs=0.5)


OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
SETTINGS_OTHERWISE: dict[str, Any] = {"statistics": {"max_queries": 8, "max_cells": 100}}
LATER = {"later": 5}


def stranger() -> tuple[str, str]:
    return NAMES[0], encode_public_key(OTHER_KEY.public_key())


# What the victim is shown otherwise, and the refusal where all get the same parameters; none: those are what differs.
EVERYTHING: dict[str, tuple[Callable[[Live], dict[str, Any]], str | None]] = {
    "settings": (lambda _: {"settings": study(**SETTINGS_OTHERWISE)}, "wrong-settings"),
    "head": (lambda _: {"head": True}, "wrong-ledger"),
    "roster": (lambda _: {"stranger": stranger()}, "wrong-roster"),
    "deadlines": (lambda _: LATER, None),
    "model": (lambda here: {"model": saying(here, len(rounds(here)), 50.0)}, "wrong-model"),
}
# The quick ones; all others in the long run.
QUICK = {("train", "deadlines", True), ("threshold", "model", False), ("count", "question", True)}


def cases(*kinds: str) -> list[Any]:
    """(kind of round, what differs, whether each face has a session of its own)."""
    found: list[Any] = []
    for kind in kinds:
        for what in (*EVERYTHING, *(["question"] if kind != "train" else [])):
            for own in (False, True):
                if (what == "deadlines" and not own) or (kind == "count" and what == "model"):
                    continue
                slow = [] if (kind, what, own) in QUICK else [pytest.mark.slow]
                name = f"{kind}-{what}-{'a session each' if own else 'one session'}"
                found.append(pytest.param(kind, what, own, marks=slow, id=name))
    return found


@pytest.mark.parametrize(("kind", "what", "own"), cases("train"))
def test_two_of_everything_in_a_round_of_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, what: str, own: bool
) -> None:
    make, code = EVERYTHING[what]
    if what == "model":
        let_ledgers_name_no_models(monkeypatch)
    with ward(tmp_path, monkeypatch, study()) as (here, faced, sites):
        faced.face = Face(own=own, **make(here))
        for site in sites:
            site.start()
        until(here, lambda: [one["state"] for one in rounds(here)][:1] == ["abandoned"])
        require_refused(here, sites, {"unsigned-key"} if own else {code or ""}, paid=0)


QUESTIONS: dict[str, dict[str, Any]] = {
    "count": {"kind": "count"},
    "threshold": {"kind": "evaluation", "model": 1, "prediction": "binary", "edges": [0.4]},
    "bins": {"kind": "evaluation", "model": 1, "prediction": "binary", "bins": 20},
    "classes": {"kind": "evaluation", "model": 1, "prediction": "classes", "classes": 2},
}
# The same form and as many cells, so that the vectors are the same.
OTHERWISE: dict[str, dict[str, Any]] = {
    "count": {"where": [{"column": "age", "low": 50, "high": 100}]},
    "threshold": {"edges": [0.6]},
    "bins": {"bins": None, "edges": [place / 20 for place in range(1, 19)] + [0.96]},
    "classes": {"rows": "last"},
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "what", "own"), cases(*QUESTIONS))
def test_two_of_everything_in_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, what: str, own: bool
) -> None:
    make, code = EVERYTHING.get(what, (lambda _: {}, "wrong-ledger"))
    question = QUESTIONS[kind] | QUIET
    if what == "model":
        let_ledgers_name_no_models(monkeypatch)
    with ward(tmp_path, monkeypatch, study()) as (here, faced, sites):
        # Settings are shown at the beginning, and so is the ledger that goes with them.
        early = what == "settings"
        if early and "model" in question:
            # A released model's file names the settings, too; the initial one does not.
            question["model"] = 0
        with pytest.MonkeyPatch.context() as patch:
            if early:
                patch.setattr("client_sdk.secure_sum.checks._check_due", lambda *_: None)
                faced.face = Face(**make(here))
            trained(here, sites)
        shown: dict[str, Any] = (
            {"question": document(**(question | OTHERWISE[kind]))} if what == "question" else make(here)
        )
        faced.face = Face(own=own, **shown)
        found = asked(here, document(**question))
        assert (found.state, found.answered) == ("failed", None)
        # Of another question the ledger shown has another charge, which is looked at first.
        require_refused(here, sites, {"unsigned-key"} if own else {code or ""}, paid=1)


# How it is shown an earlier session, or deadlines of one step that differ; and the refusal.
TIMES: dict[str, tuple[dict[str, Any], str]] = {
    "the first session": ({"replayed": True}, "wrong-round"),
    "the first one's name and times": ({"replayed": True, "own": True}, "unsigned-key"),
    "longer training": ({"longer": 30, "own": True}, "wrong-parameters"),
    "shorter training": ({"longer": -30, "own": True}, "wrong-parameters"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", [name if name == "the first session" else pytest.param(name, marks=pytest.mark.slow) for name in TIMES]
)
def test_a_session_that_comes_again_or_has_other_deadlines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    shown, code = TIMES[how]
    with ward(tmp_path, monkeypatch, study()) as (here, faced, sites):
        trained(here, sites)
        faced.face = Face(**shown)
        found = asked(here, document(kind="count", **QUIET))
        assert (found.state, found.answered) == ("failed", None)
        require_refused(here, sites, {code}, paid=1)
