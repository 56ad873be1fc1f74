"""What the cells of a hospital's table say. They stay as they are stored until somebody declares what a column holds.

`column` keeps cells and their stored type, `reading` turns them into values, `spelling` knows how texts are written.
What a cell says depends on the cell, its stored type and public settings alone, never on another cell.
"""

from client_sdk.protocol.cells.column import AS_WRITTEN, Column, Spelling, column_of
from client_sdk.protocol.cells.reading import (
    Categories,
    Numbers,
    read_categories,
    read_days,
    read_numbers,
    read_presence,
)

__all__ = [
    "AS_WRITTEN",
    "Categories",
    "Column",
    "Numbers",
    "Spelling",
    "column_of",
    "read_categories",
    "read_days",
    "read_numbers",
    "read_presence",
]
