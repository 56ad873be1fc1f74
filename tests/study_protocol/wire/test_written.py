"""Why a file that a person wrote cannot be read: its line, in words, and nothing of its content."""

from __future__ import annotations

from itertools import count

import pytest

from study_protocol.wire.written import Unreadable, read_json, read_toml

TOML = [
    ("a = 1\nb = \u201csecret\u201d\n", "line 2: a quotation mark of a word processor"),
    ("b = 0,5", "line 1: a number has a decimal point"),
    ("b = 31.12.2026", "line 1: a date is written 2026-12-31"),
    ("b = 2026-02-31 # secret", "line 1: a date is written 2026-12-31"),
    ("b = secret", "line 1: a text stands between quotation marks"),
    ('b = "secret', "line 1: a quotation mark is not closed"),
    ("b = True", "line 1: true and false"),
    ("b =", "line 1: no value stands after"),
    ("b\u00a0= 1", "line 1: a space in it is no plain one"),
    ("gr\u00f6\u00dfe = 1", "line 1: a name with a space, or with other letters"),
    ("b: 1", "line 1: between a name and its value stands ="),
    ('b = "C:\\secret"', "line 1: in a text between"),
    ("b = 1\nb = 2", "line 2: this name or table stands in the file already"),
    ("b = [1,", "line 1: an entry is not finished"),
    ("a = 1\rb = 2", "CR alone"),
]
JSON = [
    ('{"a": 1,}', "line 1: a comma stands before a closing bracket"),
    ('{"a": [1,\n]}', "a comma stands before a closing bracket"),
    ("{'secret': 1}", 'names and texts stand between " marks'),
    ("{\u201csecret\u201d: 1}", "a quotation mark of a word processor"),
    ('{"a": 1', "it ends in the middle"),
    ('{"a": True}', "true, false and null"),
    (" \n", "it is empty"),
]


@pytest.mark.parametrize(("text", "told"), TOML, ids=map(str, count()))
def test_toml_is_refused_in_words_without_its_content(text: str, told: str) -> None:
    with pytest.raises(Unreadable) as error:
        read_toml(text.encode())
    assert told in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(("text", "told"), JSON, ids=map(str, count()))
def test_json_is_refused_in_words_without_its_content(text: str, told: str) -> None:
    with pytest.raises(Unreadable) as error:
        read_json(text.encode())
    assert told in str(error.value)
    assert "secret" not in str(error.value)


def test_marks_line_ends_and_tabs_that_are_allowed_change_nothing() -> None:
    assert read_toml(b"\xef\xbb\xbf[a]\r\n\tb\t=\t1\r\n") == {"a": {"b": 1}}
    assert read_json(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    for data, told in [
        ("a = 1".encode("utf-16"), "UTF-16"),
        ("\na = '\u00f6'".encode("cp1252"), "line 2: it is no text"),
    ]:
        with pytest.raises(Unreadable, match=told):
            read_toml(data)
