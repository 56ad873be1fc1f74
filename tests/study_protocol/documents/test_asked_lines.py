"""Lines and their answers: the mark of what is missing, and numbers as a certificate states them."""

from __future__ import annotations

from study_protocol.documents.asked_lines import (
    AskedLine,
    LineAnswer,
    always,
    bound,
    file,
    limit_rows,
    released,
    rounds,
    section_of,
    yours,
)
from tests.factories.certificates import ONE

STATED = ONE.certificate


def test_an_answer_has_its_text_its_mark_or_both() -> None:
    assert LineAnswer("A sentence.").in_words == "A sentence."
    assert LineAnswer(yours="the date.").in_words == "Yours: the date."
    assert always("A sentence.", "the date.")(STATED).in_words == "A sentence. Yours: the date."
    line = AskedLine("1.1", "a date", "mandatory", yours("the date."))
    section = section_of("Lines", (line,), STATED, ("A remark.",))
    assert section.rows == (("1.1", "mandatory", "a date", "Yours: the date."),)
    assert section.lines == ("A remark.",)


def test_numbers_are_rounded_to_the_side_that_promises_less() -> None:
    for row, limit in zip(limit_rows(STATED), STATED.limits, strict=True):
        if limit.epsilon is None:
            assert row[1:] == ("not protected", "–", "–", "100 %")
            continue
        assert limit.spent is not None
        assert limit.attack_success is not None
        assert limit.spent <= float(row[1]) <= limit.spent + 1e-3
        assert float(row[2]) == limit.epsilon
        assert 100 * limit.attack_success <= float(row[4].removesuffix(" %")) <= 100 * limit.attack_success + 0.1
        assert row[1] in bound(STATED)


def test_what_left_is_counted_by_kind() -> None:
    assert rounds(STATED) == "2 charged of at most 6"
    assert released(STATED).startswith("at most one model from each of 2 rounds of training")
    one = STATED.model_copy(update={"rounds": STATED.rounds.model_copy(update={"charged": 2, "steps": 1})})
    assert (
        released(one)
        == "at most one model from each of 1 round of training, and at most one answer to each of 1 question"
    )
    assert file(STATED) == f"model of round 2, 160 bytes, SHA-256 {'ab' * 32}"
    assert file(STATED.model_copy(update={"model": None})) == "no model is named"
