"""TOML and JSON that a person wrote: what keeps a file from being read, with its line, in words, without its content.

The parsers' own words are for programmers, and may quote the line, which in a site policy names patients.
"""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from study_protocol.wire.documents import UnclearDocument, load_json

_PLACE = re.compile(r"\(at (?:line (\d+), column (\d+)|end of document)\)")
_NAME = r"(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')"
_QUOTES = "a quotation mark of a word processor stands in it: write a straight one, \", or '"
# Patterns of the line that the parser stopped in. The first that fits gives fixed words, never the line's.
_TOML = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        ("[\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u00ab\u00bb\u2033]", _QUOTES),
        ("[\u00a0\u2000-\u200b\u202f\u3000\ufeff]", "a space in it is no plain one: write it anew"),
        (r"=\s*(?:True|False|TRUE|FALSE|yes|no|Yes|No)\b", "true and false are written so, in small letters"),
        (r"=\s*(?:None|null|NULL|nil|none)\b", "TOML has no null: leave the entry out"),
        (r"=\s*[+-]?\d+,\d+\s*(?:#.*)?$", "a number has a decimal point, no comma"),
        (r"=\s*\d{1,4}[-./]\d{1,2}[-./]\d{1,4}\b", "a date is written 2026-12-31, with a day that the month has"),
        (r"=\s*[+-]?\.\d|=\s*[+-]?\d+\.\s*(?:#.*)?$", "a number has a digit before and after its decimal point"),
        (r"=\s*(?:#.*)?$", "no value stands after the ="),
        (
            r"=\s*\"[^\"]*\\",
            "in a text between \" marks a \\ is written \\\\, and between ' marks it stands for itself",
        ),
        (r"=\s*(?:\"[^\"]*|'[^']*)$", "a quotation mark is not closed"),
        (r"=\s*[A-Za-z_]", "a text stands between quotation marks"),
        (
            rf"^\s*(?!\[|#|{_NAME}(?:\s*\.\s*{_NAME})*\s*=)[^=\"']+=",
            "a name with a space, or with other letters than a to z, digits, _ and -, stands between quotation marks",
        ),
        (rf"^\s*{_NAME}\s*:", "between a name and its value stands =, not a colon"),
    )
)


class Unreadable(ValueError):
    """The text says what is wrong and where, without anything of the file."""


def read_toml(data: bytes | str) -> dict[str, Any]:
    """Return the entries of a TOML file, with or without a byte order mark. Raises Unreadable."""
    text = _text(data)
    if "\r" in text.replace("\r\n", ""):
        raise Unreadable("its lines end with CR alone, which TOML does not know: save it with other line ends")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unreadable(_toml_words(str(error), text)) from None
    except RecursionError as error:
        raise Unreadable("it is nested too deeply") from error
    # Python reads no whole number of more than 4,300 digits.
    except ValueError:
        raise Unreadable("a whole number in it has too many digits") from None


def read_json(data: bytes | str) -> Any:
    """Return the value in a JSON file, with or without a byte order mark. Raises Unreadable."""
    text = _text(data)
    if not text.strip():
        raise Unreadable("it is empty")
    try:
        return load_json(text)
    except UnclearDocument as error:
        raise Unreadable(str(error)) from error
    except json.JSONDecodeError as error:
        raise Unreadable(f"line {error.lineno}: {_json_words(error, text)}") from None


def _text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise Unreadable("it is a text in UTF-16: save it in UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line}: it is no text in UTF-8: save it as one") from None


def _toml_words(parser_message: str, text: str) -> str:
    place = _PLACE.search(parser_message)
    lines = text.rstrip().splitlines() or [""]
    ended = place is None or place[1] is None
    number = len(lines) if place is None or place[1] is None else min(int(place[1]), len(lines))
    line = lines[number - 1]
    if parser_message.startswith("Cannot "):
        return f"line {number}: this name or table stands in the file already"
    if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", line):
        return f"line {number}: a character in it cannot be seen and is not allowed"
    # At the end of the file a mark or a bracket is open that stands further up.
    opened = "an entry is not finished: a quotation mark or a bracket is not closed"
    last = opened if ended else "it is no entry: name = value"
    return f"line {number}: {next((words for pattern, words in _TOML if pattern.search(line)), last)}"


def _json_words(error: json.JSONDecodeError, text: str) -> str:
    before, after = text[: error.pos].rstrip(), text[error.pos :].lstrip()
    if not after:
        return "it ends in the middle: a bracket or a quotation mark is not closed"
    # The place at which the parser stops differs between versions: before the comma or behind it.
    if (before.endswith(",") and after[0] in "]}") or after.removeprefix(",").lstrip()[:1] in tuple("]}"):
        return "a comma stands before a closing bracket: take it away"
    if after[0] in "\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u00ab\u00bb":
        return _QUOTES
    if after[0] == "'":
        return 'names and texts stand between " marks'
    if after.startswith(("//", "/*", "#")):
        return "JSON has no comments: TOML has"
    if after.startswith(("True", "False", "None")):
        return "true, false and null are written so, in small letters"
    return f"{error.msg[:1].lower()}{error.msg[1:]}, column {error.colno}"
