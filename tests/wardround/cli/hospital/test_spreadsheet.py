"""CSV in which no spreadsheet finds a formula, and from which every text can be had again."""

from __future__ import annotations

import csv
import io
import itertools
import re
from itertools import count

import pytest

from wardround.cli.hospital.spreadsheet import csv_text, guarded

# OWASP, CSV injection: what begins a formula, also in wide forms.
SIGNS = ["=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
FORMULAS = [
    *(f"{sign}cmd|' /C calc'!A0" for sign in SIGNS),
    *("+1+cmd|' /C calc'!A0", "-1-1", "-2+3+cmd|x", "+1.5=x", "-.", "+", "--1", "1\n=1", " =1", "'=1", "''=1"),
    *("\ufeff=1", "\u200b=1", "\u202e+1+x", "\u2060\ufeff@x", "\x00=1", "\u00ad-1+x", "\ufe0f=1"),
    *("\t=1", "\r=1", "\n=1", '"=1', "=1,5", "-3 to =x", "-3;x", "\u00a0=1"),
]
PLAIN = [
    "-3",
    "+1.5",
    "-0.25e-7",
    "+49,5",
    "-5 to 0",
    "-5 to -1",
    "0744",
    "a-b",
    "p=1",
    "M\u00fcller",
    "",
    "'",
    "1e5",
    ".5",
]


def cells(text: str, separator: str) -> list[str]:
    """As a spreadsheet of a country that separates so: it opens marks at the start of a cell alone."""
    return [cell for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator) for cell in row]


@pytest.mark.parametrize("text", FORMULAS, ids=map(str, count()))
@pytest.mark.parametrize("separator", [",", ";", "\t"], ids=map(str, count()))
def test_no_cell_of_a_hostile_identifier_begins_a_formula(text: str, separator: str) -> None:
    for hostile in (text, f"x;{text}", f"x\t{text}", f"x\n{text}"):
        written = csv_text(["row", hostile], [[1, hostile]])
        for cell in cells(written, separator):
            number = re.fullmatch(r"[+-]?\d+([.,]\d+)?( to [+-]?\d+)?", cell)
            assert number or cell.lstrip(' \u00a0"\ufeff\u200b\u202e\u2060\x00\u00ad\ufe0f')[:1] not in [
                *SIGNS,
                "\t",
                "\r",
                "\n",
            ], (hostile, cell)


@pytest.mark.parametrize("text", PLAIN, ids=map(str, count()))
def test_numbers_and_other_texts_stay_as_they_are(text: str) -> None:
    assert guarded(text) == text
    assert cells(csv_text(["id"], [[text]]), ",")[1:] == [text]


def test_every_text_can_be_had_again_and_no_two_become_one() -> None:
    every = ["".join(parts) for length in range(6) for parts in itertools.product("='\t;3", repeat=length)]
    written = [guarded(text) for text in every]
    # Every apostrophe that could have been put there is taken off again.
    guard = re.compile(r"\A'(?='*[\t\r\n])|(?:\A|(?<=[\t\r\n;]))'(?=[\s'\"]*=)")
    assert [guard.sub("", text) for text in written] == every
    assert len(set(written)) == len(every)


def test_a_tab_or_a_line_end_at_the_start_is_guarded() -> None:
    assert [guarded(text) for text in ("\tx", "\rx", "\nx")] == ["'\tx", "'\rx", "'\nx"]


def test_numbers_are_written_as_numbers_and_nothing_as_an_empty_cell() -> None:
    assert csv_text(["a", "-b"], [[-1.5, None], ["=1", 2]]) == "a,'-b\n-1.5,\n'=1,2\n"
