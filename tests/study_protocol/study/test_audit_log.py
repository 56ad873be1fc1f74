"""The chain of the audit log: what is changed, removed, repeated, moved or taken from another log is found."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from accounting.budget.ledger import GENESIS
from study_protocol.study.audit_log import Actor, AuditEntry, AuditEvent, AuditLogFault, next_entry, verify_entries
from study_protocol.study.people import GivenKey

AT = datetime(2026, 11, 27, 12, tzinfo=UTC)
ADA = Actor(kind="key", id="4f1c9b", name="Ada", role="lead")


def chain(study: str | None, *actions: str) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    last = (0, GENESIS)
    for action in actions:
        entry = next_entry(study, last, AuditEvent(at=AT, actor=ADA, action=action))
        last = (entry.sequence, entry.sha256)
        entries.append(entry)
    return entries


ACTIONS = st.lists(st.sampled_from(["invite", "pause_study", "ask_query"]), min_size=2, max_size=6)


@given(ACTIONS, st.data())
def test_pages_of_any_size_continue_the_chain(actions: list[str], data: st.DataObject) -> None:
    entries = chain("sepsis", *actions)
    cut = data.draw(st.integers(0, len(entries)))
    reached = verify_entries(entries[:cut], "sepsis")
    assert verify_entries(entries[cut:], "sepsis", reached) == (len(entries), entries[-1].sha256)


@given(ACTIONS, st.data())
def test_every_entry_out_of_its_place_is_found(actions: list[str], data: st.DataObject) -> None:
    entries = chain("sepsis", *actions)
    other = data.draw(st.permutations(entries)) if data.draw(st.booleans()) else data.draw(_with_a_gap(entries))
    if other != entries[: len(other)]:
        with pytest.raises(AuditLogFault):
            verify_entries(other, "sepsis")


@st.composite
def _with_a_gap(draw: st.DrawFn, entries: list[AuditEntry]) -> list[AuditEntry]:
    left_out = draw(st.integers(0, len(entries) - 2))
    return [entry for place, entry in enumerate(entries) if place != left_out]


CHANGES = {
    "action": {"event": AuditEvent(at=AT, actor=ADA, action="stop_study")},
    "actor": {"event": AuditEvent(at=AT, actor=ADA.model_copy(update={"name": "Eve"}), action="pause_study")},
    "role": {"event": AuditEvent(at=AT, actor=ADA.model_copy(update={"role": "viewer"}), action="pause_study")},
    "previous": {"previous": "b" * 64},
    "hash": {"sha256": "b" * 64},
    "number": {"sequence": 3},
    "study": {"study": "icu"},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_entry_is_found(change: str) -> None:
    entries = chain("sepsis", "invite", "pause_study", "invite")
    entries[1] = entries[1].model_copy(update=CHANGES[change])
    with pytest.raises(AuditLogFault):
        verify_entries(entries, "sepsis")


def test_two_logs_cannot_be_exchanged() -> None:
    for study, other in (("sepsis", "icu"), ("sepsis", None), (None, "sepsis")):
        with pytest.raises(AuditLogFault, match="belongs to another log"):
            verify_entries(chain(study, "invite"), other)
        renamed = [entry.model_copy(update={"study": other}) for entry in chain(study, "invite")]
        with pytest.raises(AuditLogFault, match="does not have its hash"):
            verify_entries(renamed, other)


def test_an_entry_read_from_its_line_has_its_hash() -> None:
    key = GivenKey(id="4f1c9b", role="viewer", study="sepsis", name="Zoë", expires_in_days=9)
    entry = next_entry("sepsis", (0, GENESIS), AuditEvent(at=AT, actor=ADA, action="create_key", key=key))
    line = json.loads(entry.model_dump_json())
    assert AuditEntry.model_validate(line) == entry
    assert line.pop("sha256") == entry.sha256
    raw = json.dumps(line, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(raw.encode()).hexdigest() == entry.sha256


def test_a_field_that_no_program_writes_is_refused() -> None:
    line = chain("sepsis", "invite")[0].model_dump(mode="json")
    for wrong in (line | {"note": "x"}, line | {"sequence": 0}, line | {"sequence": "1"}, line | {"study": "S 1"}):
        with pytest.raises(ValidationError):
            AuditEntry.model_validate(wrong)
