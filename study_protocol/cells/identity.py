"""The identity of a patient, from a cell, a header or a list.

Two identifiers are one patient if they differ only in invisible characters, or in the form that a program stores.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, time
from decimal import Decimal
from numbers import Integral
from typing import Any, cast
from uuid import UUID

import numpy as np

# The texts that programs write for a missing cell in a column of texts.
_MISSING = frozenset({"", "nan", "None", "NaT", "<NA>"})
# 1,23457E+12 and 1E+12, as spreadsheets and programs write them. 1E1 and 12E5 are codes.
_SCIENTIFIC = re.compile(r"[+-]?(?:[0-9]+[.,][0-9]+[eE][+-]?[0-9]+|[0-9][eE][+-][0-9]+)")
# A whole number from a column of fractions.
_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
# Characters without a shape: fillers, joiners, selectors of a variant.
_FILLERS = (
    0x34F,
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    0x3164,
    (0xFE00, 0xFE0F),
    0xFFA0,
    (0xE0100, 0xE01EF),
)
_FRACTION_OF_A_SECOND = re.compile(r"[0-9:]+\.[0-9]+")
_MAX_DIGITS = 4096
# Above this, float64 no longer separates consecutive whole numbers.
_LARGEST_EXACT = 2**53


class IdentifierError(ValueError):
    """A value that cannot tell one patient from another.

    fault   the kind of the value, never its content. It continues "3 of 9 records"
    advice  a sentence with the remedy
    """

    def __init__(self, fault: str, advice: str) -> None:
        super().__init__(f"{fault}. {advice}")
        self.fault, self.advice = fault, advice


_LOSSY = (
    "hold a number whose last digits are lost, such as 1.23E+12 in a spreadsheet",
    "Several patients would be one: save the identifiers as text where they come from",
)
_NO_TEXT = "hold bytes or characters that are no Unicode text", "Write the identifiers as text in UTF-8"
_NO_IDENTIFIER = ("hold neither a text nor a whole number nor a date as an identifier", "Write the identifiers as text")


def patient_identity(value: Any) -> str:
    """Return the identity of the patient in a cell, a header or a list, or "" if the value is missing.

    Text is brought to Unicode's form NFKC: composed letters, narrow digits, one kind of space. Digits of every script
    become 0 to 9, and dashes of every length "-". Characters without a shape are removed: control and format
    characters, byte order marks, soft hyphens. Spaces around the text are removed, and runs of spaces become one.
    Capitals and leading zeros count. A UUID is written in small letters.

    Whole numbers are their digits, also if a program has written them as fractions: 17, 17.0 and "17.0" are "17".
    Dates are written in ISO 8601, without the time at midnight. Missing values are None, NaN, NaT, pandas' NA, an empty
    text and the texts that programs write for these: "nan", "None", "NaT", "<NA>".

    Raises:
        IdentifierError: the value is a fraction too large to be exact, is in scientific notation, has bytes that are
            not UTF-8, or is no identifier at all, such as a list.
    """
    if type(value) is str and value.isascii() and value.isalnum():
        return "" if value in _MISSING else value
    text = _text(value)
    if text in _MISSING:
        return ""
    if _SCIENTIFIC.fullmatch(text):
        raise IdentifierError(*_LOSSY)
    if whole := _WHOLE.fullmatch(text):
        if not abs(float(whole[1])) < _LARGEST_EXACT:
            raise IdentifierError(*_LOSSY)
        text = whole[1]
    return text.lower() if _UUID.fullmatch(text) else text


def identity_or_blank(value: Any) -> str:
    """Return the identity as `patient_identity`, or "" if the value cannot be an identifier."""
    try:
        return patient_identity(value)
    except IdentifierError:
        return ""


def objection_key(identity: str) -> str:
    """Return the key that objections are compared by: an identity without capitals, a number without leading zeros.

    A column of numbers has lost the zeros, and a hand-written list the capitals. It is safer to leave out one patient
    too many.
    """
    if identity.isdecimal():
        return identity.lstrip("0") or "0"
    return unicodedata.normalize("NFKC", identity.casefold())


def _text(value: Any) -> str:
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = cast("Any", value)[()]
    if isinstance(value, str):
        return visible_text(value)
    if isinstance(value, bytes | bytearray):
        return visible_text(_decoded(bytes(value)))
    if isinstance(value, bool | np.bool_):
        return str(bool(cast("bool", value)))
    if isinstance(value, Integral):
        return _digits(int(value))
    return "" if _is_missing(value) else _fraction_or_date(value)


def _fraction_or_date(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return _fraction(cast("float", value))
    if isinstance(value, Decimal) and abs(value.adjusted()) < _MAX_DIGITS:
        return _digits(int(value)) if value == value.to_integral_value() else format(value.normalize(), "f")
    if isinstance(value, np.datetime64 | date | time):
        return _date(cast("date", value))
    if isinstance(value, UUID):
        return str(value)
    raise IdentifierError(*_NO_IDENTIFIER)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise IdentifierError(*_NO_TEXT) from None


def _is_missing(value: Any) -> bool:
    try:
        return value is None or bool(value != value) or str(value) == "NaT"
    # pandas' NA has no truth value when compared, even with itself. Neither has an array.
    except (TypeError, ValueError, ArithmeticError):
        return str(value) in ("<NA>", "sNaN")


def visible_text(text: str) -> str:
    """Return a text as `patient_identity` compares it: in form NFKC, without characters that have no shape.

    Raises:
        IdentifierError: the text has half a pair of surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise IdentifierError(*_NO_TEXT) from None
    shaped = "".join(character for character in text if not _is_invisible(character))
    normal = unicodedata.normalize("NFKC", shaped)
    return " ".join("".join(map(_plain, normal)).split())


def _is_invisible(character: str) -> bool:
    return character in _INVISIBLE or (unicodedata.category(character) in ("Cc", "Cf") and not character.isspace())


def _plain(character: str) -> str:
    kind = unicodedata.category(character)
    if kind == "Nd":
        return str(unicodedata.decimal(character))
    return "-" if kind == "Pd" or character == "\N{MINUS SIGN}" else character


def _fraction(value: float) -> str:
    # At its own precision: a float32 is exact up to 2**24.
    exact = 2 ** (np.finfo(value.dtype).nmant + 1) if isinstance(value, np.floating) else _LARGEST_EXACT
    if not abs(value) < exact:
        raise IdentifierError(*_LOSSY)
    return str(int(value)) if value == int(value) else str(value)


def _digits(number: int) -> str:
    # Python writes no number of more than 4300 digits.
    if number.bit_length() > _MAX_DIGITS:
        raise IdentifierError(*_NO_IDENTIFIER)
    return str(number)


def _date(value: np.datetime64 | date) -> str:
    text = str(np.datetime_as_string(value)) if isinstance(value, np.datetime64) else value.isoformat()
    day, _, clock = text.partition("T")
    if _FRACTION_OF_A_SECOND.fullmatch(clock):
        clock = clock.rstrip("0").rstrip(".")
    return f"{day}T{clock}" if clock.strip("0:") else day


_INVISIBLE = frozenset(
    chr(code) for span in _FILLERS for code in (range(span[0], span[1] + 1) if isinstance(span, tuple) else (span,))
)
