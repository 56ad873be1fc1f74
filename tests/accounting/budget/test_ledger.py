import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting.budget.ledger import GENESIS, Entry, LedgerError, append, verify_chain

BODIES = st.dictionaries(
    st.text(max_size=5),
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    max_size=3,
)


def chain(bodies):
    entries: list[Entry] = []
    for number, body in enumerate(bodies):
        kind = "opened" if number == 0 else "reserved"
        entries.append(append(entries[-1] if entries else None, kind, number or None, body))
    return entries


@given(st.lists(BODIES, max_size=6))
def test_a_chain_verifies_also_after_a_trip_through_json(bodies):
    entries = chain(bodies)
    head = (len(entries), entries[-1].sha256 if entries else GENESIS)
    assert verify_chain(entries) == head
    assert verify_chain([Entry.from_dict(entry.to_dict()) for entry in entries]) == head


@given(st.lists(BODIES, min_size=2, max_size=6), st.data())
def test_whoever_remembers_a_head_accepts_extensions_only(bodies, data):
    entries = chain(bodies)
    seen = data.draw(st.integers(1, len(entries)))
    remembered = (entries[seen - 1].sequence, entries[seen - 1].sha256)
    assert verify_chain(entries[seen:], after=remembered) == (len(entries), entries[-1].sha256)
    forked = chain([*bodies[: seen - 1], {"another": "past"}, *bodies[seen:]])
    if forked[seen - 1].sha256 != remembered[1] and seen < len(entries):
        with pytest.raises(LedgerError, match="past was rewritten"):
            verify_chain(forked[seen:], after=remembered)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"body": {"x": 2}}, "does not have its hash"),
        ({"kind": "settled"}, "does not have its hash"),
        ({"round": 9}, "does not have its hash"),
        ({"previous": "f" * 64}, "past was rewritten"),
        ({"sequence": 5}, "missing or repeated"),
    ],
)
def test_one_changed_field_is_found_and_named(change, reason):
    entries = chain([{"x": 0}, {"x": 1}, {"x": 1}])
    entries[1] = dataclasses.replace(entries[1], **change)
    with pytest.raises(LedgerError, match=reason) as broken:
        verify_chain(entries)
    assert broken.value.sequence == entries[1].sequence


def test_a_removed_entry_is_found():
    entries = chain([{}, {}, {}])
    with pytest.raises(LedgerError, match="missing or repeated"):
        verify_chain([entries[0], entries[2]])


def test_numbers_that_are_none_are_never_written():
    with pytest.raises(ValueError, match="JSON"):
        append(None, "opened", None, {"epsilon": float("nan")})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"sequence": True, "kind": "opened", "round": None, "body": {}, "previous": "", "sha256": ""},
        {"sequence": 1, "kind": "forgotten", "round": None, "body": {}, "previous": "", "sha256": ""},
        {"sequence": 1, "kind": "opened", "round": "1", "body": {}, "previous": "", "sha256": ""},
        {"sequence": 1, "kind": "opened", "round": None, "body": [], "previous": "", "sha256": ""},
        {"sequence": 1, "kind": "opened", "round": None, "body": {}, "previous": None, "sha256": ""},
    ],
)
def test_what_is_no_entry_is_refused(value):
    with pytest.raises(LedgerError):
        Entry.from_dict(value)
