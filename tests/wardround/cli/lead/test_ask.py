"""`wardround ask`: what the noise alone says of the errors, and what is handed out."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from client_sdk.errors import ConfigurationError, ConnectionFailed
from tests.factories.signed_answers import answered, document, shown
from wardround.cli.lead.ask import (
    _ask_and_verify,  # pyright: ignore[reportPrivateUsage]
    _by,  # pyright: ignore[reportPrivateUsage]
    _document,  # pyright: ignore[reportPrivateUsage]
    errors_of_counts,
    hand_out,
)

ASKED = document()


def test_errors_of_counts_are_those_of_the_noise_alone() -> None:
    """One table of twenty cells, which add up to one number of patients: √20 times the noise of a cell."""
    assert ASKED.question.cells == 20
    rows = errors_of_counts(ASKED, 6.0)
    assert rows == [
        ["patients", "6", "± 11.8"],
        ["patients in all", f"{6 * math.sqrt(20):.3g}", f"± {1.96 * 6 * math.sqrt(20):.3g}"],
    ]


def test_errors_that_differ_are_told_from_the_least_to_the_largest() -> None:
    """Of tables of 4, 5 and 2 cells: the variance of a cell is s²(1 - 1/d) + v/d², v = s² / (1/4 + 1/5 + 1/2)."""
    rows = {title: error for title, error, _ in errors_of_counts(document("tables"), 6.0)}
    variance = 36 / (1 / 4 + 1 / 5 + 1 / 2)
    cells = [math.sqrt(36 * (1 - 1 / size) + variance / size**2) for size in (4, 5, 2)]
    assert rows["patients"] == f"{min(cells):.3g} to {max(cells):.3g}"
    assert rows["patients in all"] == f"{math.sqrt(variance):.3g}"


def test_bins_and_their_total_have_different_titles() -> None:
    assert [title for title, _, _ in errors_of_counts(document("quantiles"), 6.0)] == ["patients", "patients in all"]


def test_a_query_is_handed_out_as_text_or_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    hand_out(shown(ASKED), False, None, None)
    assert "waiting: 1 of at least 2 hospitals say yes" in capsys.readouterr().out
    hand_out(answered(ASKED), True, None, None)
    assert json.loads(capsys.readouterr().out)["answered"]["published"]["hospitals"] == 3


def test_tables_are_written_and_named_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "answer.csv"
    hand_out(answered(ASKED), True, path, "shares")
    written = capsys.readouterr()
    assert written.err == f"{path} is written\n"
    json.loads(written.out)
    assert path.read_text().startswith("sex,age,estimate")


def test_a_table_that_is_not_there_is_named_before_anything_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError, match="no table 'x'"):
        hand_out(answered(ASKED), False, tmp_path / "answer.csv", "x")
    assert capsys.readouterr().out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_question_that_is_known_waits_for_a_coordinator_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    looks: list[str] = ["waits", "away", "away", "there"]
    pauses: list[float] = []

    def ask(_study: str, _document: Any, *, wait: bool, on_state: Any) -> Any:
        assert wait
        look = looks.pop(0)
        if look == "waits":
            on_state(shown(ASKED))
        if look != "there":
            raise ConnectionFailed("it did not answer")
        return answered(ASKED)

    client: Any = SimpleNamespace(ask=ask, sleep=pauses.append)
    assert _ask_and_verify(client, "registry", ASKED, wait=True)[0] == answered(ASKED)
    assert (looks, len(pauses)) == ([], 3)
    assert "it did not answer. The question stays asked" in capsys.readouterr().err


def test_a_wait_says_once_what_it_depends_on(capsys: pytest.CaptureFixture[str]) -> None:
    def ask(_study: str, _document: Any, *, wait: bool, on_state: Any) -> Any:
        for allowed in (0, 0, 0, 1, 1):
            on_state(shown(ASKED, allowed=allowed))
        return answered(ASKED)

    client: Any = SimpleNamespace(ask=ask, study=lambda _: SimpleNamespace(clients=4))
    _ask_and_verify(client, "registry", ASKED, wait=True)
    first, hint, changed = capsys.readouterr().err.splitlines()
    assert first.startswith("query 1: waiting: 0 of at least")
    assert hint.startswith("enrolled hospitals: 4. Each one answers while its `wardround join` runs")
    assert changed.startswith("query 1: waiting: 1 of at least")


def test_a_ready_question_without_noise_names_a_first_value() -> None:
    with pytest.raises(ConfigurationError, match="Begin with --noise 16 --plan"):
        _document(SimpleNamespace(), "registry", None, "typical", None, None, None)  # type: ignore[arg-type]


def test_a_question_that_never_arrived_ends_with_the_reason() -> None:
    def ask(*_: Any, **__: Any) -> Any:
        raise ConnectionFailed("it did not answer")

    with pytest.raises(ConnectionFailed):
        _ask_and_verify(SimpleNamespace(ask=ask, sleep=None), "registry", ASKED, wait=True)  # type: ignore[arg-type]


def test_by_hospital_makes_any_such_question_one_by_hospital() -> None:
    asked = _by(document("tables"), "hospital")
    assert asked.question.is_by_hospital
    assert asked.question.model_dump(exclude={"by"}) == document("tables").question.model_dump(exclude={"by"})
    assert _by(asked, "hospital") == asked
    assert _by(ASKED, None) is ASKED


@pytest.mark.parametrize(
    ("kind", "by", "words"),
    [
        ("count", "ward", "--by takes hospital alone"),
        ("covariance", "hospital", "a question of kind covariance is never by hospital"),
        ("survival", "hospital", "this question is by a column"),
    ],
)
def test_what_cannot_be_by_hospital_is_said(kind: str, by: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        _by(document(kind), by)
