"""The list of objections: every spelling is heard, or its line is refused, and nobody is left out in silence."""

from __future__ import annotations

import re
import unicodedata
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from client_sdk.errors import ConfigurationError
from client_sdk.guard.exclusion import ExclusionEntry, ExclusionList, entry_identity, read_exclusion_file
from client_sdk.guard.policy import SitePolicy

PATIENTS = ("1001", "1002", "1003")


def read(folder: Path, data: str | bytes, **inline: Any) -> SitePolicy:
    (folder / "objections.txt").write_bytes(data if isinstance(data, bytes) else data.encode())
    named = "".join(f"{name} = {value}\n" for name, value in inline.items())
    (folder / "policy.toml").write_text(f'excluded_patients_file = "objections.txt"\n{named}')
    return SitePolicy.read(folder / "policy.toml")


def left_out(policy: SitePolicy, patients: tuple[str, ...] = PATIENTS) -> list[str]:
    rows = policy.exclusions.match(patients).rows.tolist()
    return [patient for patient, gone in zip(patients, rows, strict=True) if gone]


@pytest.mark.parametrize(
    "data",
    [
        *('"1001"\n"1002"\n', "'1001'\n'1002'", "“1001”\n„1002“\n", "«1001»\n‹ 1002 ›", '\ufeff"1001"\n"1002"'),
        *(" 1001 \r\n\r\n\t1002\t\r\n", "1001\r1002", "1001\n\n\n1002\n", "1001\u20281002"),
        *("\N{NO-BREAK SPACE}1001\n\u200b1002\u00ad", "\N{FULLWIDTH DIGIT ONE}001\n1002"),
        *("1001\n1002\n", "1001.0\n1002.00", "0001001\n01002", "1001\n1002\n1001\n"),
        "1001\n1002\n".encode("utf-8-sig"),
        "1001\n1002\n".encode("utf-16"),
        b"\xfe\xff" + "1001\n1002\n".encode("utf-16-be"),
    ],
    ids=map(str, count()),
)
def test_every_spelling_of_a_list_is_heard(tmp_path: Path, data: str | bytes) -> None:
    assert left_out(read(tmp_path, data)) == ["1001", "1002"]


@pytest.mark.parametrize(
    ("data", "line", "words"),
    [
        ("1001;\n1002\n", 1, "comma, a semicolon"),
        ("1001\n1002, 1003\n", 2, "Write one identifier a line"),
        ("1001\n\n1002|1003", 3, "a bar"),
        ("1001\t1002", 1, "a tab"),
        ("1001\N{FULLWIDTH COMMA}1002", 1, "a comma"),
        ("1001\N{IDEOGRAPHIC COMMA}1002", 1, "a comma"),
        ('"1001, 1002"', 1, "a comma"),
        ('"1001","1002"', 1, "a comma"),
        ("sep=;\n1001", 1, "a comma"),
        ('1001\n"1002', 2, "quotation mark that belongs to no pair"),
        ('="1001"', 1, "quotation mark"),
        ("'1001", 1, "quotation mark"),
        ('"10""01"', 1, "quotation mark"),
        ("1001\n1,23457E+12", 2, "comma|last digits are lost"),
        ("1001\n1.23457E+12", 2, "holds a number whose last digits are lost"),
        ('1001\n"1E+12"\n', 2, "last digits are lost"),
        ("1001\nnan\n", 2, "missing value"),
        (b"1001\nM\xfcller\n", 2, "is no UTF-8 text"),
        (b"1001\nM\xfcller\n\xff", 2, "is no UTF-8 text"),
        ("1001\n1002".encode("utf-16-le"), 1, "holds a zero byte"),
        (b"\xff\xfe1\x000\x00\n\x001", 2, "is no UTF-16 text"),
        (b"PK\x03\x04\xff\xff", 1, "is no UTF-8 text"),
    ],
    ids=map(str, count()),
)
def test_a_line_that_is_not_one_identifier_is_refused_by_its_number(
    tmp_path: Path, data: str | bytes, line: int, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"objections\.txt .*line {line} .*({words})") as caught:
        read(tmp_path, data)
    assert not re.search(r"100\d|23457|ller", str(caught.value).replace(str(tmp_path), ""))


def test_several_wrong_lines_are_counted(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"line 2 holds .*\(3 lines are wrong\)"):
        read(tmp_path, "1001\n1;\n2;\n3;\n")


