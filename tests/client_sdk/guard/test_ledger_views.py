from __future__ import annotations

from dataclasses import replace

import pytest

from client_sdk.guard.ledger_views import RecordsMark, RecordsOrigin

ORIGIN = RecordsOrigin(snapshot="icu", sha256="ab" * 32, query_sha256="cd" * 32, mapping_sha256="ef" * 32)
MARK = RecordsMark(content="c", people="p", patients=3, rows=4, inputs="cells:i", origin=ORIGIN)


def test_a_mark_is_read_as_it_was_written() -> None:
    for mark in (MARK, replace(MARK, origin=None)):
        assert RecordsMark.from_dict(mark.to_dict()) == mark
    assert "origin" not in replace(MARK, origin=None).to_dict()


@pytest.mark.parametrize(
    ("mark", "matches"),
    [
        (replace(MARK, at="2026-11-27T10:00:00+00:00", accepted=True), True),
        (replace(MARK, content="d"), False),
        (replace(MARK, inputs="cells:j"), False),
        # What was compared in other ways says nothing.
        (replace(MARK, inputs="labels:j"), True),
        (replace(MARK, inputs=""), True),
        (replace(MARK, origin=None), True),
        (replace(MARK, origin=replace(ORIGIN, snapshot="icu-2", sha256="00" * 32)), True),
        (replace(MARK, origin=replace(ORIGIN, query_sha256="00" * 32)), False),
        (replace(MARK, origin=replace(ORIGIN, query_sha256="")), True),
        (replace(MARK, origin=replace(ORIGIN, mapping_sha256="")), False),
    ],
)
def test_marks_match_as_far_as_both_know_their_records(mark: RecordsMark, matches: bool) -> None:
    assert MARK.matches(mark) is matches
    assert mark.matches(MARK) is matches
