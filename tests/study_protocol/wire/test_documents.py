"""JSON that reads in one way only."""

from __future__ import annotations

import pytest

from study_protocol.study.messages import Refusal
from study_protocol.wire.documents import UnclearDocument, load_json, read_document


@pytest.mark.parametrize(
    "text",
    ['{"a":1,"a":1}', '{"a":1,"\\u0061":2}', '[{"b":{"a":1,"a":2}}]', "[NaN]", "-Infinity", "[" * 100_000],
    ids=["twice", "escaped", "inside", "NaN", "infinity", "deep"],
)
def test_what_reads_in_two_ways_is_refused(text: str) -> None:
    with pytest.raises(UnclearDocument) as caught:
        load_json(text)
    assert "u0061" not in str(caught.value)


def test_the_same_name_in_two_objects_is_clear() -> None:
    assert load_json('[{"a":1},{"a":{"a":2}}]') == [{"a": 1}, {"a": {"a": 2}}]


def test_a_message_is_read_once_it_is_clear() -> None:
    assert read_document(Refusal, b'{"code":"policy"}') == Refusal(code="policy")
    with pytest.raises(UnclearDocument):
        read_document(Refusal, b'{"code":"policy","code":"policy"}')
    with pytest.raises(ValueError, match="validation error"):
        read_document(Refusal, b'{"code":1}')
    with pytest.raises(ValueError):
        read_document(Refusal, b"\xff")
