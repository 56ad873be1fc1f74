"""Words for a text that a declaration does not know. They say what it may be and what to do, and do not quote it."""

from __future__ import annotations

import re

from study_protocol.cells.spelling import (
    UNDATED,
    UNMAPPED,
    Decimal,
    Spelling,
    days_in,
    is_doubtful,
    is_rounded,
    number_in,
)

_MARKS: tuple[Decimal, ...] = ("point", "comma")
_YEAR_LAST = re.compile(r"[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{4}(\D.*)?", re.DOTALL)
_SHORT_YEAR = re.compile(r"[0-9]{1,2}[-./][0-9]{1,2}[-./][0-9]{2}(\D.*)?", re.DOTALL)
_DATE = re.compile(r"[0-9]{1,4}[-./][0-9]{1,2}[-./][0-9]{1,4}(\D.*)?", re.DOTALL)
_ZONE = re.compile(r".*[0-9]\s*(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}(?::[0-9]{2})?)", re.DOTALL)
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:[.,'’\s][0-9]{3})+(?:[.,][0-9]+)?")
_PLAIN = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?")
# A currency, a sign of comparison, brackets, a long minus.
_WITH_MORE = re.compile(r"[^\w\s]{0,2}\s*[0-9].*", re.DOTALL)
_OF_MAPPING = {
    UNMAPPED: "a code that the mapping does not know",
    UNDATED: "a cell for which the mapping (days_from) found no date",
}
_PLAIN_TEXT = "text: if it stands for a missing value, missing-values of the study can name it"


def kind_of_no_number(text: str, spelling: Spelling) -> str:
    """Return the kind of a text that is no number in this spelling."""
    if text in _OF_MAPPING:
        return _OF_MAPPING[text]
    if _YEAR_LAST.fullmatch(text):
        order = "" if spelling.dates else ", and their order with --dates"
        return f"a date with its year last: declare the column as dates{order}"
    if _DATE.fullmatch(text):
        return "a date: declare the column as dates"
    if is_rounded(text):
        return "a number that a spreadsheet has rounded: make its column wider and save it again"
    if number_in(text, spelling) is not None:
        return "a number that is too large for a computer"
    if any(number_in(text, Spelling(mark)) is not None for mark in _MARKS):
        return _kind_of_marked(text, spelling)
    if _THOUSANDS.fullmatch(text):
        return "a number with marks or spaces between thousands: write it without them"
    return _more_or_other(text)


def kind_of_no_date(text: str, spelling: Spelling) -> str:
    """Return the kind of a text that is no date in this spelling."""
    if text in _OF_MAPPING:
        return _OF_MAPPING[text]
    if _YEAR_LAST.fullmatch(text) and spelling.dates is None:
        return "a date with its year last: declare the order of day and month (--dates)"
    if _SHORT_YEAR.fullmatch(text):
        return "a date whose year may have two digits: write four"
    if _DATE.fullmatch(text):
        if _ZONE.fullmatch(text):
            return "a date with a time zone: write the local time, without the zone"
        if any(days_in(text, Spelling(dates=order)) is not None for order in ("dmy", "mdy")):
            return "a date in another order of day and month than the declared one"
        return "a date that is in no calendar, or has a time that is not understood: 2024-01-31 23:59 would be"
    if _PLAIN.fullmatch(text):
        return "a number and no date"
    return _PLAIN_TEXT


def _kind_of_marked(text: str, spelling: Spelling) -> str:
    """Return the kind of digits with one point or one comma."""
    if spelling.decimal is None:
        return "a number whose comma or point may mean thousands: declare the decimal mark of the data set (--decimal)"
    opposite: Decimal = "comma" if spelling.decimal == "point" else "point"
    if is_doubtful(text, Spelling()):
        return (
            f"a number whose {opposite} may mean thousands, and the data set is declared with a decimal "
            f"{spelling.decimal}: write it without the {opposite}"
        )
    return (
        f"a number with a {opposite}, and the data set is declared with a decimal {spelling.decimal}: write it so, or "
        f"declare --decimal {opposite}"
    )


def _more_or_other(text: str) -> str:
    more = _WITH_MORE.fullmatch(text)
    return "a number with a sign or a unit: write the number alone" if more else _PLAIN_TEXT
