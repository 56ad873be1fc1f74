"""CSV text that spreadsheets open as text and numbers and never run as formulas. All commands write CSV with it.

A spreadsheet takes a cell for a formula if it begins with = + - @, a tab or a line end, also in their wide forms. A
formula may start a program (OWASP, CSV injection). In some countries cells are split at ; and at tabs, so a formula
may also begin after one of these. An apostrophe is put before each place where a formula would begin. Numbers such as
-3 or +1.5, and ranges of two numbers, are no formulas and stay: such identifiers can be read and joined as before. Two
different texts stay different.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

# The last four are their wide forms.
_BEGINNINGS = "=+\\-@\uff1d\uff0b\uff0d\uff20"
# Invisible characters, such as a byte order mark or a direction. Some spreadsheets remove them at the start of a cell.
_UNSEEN = "\\x00-\\x1f\\x7f-\\x9f\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
# At the start of the text, or after a separator of another spreadsheet. Spaces and quotation marks may stand before it.
# A tab or a line end begins a formula only at the start.
_FORMULA = re.compile(rf"\A(?='*[\t\r\n])|(?:\A|(?<=[\t\r\n;]))(?=[\s'\"{_UNSEEN}]*[{_BEGINNINGS}])")
_NUMBER = r"[+-]?(?:[0-9]+(?:[.,][0-9]*)?|[.,][0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(rf"{_NUMBER}(?: to {_NUMBER})?")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]], *, line_end: str = "\n") -> str:
    """Return the table as CSV. Texts of columns and cells are guarded, and None is an empty cell."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator=line_end)
    writer.writerow([guarded(column) for column in columns])
    writer.writerows([[guarded(cell) if isinstance(cell, str) else cell for cell in row] for row in rows])
    return written.getvalue()


def guarded(text: str) -> str:
    """Return the text with an apostrophe before each place where a formula would begin.

    >>> guarded("=1+1"), guarded("-3"), guarded("+1+cmd|' /C calc'!A0"), guarded("a;@b")
    ("'=1+1", '-3', "'+1+cmd|' /C calc'!A0", "a;'@b")
    """
    return text if _PLAIN.fullmatch(text) else _FORMULA.sub("'", text)
