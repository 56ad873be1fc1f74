"""How the tables of one data set are written. A person declares it once, and the hospital's ledger keeps it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from client_sdk.protocol.cells.spelling import Decimal, Spelling

Separator = Literal["comma", "semicolon", "tab", "bar"]
SEPARATORS: dict[Separator, str] = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}


@dataclass(frozen=True)
class TableFormat:
    """separator, encoding and header: of text tables. decimal, dates: of texts in any table.

    header: the first line names the columns.
    decimal: the mark of decimal numbers; None: nobody has said, then a text that may mean thousands is no number.
    dates: the order of day, month and year where the year is last; None: only dates that begin with the year are dates.
    """

    separator: Separator = "comma"
    encoding: str = "utf-8"
    header: bool = True
    decimal: Decimal | None = None
    dates: Literal["dmy", "mdy"] | None = None

    @property
    def mark(self) -> str:
        """What stands between two cells."""
        return SEPARATORS[self.separator]

    @property
    def spelling(self) -> Spelling:
        """Of its texts."""
        return Spelling(self.decimal, self.dates)
