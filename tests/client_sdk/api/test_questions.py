"""A question as a person has it: a file, a dictionary, a document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from client_sdk.api.questions import read_question
from client_sdk.errors import ConfigurationError

TABLE = 'kind = "table"\nnoise_multiplier = 6.0\n'


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b'title = "ages"', ["kind: is missing"]),
        (
            b'kind = "tabel"',
            ["kind: must be one of count, covariance, distances, evaluation, glm, linear-regression, marginals"],
        ),
        (
            TABLE.encode() + b'variabels = [{column = "sex", categories = ["f"]}]',
            ["variables: is missing", "variabels: there is no such entry. Did you mean variables?"],
        ),
        (
            TABLE.encode() + b'variables = [{column = "age", edges = [60.0, 40.0]}]',
            ["variables.0: column age: edges rise from one to the next"],
        ),
        (TABLE.encode() + b"variables = []", ["variables: must have at least 1 entry"]),
    ],
    ids=["without an entry", "a wrong kind", "a wrong name", "falling edges", "no variables"],
)
def test_every_wrong_entry_of_a_file_is_named_as_it_stands_there(
    tmp_path: Path, content: bytes, lines: list[str]
) -> None:
    path = tmp_path / "question.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as found:
        read_question(path)
    said = str(found.value).splitlines()[1:]
    assert len(said) == len(lines)
    assert all(shown.startswith(f"  {line}") for shown, line in zip(said, lines, strict=True))


def test_a_file_in_another_encoding_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "question.toml"
    path.write_bytes('kind = "count"\ntitle = "café"\nnoise_multiplier = 6.0'.encode("latin-1"))
    with pytest.raises(ConfigurationError, match="line 2: it is no text in UTF-8: save it"):
        read_question(path)


COUNT = {"kind": "count", "noise_multiplier": 5.0}


def test_a_question_in_any_form_is_the_same_document(tmp_path: Path) -> None:
    toml, document = tmp_path / "count.toml", tmp_path / "count.json"
    toml.write_text('kind = "count"\nnoise_multiplier = 5.0\n')
    document.write_text('{"question": {"kind": "count", "noise_multiplier": 5.0}, "data_version": "1"}')
    first = read_question(COUNT)
    assert (first.question.noise_multiplier, first.data_version) == (5.0, "1")
    for source in (toml, str(toml), document, first, first.question, {"question": COUNT}):
        assert read_question(source) == first


def test_the_version_of_the_data_stands_beside_a_question_or_around_it() -> None:
    beside = read_question(COUNT | {"data_version": "2026-03"})
    assert beside.data_version == "2026-03"
    assert read_question({"question": COUNT, "data_version": "2026-03"}) == beside


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"kind": "count"}, "this is not a question:\n  noise_multiplier: is missing"),
        ({"kind": {1, 2}}, "it is no TOML or JSON of one"),
        ({}, "kind: is missing"),
        ({"question": {"kind": "count"}}, "question.count.noise_multiplier: is missing"),
    ],
    ids=["lacks", "no JSON", "empty", "whole"],
)
def test_what_is_no_question_is_named(source: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read_question(source)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.toml", "", "is empty: `wardround query template KIND -o FILE`"),
        ("a.json", "[1]", "is not a question: it is no TOML or JSON of one"),
        ("a.json", "{", "is no JSON: "),
        ("a.toml", "kind = count", "is no TOML: line 1"),
    ],
)
def test_what_is_no_file_of_a_question_is_named(tmp_path: Path, name: str, content: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ConfigurationError) as error:
        read_question(path)
    assert words in str(error.value)
    with pytest.raises(OSError, match="No such file"):
        read_question(tmp_path / "nowhere.toml")
