"""What an entry may say: exactly the fields of its kind, all of them under its hash; anything else is named."""

import contextlib
import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accounting.budget.bodies import EVENTS, STANDING, Standing, event_in, settings_in
from accounting.budget.budget import replay
from accounting.budget.ledger import Entry, LedgerError, append, digest
from accounting.plan.queries import QueryCost, QueryPlan
from tests.accounting.budget.plans import plan
from tests.factories.ledgers import after, opened

REPORT = {"filter": 0.1, "moments": [0.1, 0.1, 0.1], "complete": False}
COST = QueryCost(2.0**20, 1024.0, 10).to_dict()
EVENT = {
    "roster": (None, {"change": "enrolled"}),
    "operated": (
        None,
        {"action": "invite", "actor": "Ada", "role": "lead", "audit_entries": 2, "audit_sha256": "a" * 64},
    ),
    "reserved": (1, {}),
    "asked": (2, {"query": "a" * 64, "cost": COST}),
    "settled": (1, {"report": REPORT}),
    "released": (1, {"sha256": "a" * 64, "bytes": 160}),
    "charged-in-full": (1, {"reason": "updates-lost"}),
    "cancelled": (1, {"reason": "too-few-clients"}),
    "finished": (None, {"reason": "stopped", "report": None}),
}
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([10**400, -0.0, 1e300, "a" * 64]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def ledger() -> list[Entry]:
    entries = opened(
        plan(max_steps=60, epsilon={"bayesian": 15.0, "classical": 20.0}, queries=QueryPlan(5, 10, allowance=1.0))
    )
    for kind in ("roster", "operated", "reserved", "settled", "released"):
        entries.append(after(entries, kind, EVENT[kind][0], **EVENT[kind][1]))
    entries.append(after(entries, "reserved", 2))
    entries.append(after(entries, "cancelled", 2, reason="too-few-clients"))
    entries.append(after(entries, "asked", 3, **EVENT["asked"][1]))
    entries.append(after(entries, "settled", 3, report=None))
    return [*entries, after(entries, "finished", reason="stopped", report=None)]


def rewritten(entries: list[Entry], place: int, body: object) -> list[dict]:
    """The ledger with another body at `place`, chained anew as a coordinator with its key could."""
    found: list[Entry] = []
    for number, entry in enumerate(entries):
        given = body if number == place else entry.body
        found.append(append(found[-1] if found else None, entry.kind, entry.round, given))  # type: ignore[arg-type]
    return [entry.to_dict() for entry in found]


def test_a_ledger_of_every_kind_replays():
    assert {entry.kind for entry in ledger()} == set(EVENTS) - {"charged-in-full"}
    assert replay(Entry.from_dict(json.loads(json.dumps(entry.to_dict()))) for entry in ledger()).finished == "stopped"


@pytest.mark.parametrize("place", range(11))
@pytest.mark.parametrize("name", sorted(STANDING))
def test_an_entry_without_how_the_study_stood_is_named(place, name):
    body = {key: value for key, value in ledger()[place].body.items() if key != name}
    with pytest.raises(LedgerError, match=name) as refused:
        replay(map(Entry.from_dict, rewritten(ledger(), place, body)))
    assert refused.value.sequence == place + 1


@pytest.mark.parametrize("place", range(11))
def test_an_unknown_field_is_named(place):
    with pytest.raises(LedgerError, match="surplus") as refused:
        replay(map(Entry.from_dict, rewritten(ledger(), place, {**ledger()[place].body, "surplus": 1})))
    assert refused.value.sequence == place + 1


def test_an_entry_has_no_field_outside_its_hash():
    with pytest.raises(LedgerError, match="surplus"):
        Entry.from_dict({**ledger()[0].to_dict(), "surplus": 1})


@pytest.mark.parametrize("kind", sorted(set(EVENTS) - {"opened"}))
def test_every_field_of_an_event_is_needed(kind):
    round, event = EVENT[kind]
    complete = after(opened(plan()), kind, round, **event)
    assert set(event_in(complete)) == EVENTS[kind]
    for name in event:
        fewer = {key: value for key, value in complete.body.items() if key != name}
        with pytest.raises(LedgerError, match=name):
            event_in(append(opened(plan())[0], kind, round, fewer))


def test_a_release_may_name_a_clip_norm():
    round, event = EVENT["released"]
    entry = after(opened(plan()), "released", round, **event, clip_norm=0.5)
    assert event_in(entry) == event | {"clip_norm": 0.5}


@pytest.mark.parametrize(
    ("kind", "round", "change"),
    [
        ("reserved", None, {}),
        ("roster", 1, {}),
        ("roster", None, {"change": "bribed"}),
        ("roster", None, {"members": True}),
        ("roster", None, {"members": -1}),
        ("roster", None, {"can_continue": 1}),
        ("roster", None, {"state_sha256": "A" * 64}),
        ("roster", None, {"roster_sha256": "a" * 63}),
        ("cancelled", 1, {"reason": None}),
        ("settled", 1, {"report": []}),
        ("released", 1, {"sha256": "A" * 64}),
        ("released", 1, {"bytes": 0}),
        ("released", 1, {"clip_norm": 0.0}),
        ("released", 1, {"clip_norm": True}),
        ("released", 1, {"clip_norm": None}),
        ("released", 1, {"clip_norm": 10**400}),
        ("settled", 1, {"clip_norm": 1.0}),
        ("released", None, {"bytes": True}),
        ("released", None, {"bytes": 2**53 + 1}),
        ("finished", None, {"report": {}}),
        ("finished", None, {"report": [1]}),
    ],
)
def test_a_value_of_another_type_is_refused(kind, round, change):
    entry = after(opened(plan()), kind, round, **EVENT[kind][1])
    broken = append(opened(plan())[0], kind, round, {**entry.body, **change})

    def read():
        return Standing.within(broken), event_in(broken)

    with pytest.raises(LedgerError):
        read()


@pytest.mark.parametrize(
    "report",
    [
        {**REPORT, "surplus": 1},
        {"filter": 0.1, "moments": [0.1] * 3},
        {**REPORT, "complete": 1},
        {**REPORT, "papers": None},
        {**REPORT, "moments": {"0": 1}},
        {**REPORT, "moments": "123"},
        {**REPORT, "filter": 10**400},
        {"counts": 3},
        {"counts": [10**400]},
        {"counts": [1], "sample_size": 1},
        {"counts": [1], "sample_size": None, "count_noise": 0.0},
        {"clients": REPORT, "records": None},
        {"clients": {"clients": None, "records": None}, "records": None},
    ],
)
def test_a_report_that_is_none_is_a_ledger_error(report):
    entries = ledger()[:3]
    with pytest.raises(LedgerError, match="ledger entry 4") as refused:
        replay([*entries, after(entries, "settled", 1, report=report)])
    assert refused.value.sequence == 4


def test_the_settings_have_the_digest_that_every_entry_names():
    first = opened(plan(), {"a": 1})[0]
    assert settings_in(first) == {"a": 1}
    assert Standing.within(first).settings_sha256 == digest({"a": 1})
    with pytest.raises(LedgerError, match="digest"):
        settings_in(append(None, "opened", None, {**first.body, "settings": {"a": 2}}))
    other = after([first], "roster", change="enrolled")
    other = append(first, "roster", None, {**other.body, "settings_sha256": "b" * 64})
    with pytest.raises(LedgerError, match="other settings"):
        replay([first, other])


def test_nothing_follows_the_end():
    entries = ledger()
    with pytest.raises(LedgerError, match="roster"):
        replay([*entries, after(entries, "roster", change="withdrawn")])


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_whatever_is_written_into_a_ledger_is_a_ledger_error_or_a_ledger(data):
    """Any value at any path of any entry, chained anew: never another exception."""
    entries = ledger()
    place = data.draw(st.integers(0, len(entries) - 1))
    entry = entries[place].to_dict()
    body = copy.deepcopy(dict(entry["body"]))
    at = body
    while True:
        name = data.draw(st.sampled_from(sorted(at)) | st.text(max_size=3))
        if isinstance(at.get(name), dict) and at[name] and data.draw(st.booleans()):
            at = at[name]
            continue
        at[name] = data.draw(JSON)
        break
    try:
        forged = rewritten(entries, place, body)
    except ValueError:
        # NaN and infinities: no entry can be made of them, and nobody can send them.
        return
    with contextlib.suppress(LedgerError):
        replay(map(Entry.from_dict, forged))


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["sequence", "kind", "round", "body", "previous", "sha256", "x"]), JSON))
def test_what_is_no_entry_is_a_ledger_error(value):
    for given_ in (value, {**ledger()[1].to_dict(), **value}):
        with contextlib.suppress(LedgerError):
            replay([ledger()[0], Entry.from_dict(given_)])
