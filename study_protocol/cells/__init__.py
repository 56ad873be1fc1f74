"""Cells of a hospital's table and their values. Cells stay as they are stored until a declaration says what they hold.

`stored` keeps cells and their type, and `column` lets programs compute with them. `making` makes columns from arrays,
lists and series. `reading` turns cells into values, and `spelling` knows how texts are written. `counting` says how
many cells fit a declaration, and `digest` names a whole table. The value of a cell depends on the cell, its stored type
and public settings alone, never on another cell.
"""

from study_protocol.cells.column import Column
from study_protocol.cells.errors import DataError
from study_protocol.cells.making import column_of, text_of
from study_protocol.cells.reading import Categories, Numbers, read_categories, read_days, read_numbers, read_presence
from study_protocol.cells.spelling import (
    AS_WRITTEN,
    MISSING,
    UNDATED,
    UNMAPPED,
    Spelling,
    are_several,
    cleaned,
    column_name,
    is_miswritten,
    same_category,
)

__all__ = [
    "AS_WRITTEN",
    "MISSING",
    "UNDATED",
    "UNMAPPED",
    "Categories",
    "Column",
    "DataError",
    "Numbers",
    "Spelling",
    "are_several",
    "cleaned",
    "column_name",
    "column_of",
    "is_miswritten",
    "read_categories",
    "read_days",
    "read_numbers",
    "read_presence",
    "same_category",
    "text_of",
]
