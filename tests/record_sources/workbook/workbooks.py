"""Workbooks as openpyxl writes them, and changes of their parts."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

from openpyxl import Workbook
from openpyxl.worksheet.worksheet import Worksheet

MOMENT = datetime(2020, 2, 29, 13, 30)  # noqa: DTZ001


Change = Callable[[Worksheet], object]


MANIFEST = '"urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"'


HEADER = ["patient", "age", "share", "seen"]


ROWS: list[list[Any]] = [
    ["007", 61.0, 0.5, date(2020, 1, 2)],
    ["008", None, 0.25, None],
    ["009", 40, 1, date(2021, 3, 4)],
]


def written(path: Path, rows: Sequence[Sequence[Any]], change: Change = lambda _sheet: None) -> Path:
    book = Workbook()
    sheet = book.create_sheet("Cohort")
    for row in rows:
        sheet.append(list(row))
    change(sheet)
    book.save(path)
    return path


def rewritten(path: Path, part: str, *changes: tuple[str, str]) -> Path:
    """Replace text in one part of a workbook."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    text = parts[part].decode()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**parts, part: text.encode()}.items():
            archive.writestr(name, content)
    return path
