"""What is compared when a ledger is verified: keys, chains, exports, a hospital's own knowledge."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from accounting.budget.ledger import Entry
from client_sdk.errors import ConfigurationError, LedgerNotExtended
from study_protocol.study.messages import LedgerEntry, LedgerHead, SignedLedgerHead
from study_protocol.study.plan_of import plan_of
from study_protocol.wire.signing import decode_public_key, fingerprint
from tests.factories.ledgers import after, opened
from tests.factories.settings import settings
from tests.factories.signed_answers import PUBLIC
from wardround.cli.officer.verify import AskingHospital, fetch, named_key, read_export

MARK = fingerprint(decode_public_key(PUBLIC))


def chain(rounds: int) -> list[Entry]:
    chosen = settings()
    entries = opened(plan_of(chosen), chosen.as_json())
    for number in range(1, rounds + 1):
        entries.append(after(entries, "reserved", number))
    return entries


LEDGER = chain(4)


def test_a_key_is_the_one_that_was_named_or_said_not_to_be_compared() -> None:
    for given in (PUBLIC, MARK, MARK.upper()):
        assert named_key(given, PUBLIC, needed=True).reason == "the key that you named"
    assert MARK in named_key(None, PUBLIC, needed=False).reason
    with pytest.raises(ConfigurationError, match="--coordinator-key"):
        named_key(None, PUBLIC, needed=True)
    with pytest.raises(LedgerNotExtended, match="not the one that you named"):
        named_key("0" * 64, PUBLIC, needed=False)
    with pytest.raises(LedgerNotExtended, match="a key that is not valid"):
        named_key(None, "no key", needed=False)


def asking(**values: Any) -> AskingHospital:
    membership: Any = SimpleNamespace(pinned=None)
    known = AskingHospital(membership, PUBLIC, "icu", "a" * 64, 3, LEDGER[2].sha256, "")
    return replace(known, **values)


def test_a_hospital_holds_a_ledger_against_what_it_saw_and_joined_under() -> None:
    assert asking().compared(LEDGER, "a" * 64) == [
        "these are the settings that this hospital joined under",
        "entries 1 to 3 are those that this hospital saw",
    ]
    assert asking(seen_entries=0).compared(LEDGER, "a" * 64)[1:] == []
    (nothing,) = asking(settings_sha256=None, other_data_sets="; other").compared(LEDGER, "a" * 64)
    assert nothing == "data set icu takes no part here, so no knowledge of this hospital was compared; other"


@pytest.mark.parametrize(
    ("known", "entries", "words"),
    [
        ({"settings_sha256": "b" * 64}, LEDGER, "not those that this hospital joined under"),
        ({}, LEDGER[:2], "this hospital saw 3 entries, and 2 are shown"),
        ({"seen_sha256": "c" * 64}, LEDGER, "entry 3 is not the one that this hospital saw"),
    ],
)
def test_what_differs_from_a_hospital_s_own_knowledge_is_refused(
    known: dict[str, Any], entries: list[Entry], words: str
) -> None:
    with pytest.raises(LedgerNotExtended, match=words):
        asking(**known).compared(entries, "a" * 64)


def showing(entries: list[Entry], head: LedgerHead | None = None, page: int = 2) -> Any:
    """A client of a coordinator that shows these entries, so many a page."""
    named = head or LedgerHead(study="s", entries=len(entries), sha256=entries[-1].sha256)

    def ledger(study: str, after: int) -> Any:
        shown = [LedgerEntry.model_validate(entry.to_dict()) for entry in entries[after : after + page]]
        return SimpleNamespace(entries=shown, head=SignedLedgerHead(head=named, signature="A" * 86))

    return SimpleNamespace(ledger=ledger)


def test_every_page_is_fetched_up_to_the_signed_head() -> None:
    entries, page = fetch(showing(LEDGER), "s")
    assert entries == LEDGER
    assert page.head.head.entries == 5


@pytest.mark.parametrize(
    ("entries", "head", "words"),
    [
        (LEDGER, LedgerHead(study="s", entries=9, sha256="a" * 64), "do not lead to the newest one"),
        (LEDGER, LedgerHead(study="s", entries=5, sha256="a" * 64), "do not lead to the newest one"),
        ([], LedgerHead(study="s", entries=0, sha256="0" * 64), "do not lead to the newest one"),
        ([LEDGER[0], *LEDGER[2:]], LedgerHead(study="s", entries=5, sha256=LEDGER[-1].sha256), "entry"),
    ],
    ids=["shorter", "another head", "empty", "a gap"],
)
def test_entries_that_do_not_lead_to_the_head_are_refused(entries: list[Entry], head: LedgerHead, words: str) -> None:
    with pytest.raises(LedgerNotExtended, match=words):
        fetch(showing(entries, head), "s")


LAST: dict[str, Any] = {
    "head": {"head": {"study": "s", "entries": 5, "sha256": LEDGER[-1].sha256}, "signature": "A" * 86},
    "coordinator_key": PUBLIC,
    "roster": {"study": "s", "members": [], "fingerprint": "a" * 64},
    "witnesses": [],
}


def test_an_export_is_its_entries_and_what_was_signed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [*(entry.to_dict() for entry in LEDGER), LAST]))
    entries, export = read_export(path)
    assert entries == LEDGER
    assert (export.coordinator_key, export.head.head.entries, list(export.witnesses)) == (PUBLIC, 5, [])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "does not end with the signed head"),
        (["{}"], "does not end with the signed head"),
        (["[1]", json.dumps(LAST)], "line 1 of the export is no entry"),
        (['{"a":1,"a":2}', json.dumps(LAST)], "line 1 of the export is no JSON"),
        (['{"sequence":1}', json.dumps(LAST)], "fields of an entry"),
        ([json.dumps(LAST | {"head": 3})], "does not end with a signed head"),
    ],
    ids=["empty", "no head", "a list", "twice", "no entry", "no signed head"],
)
def test_a_file_that_is_no_export_is_refused_by_its_line(tmp_path: Path, lines: list[str], words: str) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(LedgerNotExtended, match=words):
        read_export(path)
