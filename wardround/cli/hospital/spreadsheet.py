"""CSV that a spreadsheet opens as text and numbers, and never runs: every CSV of a command is written here.

A spreadsheet takes a cell for a formula that begins with = + - @, a tab or a line end, also in their wide forms, and a
formula may start a program (OWASP, CSV injection). In some countries it splits at ; and at tabs, so that a formula may
begin after one of these. Where one would begin, an apostrophe is put before it. What spells a number, as -3 or +1.5, or
a range of two, is no formula and stays: such identifiers can be read and joined as they were. No two texts become
one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# The last four are their wide forms.
_BEGINNINGS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
# Signs that nobody sees, of which some spreadsheets take away the first ones: a byte order mark, or a direction.
_UNSEEN = "\\x00-\\x1f\\x7f-\\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
# At the start of the text, or after what another spreadsheet splits at; spaces and quotation marks may stand before it.
# A tab or a line end begins one at the start alone.
_FORMULA = re.compile(rf"\A(?='*[\t\r\n])|(?:\A|(?<=[\t\r\n;]))(?=[\s'\"{_UNSEEN}]*[{_BEGINNINGS}])")
_NUMBER = r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(rf"{_NUMBER}(?: to {_NUMBER})?")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], *, line_end: str = "\n") -> str:
    """The table as CSV; texts of columns and cells are guarded, None is an empty cell."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=line_end)
    writer.writerow([guarded(column) for column in columns])
    writer.writerows([[guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows])
    return written.getvalue()


def guarded(text: str) -> str:
    """The text with an apostrophe wherever a formula would begin.

    >>> guarded("=1+1"), guarded("-3"), guarded("+1+cmd|' /C calc'!A0"), guarded("a;@b")
    ("'=1+1", '-3', "'+1+cmd|' /C calc'!A0", "a;'@b")
    """
    return text if _PLAIN.fullmatch(text) else _FORMULA.sub("'", text)
