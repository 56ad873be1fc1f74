"""Decoding of text tables: exactly in the declared encoding, or refused with line and column."""

from __future__ import annotations

import codecs
import gzip
import io
import re
import zlib
from pathlib import Path
from typing import cast

from private_learning.records.records import DataError
from private_learning.records.table_format import SEPARATORS, encoding_named
from study_protocol.cells.unpacking import require_safe

# The first bytes of a workbook: a zip archive, or before 2007 a compound file.
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")
# Byte order marks, and the encodings of each.
_MARKS = {
    codecs.BOM_UTF8: ("utf-8",),
    codecs.BOM_UTF16_LE: ("utf-16", "utf-16-le"),
    codecs.BOM_UTF16_BE: ("utf-16", "utf-16-be"),
}
# Encodings with one byte for each character accept almost any bytes.
_ONE_BYTE = ("cp125", "cp437", "cp85", "iso8859", "koi8", "mac")
_MARK_WITHIN = re.compile("[\r\n]\ufeff")
# The number of bytes that are unpacked at once.
_PART = 1 << 22
_LONE_RETURN = re.compile("\r(?!\n)")
_ADVICE = (
    "Save the file as 'CSV UTF-8' or name its encoding with --encoding (from Python: encoding=): cp1252 is that of "
    "Windows in Western Europe and America, cp1250 in Central Europe"
)


def bytes_of(path: Path) -> bytes:
    """Return the bytes of a text file, unpacked if its name ends in .gz.

    Raises:
        DataError: the file is no whole gzip file, unpacks into far more than its size, or is a workbook.
    """
    data = path.read_bytes()
    if path.suffix == ".gz":
        try:
            data = _unpacked(path.name, data)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path.name}: it is not a whole gzip file. Compress it again") from error
    if data.startswith(_WORKBOOKS):
        raise DataError(
            f"{path.name}: this is a workbook or an archive, not a text table. In Excel or LibreOffice save the sheet "
            "as 'CSV UTF-8'"
        )
    return data


def _unpacked(name: str, data: bytes) -> bytes:
    """Return the unpacked bytes. Raises TooLarge: before an unsafe size is in memory."""
    unpacked = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        while part := file.read(_PART):
            unpacked += part
            require_safe(name, len(data), len(unpacked))
    return bytes(unpacked)


def propose_encoding(name: str, data: bytes) -> tuple[str, str]:
    """Return (encoding, reason) if the bytes allow one answer. Raises DataError: they are no Unicode."""
    if (mark := _mark_of(data)) is not None:
        return mark[1][0], "the file begins with its byte order mark"
    if (sixteen := _without_mark(data)) is not None:
        return sixteen, "every other byte is zero, and there is no byte order mark"
    decode(name, data, "utf-8")
    return "utf-8", "all bytes are ASCII" if data.isascii() else "all bytes are valid UTF-8"


def decode(name: str, data: bytes, encoding: str) -> str:
    """Return the text without its byte order mark.

    Raises:
        DataError: bytes are not in the encoding (the message counts their lines), the mark is of another encoding, or
            there are zero bytes.
    """
    codec_name = encoding_named(encoding)
    known_mark = _mark_of(data)
    if known_mark is not None:
        mark, fitting = known_mark
        if codec_name not in fitting:
            raise DataError(
                f"{name}: it begins with the byte order mark of {fitting[0].upper()}, and {codec_name.upper()} is "
                f"declared: declare --encoding {fitting[0]}, or save the file in the declared encoding"
            )
        data, codec_name = data[len(mark) :], fitting[-1]
    elif codec_name == "utf-16":
        raise DataError(f"{name}: UTF-16 without a byte order mark: declare --encoding utf-16-le, or utf-16-be")
    try:
        text = data.decode(codec_name)
    except UnicodeError as error:
        raise DataError(f"{name}: {_undecodable(data, codec_name)}. {_ADVICE}") from error
    _require_plain(name, data, text, codec_name)
    return text


def _mark_of(data: bytes) -> tuple[bytes, tuple[str, ...]] | None:
    return next((mark for mark in _MARKS.items() if data.startswith(mark[0])), None)


def _without_mark(data: bytes) -> str | None:
    """Return the encoding of UTF-16 without a mark, or None. Latin letters have a zero byte each."""
    for place, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        zeros, odd_zeros = data[place::2].count(0), data[1 - place :: 2].count(0)
        if not odd_zeros and len(data) % 2 == 0 and zeros > len(data) // 5:
            return encoding
    return None


def _require_plain(name: str, data: bytes, text: str, encoding: str) -> None:
    """Require a plain text. Raises DataError: the text was decoded, but has signs of another encoding."""
    if "\0" in text:
        if (sixteen := _without_mark(data)) is not None:
            raise DataError(
                f"{name}: every other byte is zero, as in UTF-16 without a byte order mark: declare --encoding "
                f"{sixteen}, or save the file as 'CSV UTF-8'"
            )
        place = _place(data[: data.index(0)])
        raise DataError(
            f"{name}: {text.count(chr(0))} zero bytes, the first in {place}, which no text table holds. Save the file "
            "as 'CSV UTF-8'"
        )
    # A carriage return without its line feed would move the end of its line to the next row.
    if (pairs := text.count("\r\n")) and pairs != text.count("\r"):
        line = _lines(text[: cast("re.Match[str]", _LONE_RETURN.search(text)).start()])
        raise DataError(
            f"{name}: line {line} has a carriage return without a line feed, and other lines end with both: save the "
            "file with one kind of line end"
        )
    if "\ufeff" in text and (within := _MARK_WITHIN.search(text)) is not None:
        line = _lines(text[: within.end()])
        raise DataError(
            f"{name}: line {line} begins with a byte order mark, as where two files were put together: keep one header "
            "line, and remove the mark"
        )
    if encoding.startswith(_ONE_BYTE) and not data.isascii() and _is_utf8(data):
        raise DataError(
            f"{name}: {encoding.upper()} is declared, and all bytes of the file are valid UTF-8: declare --encoding "
            "utf-8, or save the file in the declared encoding"
        )


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _undecodable(data: bytes, encoding: str) -> str:
    """Return the number of lines that are not in the encoding, and the place of the first, in words."""
    encoding_name = encoding.upper()
    if encoding.startswith(("utf-16", "utf-32")):
        return f"it is not written in {encoding_name}"
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    wrong, first = 0, b""
    for number, line in enumerate(lines):
        try:
            line.decode(encoding)
        except UnicodeDecodeError as error:
            wrong += 1
            first = first or b"\n" * number + line[: error.start]
    if not wrong:
        return f"it is not written in {encoding_name}"
    whole = len(lines) - (not lines[-1])
    return f"{wrong} of {whole} lines are not written in {encoding_name}, the first is {_place(first)}"


def _place(before: bytes) -> str:
    """Return the line and the column in which these bytes end."""
    line = before.splitlines()[-1] if before and before[-1:] not in b"\r\n" else b""
    column = 1 + max(line.count(mark.encode()) for mark in SEPARATORS.values())
    return f"line {_lines(before.decode('latin-1'))}, column {column}"


def _lines(before: str) -> int:
    return before.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
