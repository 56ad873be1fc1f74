"""The format of the tables of one data set. A person declares it once, and the hospital's ledger stores it."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from study_protocol.cells import DataError
from study_protocol.cells.spelling import Decimal, Spelling

Separator = Literal["comma", "semicolon", "tab", "bar"]
Dates = Literal["dmy", "mdy"]
SEPARATORS: dict[Separator, str] = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_DATE_WORDS: dict[Dates, str] = {"dmy": "day before month", "mdy": "month before day"}


@dataclass(frozen=True)
class TableFormat:
    """The format of text tables (separator, encoding, header) and of texts in any table (decimal, dates).

    separator  None: the data set holds no text tables
    encoding   Python's name of the encoding. Unicode may have a byte order mark
    header     the first line names the columns
    decimal    mark of decimal numbers. None: not declared, and a text that may mean thousands is no number
    dates      order of day, month and year in dates that end with the year. None: only dates that begin with the year
               are dates

    Raises:
        DataError: there is no such encoding.
    """

    separator: Separator | None = "comma"
    encoding: str = "utf-8"
    header: bool = True
    decimal: Decimal | None = None
    dates: Dates | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_named(self.encoding))

    @property
    def spelling(self) -> Spelling:
        """Return the spelling of its texts."""
        return Spelling(self.decimal, self.dates)

    def to_dict(self) -> dict[str, Any]:
        """Return the format as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TableFormat:
        """Return the format from the JSON of `to_dict`."""
        return cls(**value)

    @property
    def options(self) -> list[str]:
        """Return the options of a command line that declare the format."""
        text = [] if self.separator is None else ["--separator", self.separator, "--encoding", self.encoding]
        decimal = [] if self.decimal is None else ["--decimal", self.decimal]
        return [*text, *decimal, *([] if self.dates is None else ["--dates", self.dates])]

    def __str__(self) -> str:
        text = [] if self.separator is None else [f"{self.separator} between cells", self.encoding.upper()]
        header = [] if self.separator is None or self.header else ["no header line"]
        decimal = "no decimal mark declared" if self.decimal is None else f"decimal {self.decimal}"
        dates = [] if self.dates is None else [f"dates with the {_DATE_WORDS[self.dates]}"]
        return ", ".join([*text, *header, decimal, *dates])


def encoding_named(name: str) -> str:
    """Return the normal name of an encoding. Raises DataError: there is no such encoding."""
    try:
        codec_name = codecs.lookup(name).name
        # Only some codecs are for text.
        b"a".decode(codec_name, "ignore")
    except (LookupError, UnicodeError, ValueError) as error:
        raise DataError(f"{name!r} is not the name of an encoding. An example is cp1252") from error
    return "utf-8" if codec_name == "utf-8-sig" else codec_name
