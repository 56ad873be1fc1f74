"""Bytes as characters: by the declared encoding alone, or refused by line and column."""

from __future__ import annotations

import gzip
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from private_learning.records import DataError
from private_learning.records.text_encoding import bytes_of, decode, propose_encoding
from study_protocol.cells import unpacking

TEXT = "id;größe\n7;1,5\n8;2\n"


@pytest.mark.parametrize(
    ("written", "proposed"),
    [
        ("utf-8", "utf-8"),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
    ],
)
def test_unicode_is_proposed_and_decodes_to_what_was_written(written: str, proposed: str) -> None:
    data = TEXT.encode(written)
    assert propose_encoding("a.csv", data)[0] == proposed
    assert decode("a.csv", data, proposed) == TEXT


def test_bytes_that_are_no_unicode_are_counted_by_line_and_advised_about() -> None:
    data = "id;ort\n7;Ulm\n8;Köln\n9;Köln\n".encode("cp1252")
    with pytest.raises(
        DataError, match=r"2 of 4 lines are not written in UTF-8, the first is line 3, column 2.*--encod"
    ):
        propose_encoding("a.csv", data)
    assert decode("a.csv", data, "cp1252") == "id;ort\n7;Ulm\n8;Köln\n9;Köln\n"


@pytest.mark.parametrize(
    ("data", "encoding", "words"),
    [
        (TEXT.encode("utf-8-sig"), "cp1252", "byte order mark of UTF-8, and CP1252 is declared"),
        (TEXT.encode("utf-16"), "utf-8", "byte order mark of UTF-16, and UTF-8 is declared"),
        (TEXT.encode("utf-16-be"), "utf-16", "without a byte order mark: declare --encoding utf-16-le"),
        (TEXT.encode("utf-16-le"), "cp1252", "as in UTF-16 without a byte order mark: declare --encoding utf-16-le"),
        (TEXT.encode(), "cp1252", "CP1252 is declared, and all bytes of the file are valid UTF-8"),
        (TEXT.encode("cp1252"), "utf-16-le", "not written in UTF-16-LE"),
        (b"a,b\n1,\0\n", "utf-8", "1 zero bytes, the first in line 2, column 2"),
        ("a,b\n1,2\n\ufeffa,b\n3,4\n".encode(), "utf-8", "line 3 begins with a byte order mark"),
        (b"a,b\r\n1,2\r3,4\r\n", "utf-8", "line 2 has a carriage return without a line feed"),
        (b"a,b\n", "klingon", "not the name of an encoding"),
        (b"a,b\n", "rot13", "not the name of an encoding"),
    ],
    ids=map(str, count()),
)
def test_bytes_that_do_not_fit_the_declared_encoding_are_refused(data: bytes, encoding: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        decode("a.csv", data, encoding)


def test_a_file_that_unpacks_into_far_more_than_it_holds_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED", 1 << 20)
    bomb, fair = tmp_path / "bomb.csv.gz", tmp_path / "fair.csv.gz"
    bomb.write_bytes(gzip.compress(bytes(1 << 26)))
    with pytest.raises(unpacking.TooLarge, match=r"bomb.csv.gz: unpacked it would take"):
        bytes_of(bomb)
    data = np.random.default_rng(0).bytes(1 << 21)
    # Two members after one another are one file.
    fair.write_bytes(gzip.compress(data) + gzip.compress(b"end"))
    assert bytes_of(fair) == data + b"end"
