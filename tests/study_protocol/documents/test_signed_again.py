"""Certificates that the coordinator changed and signed again with its own key: the ledger finds every field but few."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.budget.ledger import Entry
from accounting.plan.queries import QueryCost
from study_protocol.documents import check
from study_protocol.documents.certify import Facts, compute_account, issue_certificate
from study_protocol.documents.registry import entry
from study_protocol.study.certificate import Certificate
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import CERTIFICATE, LEDGER_HEAD, sign_document
from tests.factories.certificates import KEY, PUBLIC, WHEN, leaves
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings, statistics_settings

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bayesian": {"bayesian": True},
    "masked": {"masked": True, "bayesian": True},
    "sampled": {"sampling_rate": 0.05, "expected_batch_size": 5.0},
    "client": {"scheme": "client"},
    "distributed": {"scheme": "client-distributed"},
    "joint": {"scheme": "joint"},
    "questions": {"asked": 1, "statistics": {"max_queries": 3, "max_cells": 100}},
    "evaluation": {
        "statistics": {"max_queries": 9, "max_cells": 100},
        "evaluation": {"share": 0.3, "every": 2, "question": {"prediction": "binary", "noise_multiplier": 5.0}},
    },
}
COST = QueryCost(noise_std=2.0**24, sensitivity=2.0**20, cells=6).to_dict()
# The coordinator's own word: a title for people, and when it signed. Nothing that was witnessed says either.
FREE = {("certificate", "title"), ("certificate", "issued_at")}


def ledger_of(ended: bool = False, **options: Any) -> list[Entry]:
    """Two rounds of training, and before the second one `asked` questions."""
    values: dict[str, Any] = {"max_steps": 6, **options}
    asked = values.pop("asked", 0)
    chosen = settings(values.pop("scheme", "parallel"), **values)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    entries.append(after(entries, "released", sha256="cd" * 32, bytes=160))
    for round in (1, *range(2, asked + 2), asked + 2):
        if 1 < round < asked + 2:
            entries.append(after(entries, "asked", round, query=f"{round}c" * 32, cost=COST))
            entries.append(after(entries, "settled", round, report=None))
            continue
        entries.append(after(entries, "reserved", round))
        entries.append(after(entries, "settled", round, report=None))
        entries.append(after(entries, "released", round, sha256=f"{round}b" * 32, bytes=160 + round))
    if ended:
        entries.append(after(entries, "finished", reason="stopped", report=None))
    return entries


def certified(entries: list[Entry], round: int | None = None) -> dict[str, Any]:
    found = compute_account(entries, round)
    head = {"study": "sepsis", "entries": found.entries, "sha256": found.sha256}
    facts = Facts("Sepsis", "running", None, WHEN, PUBLIC, sign_document(KEY, LEDGER_HEAD, head), None)
    return {"certificate": issue_certificate(found, facts).model_dump(mode="json")}


def computed_certificate(entries: list[Entry]) -> Certificate:
    return Certificate.model_validate(certified(entries)["certificate"])


def signed_again(value: dict[str, Any]) -> bytes:
    return json.dumps(value | {"signature": sign_document(KEY, CERTIFICATE, value["certificate"])}).encode()


def complaints(body: bytes, entries: list[Entry]) -> str:
    """What `certificate verify --ledger` complains of; empty where all is good."""
    try:
        document = check.open_certificate(body)
    except check.NoCertificate as error:
        return str(error)
    found = [
        check.check_signature(document, PUBLIC, "the key", is_confirmed=True),
        *check.check_ledger(document.certificate, entries),
    ]
    return "; ".join(f"{one.subject}: {one.words}" for one in found if one.result != "good")


def others(value: Any) -> list[Any]:
    """Values of the same kind that a reader could take for it, and one of another kind."""
    match value:
        case bool():
            return [not value]
        case int():
            return [value + 1, max(1, value - 1), value * 2 + 1]
        case float():
            return [value * 1.001 + 1e-6, value / 2 - 1e-6]
        case str():
            return [value + "x", value[1:] if len(value) > 1 else "", "x"]
        case None:
            return [1, "x", 0.5]
        case _:
            return [None, "x"]


def put(value: dict[str, Any], path: tuple[Any, ...], new: Any) -> dict[str, Any]:
    found = copy.deepcopy(value)
    inside: Any = found
    for part in path[:-1]:
        inside = inside[part]
    inside[path[-1]] = new
    return found


@pytest.fixture(autouse=True, scope="module")
def computed_once() -> Iterator[None]:
    """What a ledger says is computed once for each ledger and round, not once for each changed field."""
    known: dict[Any, Any] = {}

    def once(entries: list[Entry], round: int | None = None) -> Any:
        asked = entries[-1].sha256, round
        if asked not in known:
            known[asked] = compute_account(entries, round)
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(check, "compute_account", once)
        yield


@pytest.mark.quick("1-client")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("round", [None, 1])
def test_every_field_that_is_changed_and_signed_again_is_found(kind: str, round: int | None) -> None:
    entries = ledger_of(ended=kind in ("plain", "masked"), **KINDS[kind])
    value = certified(entries, round)
    assert complaints(signed_again(value), entries) == ""
    paths = list(leaves(value))
    assert len(paths) > 100
    unseen = [
        (path, new)
        for path in paths
        if path not in FREE
        for new in others(at(value, path))
        if new != at(value, path) and not is_true(path, entries, value, new)
        for said in [complaints(signed_again(put(value, path, new)), entries)]
        if not (said and names(said, path))
    ]
    assert unseen == []


def is_true(path: tuple[Any, ...], entries: list[Entry], value: dict[str, Any], new: Any) -> bool:
    """Whether it is, word for word, the certificate of the newest round by itself, which is no lie."""
    newest = value["certificate"]["round"]
    return path[-1] == "counted" and certified(entries, newest) == put(value, path, new)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def names(said: str, path: tuple[Any, ...]) -> bool:
    """Whether the sentence names the field, or the document is not one that can be read at all."""
    words = [str(part) for part in path if isinstance(part, str)]
    # The head's own fields and the key are named in words.
    own_words = {"entries": "entries", "sha256": "entry", "signature": "signed", "study": "no such|entry|signed"}
    told = any(word in said for word in words[1:] or words)
    if told or "this version can read" in said:
        return True
    return any(word in said for word in own_words.get(words[-1], words[-1]).split("|")) or "key" in said


@pytest.mark.parametrize("path", [("limits", 0, "observer"), ("mechanism", "scheme"), ("format",)])
@given(
    new=st.one_of(
        st.text(max_size=20),
        st.integers(),
        st.none(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.lists(st.text()),
    )
)
def test_a_value_that_nobody_knows_is_a_sentence_and_no_traceback(path: tuple[Any, ...], new: Any) -> None:
    value = PLAIN
    whole = ("certificate", *path)
    said = complaints(signed_again(put(value, whole, new)), PLAIN_LEDGER)
    assert said or new == at(value, whole)


@pytest.mark.parametrize("reason", ["", "because", "paused"])
def test_a_ledger_that_ends_for_a_reason_that_nobody_knows_is_a_sentence_and_no_traceback(reason: str) -> None:
    entries = ledger_of()
    value = certified(entries)
    entries.append(after(entries, "finished", reason=reason, report=None))
    head = {"study": "sepsis", "entries": len(entries), "sha256": entries[-1].sha256}
    said = {"entries": len(entries), "sha256": entries[-1].sha256, "counted": len(entries)}
    value["certificate"]["ledger"] |= said | {"signature": sign_document(KEY, LEDGER_HEAD, head)}
    assert "what no certificate can say" in complaints(signed_again(value), entries)


PLAIN_LEDGER = ledger_of()
PLAIN = certified(PLAIN_LEDGER)
PATHS = list(leaves(PLAIN))
JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-9, 2**53),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=9),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


@given(where=st.integers(0, len(PATHS) - 1), depth=st.integers(0, 4), new=JSON)
def test_whatever_stands_in_a_certificate_no_reader_of_it_fails(where: int, depth: int, new: Any) -> None:
    path = PATHS[where]
    body = signed_again(put(PLAIN, path[: max(2, len(path) - depth)], new))
    complaints(body, PLAIN_LEDGER)
    try:
        document = check.open_certificate(body)
    except check.NoCertificate:
        return
    entry(document.certificate)


def test_a_ledger_of_questions_alone_makes_no_certificate() -> None:
    chosen = statistics_settings()
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    assert "only of a study that trains" in complaints(signed_again(PLAIN), entries) or complaints(
        signed_again(PLAIN), entries
    )


def test_a_ledger_that_names_no_models_is_told_as_such() -> None:
    chosen = settings(max_steps=6)
    entries = opened(plan_of(chosen), chosen.as_json(), "sepsis")
    entries.append(after(entries, "reserved", 1))
    entries.append(after(entries, "settled", 1, report=None))
    value = certified(entries)
    value["certificate"]["model"] = {"version": 1, "sha256": "ab" * 32, "bytes": 160}
    assert "names no models" in complaints(signed_again(value), entries)


def test_states_that_no_ledger_tells_apart_are_one_state() -> None:
    assert certified(ledger_of()[:2])["certificate"]["state"] == "enrolling"
    assert certified(ledger_of())["certificate"]["state"] == "running"
    ended = certified(ledger_of(ended=True))["certificate"]
    assert (ended["state"], ended["stop_reason"]) == ("finished", "stopped")


def test_questions_are_no_rounds_of_training_and_take_no_steps() -> None:
    stated = computed_certificate(ledger_of(asked=1, statistics={"max_queries": 3, "max_cells": 100}))
    assert (stated.rounds.charged, stated.rounds.steps) == (3, 2)
    assert "2 of at most 6 rounds of training and 1 of at most 3 questions are counted, up to round 3" in " ".join(
        stated.summary
    )
    assert "the models and answers that rounds 1 to 3 released" in stated.limits[0].meaning
    said = {one.asks: one.answer for one in stated.nist}
    assert said["Queries"].startswith("at most 3 questions from outside, each of at most 100 numbers")
    assert "all questions" in said["Composition"]
    told = entry(stated)["deployment"]["deployment_model"]
    assert told["access_type"] == "Interactive"
    assert told["release_type_details"].startswith("rounds: 2 of training charged of at most 6, and 1 question")


def test_as_many_questions_as_rounds_are_left_do_not_hide_that_later_rounds_count_nothing() -> None:
    entries = ledger_of(asked=1, max_steps=3, statistics={"max_queries": 3, "max_cells": 100})
    assert "what a later round gives away is not" in " ".join(computed_certificate(entries).summary)


def test_steps_that_an_earlier_version_counted_for_questions_are_no_alarm() -> None:
    entries = ledger_of(asked=1, statistics={"max_queries": 3, "max_cells": 100})
    value = put(certified(entries), ("certificate", "rounds", "steps"), 3)
    found = check.check_ledger(check.open_certificate(signed_again(value)).certificate, entries)
    told = {one.subject: one for one in found}["everything else"]
    assert told.result == "not known"
    assert "earlier version" in told.words
