"""How texts are written: numbers, dates, and the words for missing. Each function looks at one text alone."""

from __future__ import annotations

import datetime
import decimal
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Decimal = Literal["point", "comma"]
DateOrder = Literal["ymd", "dmy", "mdy"]

# Words that tables write for a missing value. A study that declares one of them as a category means a value.
MISSING = frozenset(("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "NaT"))
# Words of a hospital's mapping for a cell whose code it does not know, and for one without a day to count. They begin
# with an invisible sign, which `cleaned` removes from every cell and every setting: no text of either can equal them.
UNMAPPED = "\u2063unmapped"
UNDATED = "\u2063undated"
# Of a day.
MICROSECONDS = 86_400_000_000
# Whole numbers that every float64 holds exactly.
EXACT = 1 << 53
_EXACT_DIGITS = len(str(EXACT)) + 1
# Invisible characters: format characters, such as a zero-width space or a byte order mark.
_INVISIBLE = "Cf"
# Signs of other kinds that are not drawn (Unicode 16, Default_Ignorable_Code_Point), and blank Braille.
_DRAWN_AS_NOTHING = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U000e0000-\U000e0fff]"
)

_MARKS: dict[Decimal, str] = {"point": r"\.", "comma": ","}
_NUMBER = {
    mark: re.compile(rf"[+-]?(?:[0-9]+(?:{sign}[0-9]*)?|{sign}[0-9]+)(?:[eE][+-]?[0-9]+)?")
    for mark, sign in _MARKS.items()
}
_WHOLE = re.compile(r"[+-]?[0-9]+(?:[eE][+-]?[0-9]+)?")
_PLAIN = {mark: re.compile(rf"-?(?:0|[1-9][0-9]*)(?:{sign}[0-9]+)?") for mark, sign in _MARKS.items()}
# One mark and three digits behind at most three: 1.234 and 1,234 are as likely a thousand.
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")
_DOUBTFUL_LINE = re.compile(rf"^{_THOUSANDS.pattern}$", re.MULTILINE)
# As a spreadsheet writes a number for which its column is too narrow: three digits are left of it.
_ROUNDED = re.compile(r"[+-]?[0-9],[0-9]{2}E[+-][0-9]{2,3}")
_SIGNS = frozenset("0123456789+-eE\n")
_DATES: dict[DateOrder, re.Pattern[str]] = {
    "ymd": re.compile(r"(?P<y>[0-9]{4})[-./](?P<m>[0-9]{1,2})[-./](?P<d>[0-9]{1,2})"),
    "dmy": re.compile(r"(?P<d>[0-9]{1,2})[-./](?P<m>[0-9]{1,2})[-./](?P<y>[0-9]{4})"),
    "mdy": re.compile(r"(?P<m>[0-9]{1,2})[-./](?P<d>[0-9]{1,2})[-./](?P<y>[0-9]{4})"),
}
_ONE_NUMBER = r"[+\-\u2212\u2013]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_BETWEEN_NUMBERS = r"\s*(?:[,;/&\u2013\u2014\u2026-]|\.\.+|to|and|or|\s)\s*"
_AROUND_NUMBERS = r"[\s\[\](){}\"'`\u2018-\u201f\u00ab\u00bb]*"
_MISWRITTEN = re.compile(
    rf"{_AROUND_NUMBERS}{_ONE_NUMBER}(?:{_BETWEEN_NUMBERS}{_ONE_NUMBER})*{_AROUND_NUMBERS}[,;]?", re.IGNORECASE
)
_LIKE_A_DATE = re.compile(r"[0-9]{1,4}([-./])[0-9]{1,2}\1[0-9]{1,4}")
_TIME = re.compile(r"(?P<h>[0-9]{1,2}):(?P<min>[0-9]{2})(?::(?P<s>[0-9]{2}(?:\.[0-9]+)?))?")
_TRUTHS = {"true": 1.0, "false": 0.0}
_EPOCH = datetime.date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Spelling:
    """How the texts of one data set are written, as a person declared it.

    Attributes:
        decimal: the mark of a decimal number. None if it is not declared: then a text that may mean thousands is no
            number.
        dates: the order of day, month and year where the year is last. None if it is not declared: then such a text is
            no date.
    """

    decimal: Decimal | None = None
    dates: Literal["dmy", "mdy"] | None = None


AS_WRITTEN = Spelling()
# Studies write decimal points.
POINTS = Spelling(decimal="point")


def cleaned(text: str) -> str:
    """Return the text without spaces around it and without invisible characters, in composed letters (NFC)."""
    if text.isascii():
        return text.strip()
    visible = "".join(sign for sign in _DRAWN_AS_NOTHING.sub("", text) if unicodedata.category(sign) != _INVISIBLE)
    return unicodedata.normalize("NFC", visible).strip()


def column_name(name: str) -> str:
    """Return the name in composed letters (NFC): é in one sign and é as e with an accent are one name."""
    return unicodedata.normalize("NFC", name)


def are_several(text: str, *, is_only: bool) -> bool:
    """Return whether a code looks like several codes with commas between.

    Numbers with commas always do, as studies write decimal points. A text that stands alone does if no space follows
    its comma.

    Args:
        is_only: whether it is the only code of its list.
    """
    parts = text.split(",")
    numbers = all(number_in(part.strip(), POINTS) is not None for part in parts)
    return len(parts) > 1 and (numbers or (is_only and re.search(r",\S", text) is not None))


