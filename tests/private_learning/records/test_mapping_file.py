"""Every fault of a columns.toml is refused in one sentence that names the entry and quotes no code."""

from __future__ import annotations

from pathlib import Path

import pytest

from private_learning.records import DataError, TableMapping, load
from private_learning.records.mapping_file import parsed_mapping

LONG = "[" * 100_000


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"it maps no column"),
        ("[columns]\n", r"it maps no column"),
        ('[colums]\na = "b"', r"the file: there is no section 'colums'. Did you mean columns\?"),
        ('[columns]\na = { form = "b" }', r"\[columns\] a: there is no entry 'form'. Did you mean from\?"),
        ("[columns]\na = {}", r"\[columns\] a: it is empty"),
        ("[columns]\na = 3", r"\[columns\] a: the name of a local column"),
        ('[columns]\na = ["b"]', r"\[columns\] a: the name of a local column"),
        ('[columns]\na = ""', r"\[columns\] a: the name of a column is expected"),
        ("[columns]\na = { from = 3 }", r"\[columns\] a.from: the name of a column is expected"),
        ("columns = 3", r"\[columns\]: a table of entries is expected"),
        ("events = []", r"\[events\]: a table of entries is expected"),
        ('[events.d]\na = { map = "x" }', r"\[events.d\] a.map: a table of entries is expected"),
        ("[columns]\na = { multiply = nan }", r"\[columns\] a.multiply: a finite number is expected"),
        ("[columns]\na = { multiply = inf }", r"\[columns\] a.multiply: a finite number is expected"),
        ('[columns]\na = { multiply = "2" }', r"\[columns\] a.multiply: a finite number is expected"),
        ("[columns]\na = { multiply = true }", r"\[columns\] a.multiply: a finite number is expected"),
        (f"[columns]\na = {{ multiply = 1{'0' * 400} }}", r"\[columns\] a.multiply: a finite number is expected"),
        ("[columns]\na = { multiply = 0 }", r"\[columns\] a.multiply: 0 would make all values equal"),
        ("[columns]\na = { multiply = -0.0 }", r"\[columns\] a.multiply: 0 would make all values equal"),
        ("[columns]\na = { add = -inf }", r"\[columns\] a.add: a finite number is expected"),
        ('[columns]\na = { add = 1, map = { x = "y" } }', r"\[columns\] a: map, days_from, and multiply or add"),
        ('[columns]\na = { from = "b", days_from = "b" }', r"\[columns\] a.days_from: a date cannot be counted"),
        ("[columns]\na = { map = {} }", r"\[columns\] a.map: it maps no code"),
        ('[columns]\na = { map = { x = "" } }', r"\[columns\] a.map: behind each code"),
        ("[columns]\na = { map = { x = nan } }", r"\[columns\] a.map: behind each code"),
        ('[columns]\na = { map = { x = ["y"] } }', r"\[columns\] a.map: behind each code"),
        ('[columns]\na = { map = { "" = "y" } }', r"\[columns\] a.map: an empty cell"),
        ('[columns]\na = { map = { 1 = "x", "1.0" = "y" } }', r"a.map: two of its 2 codes are one code"),
        ('[columns]\na = { map = { True = "x", "true" = "y" } }', r"a.map: two of its 2 codes are one code"),
        ('[columns]\na = { map = { "\u00e9" = "x", "e\u0301" = "y" } }', r"a.map: two of its 2 codes are one code"),
        ('[columns]\na = { map = { "x" = "x", " x " = "y" } }', r"a.map: two of its 2 codes are one code"),
        ('[columns]\n"\u00e9" = "x"\n"e\u0301" = "y"', r"two entries have this name"),
        ('[columns]\na = { map = { x = "y" }, missing = ["x"] }', r"a.missing: one of its codes is also a code of map"),
        ('[columns]\na = { missing = "x" }', r"a.missing: a list of codes as texts"),
        ("[columns]\na = { missing = [-9] }", r"a.missing: a list of codes as texts"),
        ('[columns]\na = { missing = ["9", "9.0"] }', r"a.missing: two of its 2 codes are one code"),
        ('[columns]\na = "b"\na = "c"', r"line 3"),
        ("[columns]\na = 'b", r"line 2"),
        (f"[columns]\na = {{ multiply = 1{'0' * 5_000} }}", r"a whole number in it has too many digits"),
        (f"[columns]\na = {{ map = {{ x = 1{'0' * 400} }} }}", r"\[columns\] a.map: behind each code"),
        (f"'{LONG}' = 3", r"the file: 1 of its names or codes have more than 1,000 characters"),
        (f"[columns]\n'{LONG}' = 'b'", r"\[columns\]: 1 of its names"),
        (f"[columns]\na = '{LONG}'", r"\[columns\] a: 1 of its names"),
        (f"[columns]\na = {{ '{LONG}' = 1 }}", r"\[columns\] a: 1 of its names"),
        (f"[columns]\na = {{ map = {{ '{LONG}' = 'b' }} }}", r"\[columns\] a.map: 1 of its names"),
        (f"[columns]\na = {{ map = {{ b = '{LONG}' }} }}", r"\[columns\] a.map: 1 of its names"),
        (f"[columns]\na = {{ missing = ['{LONG}'] }}", r"\[columns\] a.missing: 1 of its names"),
        (f"[events.'{LONG}']", r"\[events\]: 1 of its names"),
        (f"a = {'[' * 20_000}", r"nested too deeply|line 1"),
    ],
)
def test_a_fault_names_its_entry(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"^columns.toml: .*(?:" + words + ")"):
        TableMapping.read(path)


@pytest.mark.parametrize("code", [".*", "I1*", "^I10", "I10$", "I1[0-9]", "I10|I11", "I10%", "secret.+"])
def test_a_pattern_is_refused_without_being_quoted(code: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(f'[columns]\na = {{ map = {{ "{code}" = "x", y = "z" }} }}')
    with pytest.raises(DataError, match=r"1 of its 2 codes are patterns\. Write every code by itself") as caught:
        TableMapping.read(path)
    assert code not in str(caught.value)


@pytest.mark.parametrize("code", ["?", "G63.2*", "A15+", "N/A", "50-59", "I10.-", "(none)"])
def test_codes_that_look_odd_are_codes(code: str, tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(f'[columns]\na = {{ map = {{ "{code}" = "x" }} }}')
    mapping = TableMapping.read(path)
    local = {"a": [code, "other", None]}
    assert [(each.mapped, each.unmapped, each.missing) for each in mapping.counts(load(local))] == [(1, 1, 1)]


def test_an_enormous_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "columns.toml"
    with path.open("wb") as file:
        file.truncate((1 << 24) + 1)
    with pytest.raises(DataError, match=r"columns.toml: it has more than 16 MiB"):
        TableMapping.read(path)
    path.write_bytes(b"\xff\xfe[\x00")
    with pytest.raises(DataError, match=r"columns.toml: .*UTF-8"):
        TableMapping.read(path)
    with pytest.raises(DataError, match=r"lacks.toml: this file of the mapping cannot be read \(FileNotFoundError\)"):
        TableMapping.read(tmp_path / "lacks.toml")
    with pytest.raises(DataError, match="cannot be read"):
        TableMapping.read(tmp_path)


def test_entries_are_those_of_the_sections() -> None:
    columns, events = parsed_mapping({"columns": {"a": "b"}, "events": {"d": {"day": {"from": "at", "add": 1}}}})
    assert (columns[0].local, columns[0].add) == ("b", None)
    assert (events["d"][0].local, events["d"][0].add) == ("at", 1.0)