def test_a_list_that_is_not_there_ends_everything(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('excluded_patients_file = "nowhere.txt"')
    with pytest.raises(ConfigurationError, match=r"list .*nowhere.txt that .* cannot be read: No such file"):
        SitePolicy.read(tmp_path / "policy.toml")


def test_entries_that_match_nobody_are_named_by_their_lines(tmp_path: Path) -> None:
    policy = read(tmp_path, "patient_id\n1001\n\n# 2024\n1003\n", excluded_patients=["1002", "gone"])
    found = policy.exclusions.match(PATIENTS)
    assert (found.patients, found.entries, found.widened) == (3, 6, ())
    (warning,) = found.warnings
    assert warning.startswith("3 of 6 entries of the exclusion list match no patient of these records (")
    assert "(entries 2 of excluded_patients, lines 1, 4 of objections.txt)" in warning
    assert "gone" not in warning
    assert "gone" not in repr(policy.exclusions)


def test_a_list_of_which_nobody_is_found_says_so_first() -> None:
    found = ExclusionList(tuple(ExclusionEntry("objections.txt", line, f"x{line}") for line in range(1, 14)))
    (warning,) = found.match(PATIENTS).warnings
    assert warning.startswith("no patient is left out: no entry of the exclusion list matches a patient")
    assert "(lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 of objections.txt, and 3 more)" in warning
    assert ExclusionList(()).match(PATIENTS).warnings == ()


def test_zeros_and_capitals_leave_out_more_and_are_named(tmp_path: Path) -> None:
    """A column of numbers has lost its zeros: the one who objected may be either."""
    policy = read(tmp_path, "0017\np5\nP07\n")
    assert left_out(policy, ("17", "017", "0017", "170", "P5", "p5", "p7")) == ["17", "017", "0017", "P5", "p5"]
    found = policy.exclusions.match(("17", "017", "0017", "170", "P5", "p5", "p7"))
    assert found.patients == 5
    unmatched, widened = found.warnings
    assert "1 of 3 entries" in unmatched
    assert "(lines 3 of objections.txt)" in unmatched
    assert "2 of 3 entries of the exclusion list also leave out" in widened
    assert widened.endswith("(lines 1, 2 of objections.txt)")


def test_entries_of_the_policy_itself_are_read_alike() -> None:
    listed: list[Any] = ['"1001"', 1002, "1003.0", b"x"]
    policy = SitePolicy(excluded_patients=listed)  # pyright: ignore[reportArgumentType]
    assert policy.excluded_patients == ("1001", "1002", "1003", "x")
    for wrong in ("1001;", "1001, 1002", "1.23E+12", "", " ", 2.0**60, None, "'1001"):
        with pytest.raises(ValidationError, match="entry 2 ") as caught:
            SitePolicy(excluded_patients=["p1", wrong])  # pyright: ignore[reportArgumentType]
        assert "1001" not in str(caught.value)


def test_a_policy_that_is_copied_keeps_its_list(tmp_path: Path) -> None:
    policy = read(tmp_path, "1001\n", excluded_patients=["1002"])
    copy = policy.model_copy(update={"needs_masking": True})
    assert left_out(copy) == ["1001", "1002"]
    # An entry too many is the safe side.
    assert left_out(policy.model_copy(update={"excluded_patients": ()})) == ["1001"]


IDENTIFIERS = st.one_of(
    st.integers(0, 10**12).map(str),
    st.from_regex("0{0,2}[1-9][0-9]{0,7}", fullmatch=True),
    st.text("aZ09éüßø-_/:.# ", min_size=1, max_size=10).map(lambda text: f"p{text}x"),
)
SPELLINGS: Any = st.sampled_from(
    [
        *(lambda one: one, lambda one: f'"{one}"', lambda one: f"'{one}'", lambda one: f"„{one}“"),
        *(lambda one: f" {one}\N{NO-BREAK SPACE}", lambda one: f"\u200b{one}\u00ad", lambda one: f"\ufeff{one}"),
        *(lambda one: unicodedata.normalize("NFD", one), lambda one: f"{one};", lambda one: f"{one},"),
        *(lambda one: f"{one}\t", lambda one: f"{one}|", lambda one: f'"{one}', lambda one: f'"{one}";'),
        *(lambda one: f"00{one}", lambda one: one.upper(), lambda one: one.swapcase(), lambda one: f'"{one}" '),
        lambda one: one.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)}),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(IDENTIFIERS, SPELLINGS), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_an_objection_is_heard_or_its_line_refused_or_warned_of(
    tmp_path_factory: pytest.TempPathFactory, written: list[tuple[str, Any]], end: str, encoding: str
) -> None:
    path = tmp_path_factory.mktemp("list") / "objections.txt"
    path.write_bytes(end.join(spell(one) for one, spell in written).encode(encoding))
    patients = tuple(" ".join(one.split()) for one, _ in written)
    try:
        found = ExclusionList(read_exclusion_file(path, "the list")).match(patients)
    except ConfigurationError:
        return
    # Zeros before a number are another spelling of it, before letters another patient.
    deaf = [row for row, (one, spell) in enumerate(written) if spell(one) == f"00{one}" and not one.isdecimal()]
    assert all(found.rows[row] for row in range(len(patients)) if row not in deaf)
    assert len(found.unmatched) <= len(deaf)


@given(st.text("1,;|\t\"'“ ", min_size=1, max_size=8))
def test_no_entry_holds_a_separator_or_a_quotation_mark(text: str) -> None:
    try:
        identity = entry_identity(text)
    except ValueError:
        return
    assert not set(identity) & set(',;|\t"“')
    assert not identity.startswith("'")
    assert not identity.endswith("'")