def is_miswritten(code: str) -> bool:
    """Return whether a code for numbers is meant as one or several numbers and written as none.

    0 -1, -9..-1, 0 to 9, [0 and '0' are. The texts <0.1, n.d. and 1900-01-01 may stand in a cell.
    """
    if number_in(code, POINTS) is not None or _LIKE_A_DATE.fullmatch(code):
        return False
    # Spaces in a row would be tried in every way.
    return _MISWRITTEN.fullmatch(" ".join(code.split())) is not None


def number_in(text: str, spelling: Spelling) -> float | None:
    """Return the number that a cleaned text says, perhaps infinite.

    Return None for a text without a single such meaning.

    True and False are 1 and 0, as a stored Boolean is.
    """
    mark = spelling.decimal or "point"
    if not _NUMBER[mark].fullmatch(text):
        return _TRUTHS.get(text.lower())
    return None if is_doubtful(text, spelling) or is_rounded(text) else float(text.replace(",", "."))


def numbers_in(texts: Sequence[str], spelling: Spelling) -> NDArray[np.float64] | None:
    """Return `number_in` of each text, shape (k,).

    Return None if one of them may be no number, which only `number_in` can say.
    """
    joined = "\n".join(texts)
    # A cell of several lines would count as several.
    if joined.count("\n") >= max(len(texts), 1):
        return None
    # Of these signs Python and `_NUMBER` make the same numbers, and no others.
    mark, forbidden = (",", ".") if spelling.decimal == "comma" else (".", ",")
    signs = set(joined)
    if not signs <= _SIGNS | {mark} or forbidden in signs or {",", "E"} <= signs:
        return None
    if spelling.decimal is None and _DOUBTFUL_LINE.search(joined):
        return None
    try:
        return np.array(list(map(float, joined.replace(",", ".").split("\n"))) if texts else [], np.float64)
    except ValueError:
        return None


def is_doubtful(text: str, spelling: Spelling) -> bool:
    """Return whether the text may mean thousands because the decimal mark is not declared."""
    return spelling.decimal is None and _THOUSANDS.fullmatch(text) is not None


def is_rounded(text: str) -> bool:
    """Return whether a spreadsheet has written it with three digits, because its column was too narrow."""
    return _ROUNDED.fullmatch(text) is not None


def number_text(number: object, spelling: Spelling) -> str:
    """Return a stored number or Boolean as a text that says the same: in the digits of its own type, and in no doubt.

    A number that Python writes with an exponent is written without, so that it is one category with its other forms.
    """
    text = str(number)
    if text[-1].isdigit() and "e" in text.lower():
        text = format(decimal.Decimal(text), "f")
    # A fourth digit: three may mean thousands.
    text = f"{text}0" if is_doubtful(text, spelling) else text
    return text.replace(".", ",") if spelling.decimal == "comma" else text


def same_category(text: str) -> str:
    """Return a key that two names of a study share if no cell can tell them apart: 3 and 3.0, True and true."""
    name = cleaned(text)
    return plain_decimal(name, POINTS) or truth_in(name) or name


def plain_decimal(text: str, spelling: Spelling) -> str | None:
    """Return one spelling of a plain decimal below 2⁵³: 3, 3.0 and 3.00 are 3. None: a text that is no other text.

    A plain decimal has no sign but a minus, no leading zeros and no exponent: 0744, 1E1 and +1 are themselves alone.
    """
    mark = spelling.decimal or "point"
    if not _PLAIN[mark].fullmatch(text) or is_doubtful(text, spelling):
        return None
    whole, _, fraction = text.replace(",", ".").partition(".")
    # Python refuses to read very long ones.
    if len(whole) > _EXACT_DIGITS or abs(int(whole)) >= EXACT:
        return None
    fraction = fraction.rstrip("0")
    return f"{whole}.{fraction}" if fraction else "0" if whole == "-0" else whole


@lru_cache(maxsize=1 << 12)
def truth_in(text: str) -> str | None:
    """Return the value of `true` or `false` in any capitals, or None for any other text."""
    word = text.lower()
    return word if word in _TRUTHS else None


def days_in(text: str, spelling: Spelling) -> float | None:
    """Return the days from 1 January 1970 to a date, perhaps with a time of day.

    Return None for no date or an ambiguous one.

    A date that begins with its year needs no declaration. A time zone is not understood.
    """
    moment = moment_in(text, spelling)
    # One division of whole numbers, as of a stored date.
    return None if moment is None else moment / MICROSECONDS


def moment_in(text: str, spelling: Spelling) -> int | None:
    """Return `days_in` in microseconds."""
    orders: tuple[DateOrder, ...] = ("ymd",) if spelling.dates is None else ("ymd", spelling.dates)
    date, _, time = text.replace("T", " ", 1).partition(" ")
    parts = next((match for order in orders if (match := _DATES[order].fullmatch(date))), None)
    if parts is None:
        return None
    try:
        day = datetime.date(int(parts["y"]), int(parts["m"]), int(parts["d"])).toordinal() - _EPOCH
    except ValueError:
        return None
    elapsed = _microseconds(time) if time else 0
    return None if elapsed is None else day * MICROSECONDS + elapsed


def _microseconds(time: str) -> int | None:
    parts = _TIME.fullmatch(time.strip())
    if parts is None:
        return None
    hours, minutes, seconds = int(parts["h"]), int(parts["min"]), decimal.Decimal(parts["s"] or 0)
    if hours > 23 or minutes > 59 or seconds >= 60:
        return None
    return (hours * 3600 + minutes * 60) * 1_000_000 + int(seconds * 1_000_000)
